"""The lanes of vectors in schedules for a processor."""

from __future__ import annotations

from collections.abc import Sequence

from ztorch.ir.halves import HALVES
from ztorch.ir.limits import Limits
from ztorch.lower.index import Index, Var
from ztorch.lower.insets import INTERLEAVED
from ztorch.lower.loops import widest
from ztorch.lower.region import Region
from ztorch.lower.tuning import (
    ELEMENT_VECTORS,
    LONG_ELEMENT,
    LONG_ROW_VECTORS,
    LONG_WIDE_ELEMENT,
    SHORTEST_VECTOR,
)


def lanes_that_fit(extent: int, lanes: int) -> int:
    """All lanes, or half or a quarter of them where these hold so many elements.

    >>> [lanes_that_fit(n, 16) for n in (100, 9, 8, 5, 4, 1)]
    [16, 16, 8, 8, 4, 4]
    """
    while lanes > SHORTEST_VECTOR and extent <= lanes // 2:
        lanes //= 2
    return lanes


def lanes_refusal(lanes: int, most: int) -> str:
    """Why loops cannot have this many lanes; empty if they can."""
    if not 1 <= lanes <= most or lanes & (lanes - 1):
        return f"lanes({lanes}) must be a power of two, {most} at most on this target"
    return ""


def vectors_abreast(region: Region, places: Sequence[Index], column: Var, limits: Limits) -> int:
    """Vectors that are computed side by side, instruction by instruction: a processor looks too few
    instructions ahead to find the next vector's behind a long chain of those of one.

    Args:
        region: The region.
        places: The positions that it reads or computes with, in terms of the loops.
        column: The loop that lanes run along.
        limits: Those of the processor.
    """
    lanes = limits.lanes(widest(region))
    slots = sum(v.op.cost for v in region.members)
    if lanes == 1 or slots < LONG_ELEMENT or region.in_place or widest(region) in HALVES:
        return 1
    results = sum(len(v.args) for v in region.members if v.op is INTERLEAVED)
    if any(not at.is_affine or at.factor(column) not in (0, 1) for at in places):
        return 1  # lanes that are read one by one, or whose indices fill registers
    wide = limits.vector_bits > limits.processor.port_bits and slots < LONG_WIDE_ELEMENT
    vectors = -(-column.extent // lanes) if wide else column.extent // lanes
    return next(n for n in (ELEMENT_VECTORS, 2, 1) if n == 1 or (n * results < (
        limits.vector_registers) and (vectors % n == 0 or vectors >= LONG_ROW_VECTORS * n)))
