"""The order in which kernels run, where their dependencies leave a choice."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Set

from ztorch.graph.value import Value
from ztorch.lower.tuning import LATE_BYTES


def ordered(needs: Mapping[int, Collection[int]], reads: Mapping[int, Set[Value]],
            writes: Mapping[int, Collection[Value]], late: Collection[int] = ()) -> list[int]:
    """The numbers of regions in a topological order that keeps the arena small.

    Of the regions that are ready, one that frees at least as much memory as it takes is next: a
    weight gradient, for instance, is the last reader of the layer's result. Ties are broken by the
    size of the copies that a region reads, such as a transposed input, then by number. Large copies
    of values outside the arena come as late as possible, right before their first reader.

    Args:
        needs: For each region, the regions that must run before it.
        reads: For each region, the values in the arena that it reads.
        writes: For each region, the values in the arena that it writes.
        late: Further regions without dependencies that run right before their first reader.
            Default: `()`.
    """
    late = copies_of(needs, reads, writes, late)
    order = _smallest(needs, reads, writes, {v for k in late for v in writes[k]})
    return _before_readers(order, needs, late) if late else order


def _smallest(needs: Mapping[int, Collection[int]], reads: Mapping[int, Set[Value]],
              writes: Mapping[int, Collection[Value]], copies: set[Value]) -> list[int]:
    """The regions in the order of their ranks, each once those that it needs have run."""
    waiting = {k: set(n) for k, n in needs.items()}
    needed_by: dict[int, list[int]] = {k: [] for k in needs}
    for k, before in needs.items():
        for h in before:
            needed_by[h].append(k)
    readers: dict[Value, set[int]] = {}
    for k, values in reads.items():
        for v in values:
            readers.setdefault(v, set()).add(k)

    def rank(k: int) -> tuple[bool, int, int]:
        freed = sum(v.nbytes for v in reads[k] if len(readers[v]) == 1)
        grows = sum(v.nbytes for v in writes[k]) > freed
        return grows, 0 if grows else sum(v.nbytes for v in copies.intersection(reads[k])), k

    ready = [rank(k) for k, before in waiting.items() if not before]
    heapq.heapify(ready)
    order: dict[int, None] = {}
    while ready:
        *_, k = heapq.heappop(ready)
        if k in order:  # it was pushed again when it became the last reader of a value
            continue
        order[k] = None
        for h in needed_by[k]:
            waiting[h].discard(k)
            if not waiting[h]:
                heapq.heappush(ready, rank(h))
        for v in reads[k]:
            readers[v].discard(k)
            if len(readers[v]) == 1:
                [last] = readers[v]
                if not waiting[last] and last not in order:
                    heapq.heappush(ready, rank(last))
    return list(order)


def copies_of(needs: Mapping[int, Collection[int]], reads: Mapping[int, Set[Value]],
              writes: Mapping[int, Collection[Value]], late: Collection[int]) -> set[int]:
    """The regions of `late`, and large copies of values outside the arena."""
    return {*late} | {k for k in needs if not needs[k] and not reads[k]
                      and sum(v.nbytes for v in writes[k]) >= LATE_BYTES}


def _before_readers(order: list[int], needs: Mapping[int, Collection[int]],
                    late: set[int]) -> list[int]:
    """The order with each region of `late` moved right before the first region that needs it."""
    moved: dict[int, None] = {}

    def place(k: int) -> None:
        for h in sorted(late.intersection(needs[k]) - moved.keys(),
                        key=lambda h: (not needs[h], h)):
            place(h)
        moved[k] = None

    for k in order:
        if k not in late:
            place(k)
    return list(moved | dict.fromkeys(order))


def bits(numbers: int) -> Iterator[int]:
    """The numbers in a bit set.

    >>> list(bits(0b1010))
    [1, 3]
    """
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest
