"""How long a workgroup takes whose producer and consumers share a ring of stages.

A strip is copied as soon as its stage is empty, at most at the workgroup's share of the L2
bandwidth, and is multiplied when it has arrived and the strip before is done. A stage is empty
again when its products are done. So two kinds of stalls are counted: a ring with too few stages
for the latency, and the end of a tile, during which nothing is multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.ir.kernel import Kernel, matching


@dataclass(frozen=True)
class RingTimes:
    """Cycles of one workgroup."""

    copy_issue: float  # of the producer, for a strip
    latency: float  # from the start of a copy to its arrival
    arrival: float  # between strips at least, as the shared cache delivers them
    issue: float  # of a consumer that starts the products of a strip
    products: float  # of a strip, of all consumers
    finish: float  # of a tile, once its products are done


def ring_cycles(tiles: int, strips: int, stages: int, t: RingTimes) -> float:
    """The cycles of some tiles of some strips each.

    >>> far = RingTimes(copy_issue=1, latency=1000, arrival=0, issue=1, products=100, finish=0)
    >>> round(ring_cycles(1, 1000, 20, far) / 1000), round(ring_cycles(1, 1000, 3, far) / 1000)
    (101, 501)
    """
    empty = [0.0] * stages  # when each stage is
    copied = arrived = consumer = products = 0.0
    before: int | None = None  # stage whose products may still run
    for n in range(tiles * strips):
        stage = n % stages
        copied = max(copied, empty[stage]) + t.copy_issue
        arrived = max(copied + t.latency, arrived + t.arrival)
        consumer = max(consumer, arrived) + t.issue
        done_before, products = products, max(products, consumer) + t.products
        consumer = max(consumer, done_before)  # it waits for all products but the last
        if before is not None:
            empty[before] = consumer
        before = stage
        if n % strips == strips - 1:
            consumer = max(consumer, products)
            empty[stage], before = consumer, None
            consumer += t.finish
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
    def innermost(low: int, high: int, opcode: str) -> int | None:
        at = next((k for k in range(low, high) if kernel.body[k].opcode == opcode), None)
        around = [s for s, e in ends.items() if kernel.body[s].opcode == "loop"
                  and at is not None and low <= s < at < e <= high]
        return max(around, default=None)

    copying = innermost(start, middle, "copy_tile")
    multiplying = innermost(middle, end, "mma_async")
    if copying is None or multiplying is None:
        return None
    around = [s for s, e in ends.items() if kernel.body[s].opcode == "loop"
              and middle < s < multiplying < e]
    return RingPlaces(copying, max(around), multiplying) if around else None


def stages_of(kernel: Kernel) -> int:
    """The stages of a kernel's ring: as many as it has barriers that copies count at."""
    copy = next(i for i in kernel.body if i.opcode == "copy_tile")
    return kernel.memory(copy.attrs["barriers"]).size


def strip_bytes(kernel: Kernel, within: range) -> float:
    """Bytes of a strip that one workgroup reads from the L2 cache."""
    return float(sum(
        math.prod(i.attrs["box"]) * kernel.memory(i.attrs["source"]).dtype.bytes
        for i in map(kernel.body.__getitem__, within) if i.opcode == "copy_tile"))


def rounds_of(kernel: Kernel, trips: Mapping[int, float]) -> tuple[float, float]:
    """Tiles of the first workgroup, and of each on average; both 1 unless workgroups loop over
    tiles. `trips` are the trip counts of the loops of the first workgroup."""
    for at, end in matching(kernel.body):
        i = kernel.body[at]
        if i.opcode == "loop" and i.attrs["kind"] == "serial" and any(
                j.opcode == "copy_tile" for j in kernel.body[at:end]) and not i.args[0].is_const:
            return trips.get(at, 1.0), i.args[1].number / i.args[2].number
    return 1.0, 1.0
