"""The time of a workgroup whose producer and consumers share a ring of stages.

A strip is copied as soon as its stage is empty, at most at the workgroup's share of the L2
bandwidth. It is multiplied when it has arrived and the previous strip is done. A stage is empty
again when its products are done. So two kinds of stalls count: those of a ring with too few stages
for the latency, and the end of each tile, when nothing is multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from ztorch.ir.kernel import ASYNC_PRODUCTS, Kernel, matching


@dataclass(frozen=True)
class RingTimes:
    """The cycles of the steps of one workgroup."""

    copy_issue: float  # in which the producer starts the copies of a strip
    latency: float  # from the start of a copy to its arrival
    arrival: float  # least time between the arrivals of two strips from the shared cache
    issue: float  # in which a consumer starts the products of a strip
    products: float  # of a strip, by all consumers


class TileShare(NamedTuple):
    """The strips of a tile that a workgroup multiplies."""

    strips: int
    finish: float  # cycles after the last product, e.g. to store the tile


def ring_cycles(shares: Sequence[TileShare], stages: int, t: RingTimes) -> float:
    """The cycles of tiles, or shares of tiles, one after another.

    >>> far = RingTimes(copy_issue=1, latency=1000, arrival=0, issue=1, products=100)
    >>> [round(ring_cycles([TileShare(1000, 0)], stages, far) / 1000) for stages in (20, 3)]
    [101, 501]
    """
    empty = [0.0] * stages  # times at which the stages become empty
    copied = arrived = consumer = products = 0.0
    before: int | None = None  # stage whose products may still run
    ends = {strips - 1: share.finish for share, strips in zip(
        shares, accumulate(share.strips for share in shares), strict=True)}
    for n in range(sum(share.strips for share in shares)):
        stage = n % stages
        copied = max(copied, empty[stage]) + t.copy_issue
        arrived = max(copied + t.latency, arrived + t.arrival)
        consumer = max(consumer, arrived) + t.issue
        done_before, products = products, max(products, consumer) + t.products
        consumer = max(consumer, done_before)  # it waits for all products but the last
        if before is not None:
            empty[before] = consumer
        before = stage
        if n in ends:
            consumer = max(consumer, products)
            empty[stage], before = consumer, None
            consumer += ends[n]
    return consumer


@dataclass(frozen=True)
class RingPlaces:
    """The positions of the loops of a kernel with roles."""

    copying: int  # the loop in which strips are copied
    tiles: int  # the consumers' loop over tiles
    multiplying: int  # the loop in it in which strips are multiplied


def ring_places(kernel: Kernel, ends: dict[int, int], start: int, middle: int,
                end: int) -> RingPlaces | None:
    """The loops of an `if` whose branches are a producer and its consumers; None for others."""
    def innermost(low: int, high: int, *opcodes: str) -> int | None:
        at = next((k for k in range(low, high) if kernel.body[k].opcode in opcodes), None)
        around = [s for s, e in ends.items() if kernel.body[s].opcode == "loop"
                  and at is not None and low <= s < at < e <= high]
        return max(around, default=None)

    copying = innermost(start, middle, "copy_tile")
    multiplying = innermost(middle, end, *ASYNC_PRODUCTS)
    if copying is None or multiplying is None:
        return None
    around = [s for s, e in ends.items() if kernel.body[s].opcode == "loop"
              and middle < s < multiplying < e]
    return RingPlaces(copying, max(around), multiplying) if around else None


def stages_of(kernel: Kernel) -> int:
    """The number of stages of a kernel's ring, each of which has a barrier for its copies."""
    copy = next(i for i in kernel.body if i.opcode == "copy_tile")
    return kernel.memory(copy.attrs["barriers"]).size


def strip_bytes(kernel: Kernel, within: range) -> float:
    """Bytes of a strip that one workgroup reads from the L2 cache."""
    return float(sum(
        math.prod(i.attrs["box"]) * kernel.memory(i.attrs["source"]).dtype.bytes
        for i in map(kernel.body.__getitem__, within) if i.opcode == "copy_tile"))


def rounds_of(kernel: Kernel, trips: Mapping[int, float]) -> tuple[float, float]:
    """The number of tiles of the first workgroup, and the mean number of all; both are 1 unless
    workgroups loop over tiles, and if they share tiles, so that all have equal work. `trips` are
    the trip counts of the first workgroup's loops."""
    for at, end in matching(kernel.body):
        i = kernel.body[at]
        if i.opcode == "loop" and i.attrs["kind"] == "serial" and any(
                j.opcode == "copy_tile" for j in kernel.body[at:end]) and not i.args[0].is_const:
            return (trips.get(at, 1.0), i.args[1].number / i.args[2].number) if (
                i.args[1].is_const) else (1.0, 1.0)
    return 1.0, 1.0
