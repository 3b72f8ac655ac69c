"""Waves of kernels: the kernels between two barriers, which a GPU runs in parallel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import TypeVar

from ztorch.graph.value import Value
from ztorch.lower.tuning import WAVES_MEMORY

Memory = TypeVar("Memory")


def in_waves(order: Sequence[int], needs: Mapping[int, Collection[int]],
             reads: Mapping[int, Set[Value]], writes: Mapping[int, Collection[Value]],
             late: Collection[int]) -> list[int]:
    """The regions of an order, each as early as those before it allow, so that there are few waves.

    Regions of `late` come right before their first reader. Where memory would grow much, the order
    stays as it is.

    Args:
        order: The numbers of regions, in an order in which they can run.
        needs: For each region, the regions that must run before it.
        reads: For each region, the values in the arena that it reads.
        writes: For each region, the values in the arena that it writes.
        late: Regions without dependencies that come as late as possible.
    """
    level: dict[int, int] = {}
    for k in order:
        if k not in late:
            level[k] = 1 + max((level.get(h, 0) for h in needs[k]), default=0)
    for k in order:
        if k not in late:
            for h in needs[k]:
                if h in late:
                    level[h] = min(level.get(h, len(order)), level[k] - 1)
    place = {k: at for at, k in enumerate(order)}
    sooner = sorted(order, key=lambda k: (level.get(k, 0), place[k]))
    most = WAVES_MEMORY * _most_alive(order, reads, writes)
    return sooner if _most_alive(sooner, reads, writes) <= most else list(order)


def _most_alive(order: Sequence[int], reads: Mapping[int, Set[Value]],
                writes: Mapping[int, Collection[Value]]) -> int:
    """The most bytes that values in the arena take at once."""
    last = {v: k for k in order for v in (*writes[k], *reads[k])}
    ending: dict[int, int] = {}
    for v, k in last.items():
        ending[k] = ending.get(k, 0) + v.nbytes
    most = alive = 0
    for k in order:
        alive += sum(v.nbytes for v in writes[k])
        most = max(most, alive)
        alive -= ending.get(k, 0)
    return most


def bounds(reads: Sequence[Iterable[Memory]], writes: Sequence[Iterable[Memory]]
           ) -> list[tuple[int, int]]:
    """For each kernel, the first and the last one of its wave.

    Args:
        reads: What each kernel reads, in order.
        writes: What each kernel writes.

    Examples:
        >>> bounds([["x"], ["x"], ["y"]], [["y"], ["z"], ["w"]])
        [(0, 1), (0, 1), (2, 2)]
    """
    starts: list[int] = []
    read: set[Memory] = set()
    written: set[Memory] = set()
    for k, (kernel_reads, kernel_writes) in enumerate(zip(reads, writes, strict=True)):
        kernel_reads, kernel_writes = {*kernel_reads}, {*kernel_writes}
        if not starts or kernel_reads & written or kernel_writes & (read | written):
            starts.append(k)
            read, written = set(), set()
        read |= kernel_reads
        written |= kernel_writes
    ends = [*(s - 1 for s in starts[1:]), len(reads) - 1]
    return [(s, e) for s, e in zip(starts, ends, strict=False) for _ in range(s, e + 1)]
