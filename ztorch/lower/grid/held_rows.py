"""Rows that threads hold in registers between the passes of a reduction: the registers that this
takes, and those that a thread has."""

from __future__ import annotations

import math

from ztorch.dtypes import DType, boolean, i32
from ztorch.graph.value import Value
from ztorch.ir.limits import GridLimits
from ztorch.lower.index import Index
from ztorch.lower.reduction import Phases
from ztorch.lower.region import Region, real_reads
from ztorch.lower.tuning import (
    HELD_LONG_THREADS,
    HELD_OTHERS,
    HELD_REGISTERS,
    THREAD_REGISTERS,
    THREAD_REGISTERS_MOST,
)


def element_registers(region: Region) -> int:
    """32-bit registers for the values of one element that passes hand to later ones. Conditions
    are computed again."""
    first: dict[tuple[Value, Index], int] = {}  # the pass in which a value is computed or loaded
    last: dict[tuple[Value, Index], int] = {}  # the last one that uses it
    for p, stores, sums in Phases(region).passes(region.stores):
        pending = [(v, region.flat[v]) for v in stores]
        pending += [read for v in sums for read in real_reads(v, region.index(v))]
        while pending:
            v, at = pending.pop()
            if not at.mentions(region.inner):
                continue  # once per row
            if (v, at) not in first:
                first[v, at] = p
                pending += real_reads(v, region.index(v)) if v in region.flat else ()
            last[v, at] = p
    ends = set(last.values())
    return max((sum(_registers_of(v.dtype) for v, at in last if first[v, at] < p <= last[v, at])
                for p in ends), default=0)


def _registers_of(d: DType) -> int:
    return 0 if d is boolean else math.ceil(d.bits / i32.bits)


def sharing_threads(ways: int, registers: int, grid: GridLimits) -> int:
    """How many threads share the registers of a compute unit, if those of a workgroup of `ways`
    threads hold a row in so many registers; 0: as many as usual. -1: they cannot hold it."""
    if ways not in HELD_LONG_THREADS or registers <= HELD_REGISTERS:
        return 0 if registers <= HELD_REGISTERS else -1
    alone = min(THREAD_REGISTERS * max(ways, grid.resident_threads) // ways, THREAD_REGISTERS_MOST)
    return ways if registers + HELD_OTHERS <= alone else -1
