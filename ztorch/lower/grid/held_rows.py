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
from ztorch.lower.schedule import GridRowSchedule
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


def sharing_threads(s: GridRowSchedule, element: int, grid: GridLimits) -> int:
    """How many threads share the registers of a compute unit, if those of a workgroup hold a row
    whose elements take `element` registers each; 0: as many as usual. -1: they cannot hold it."""
    ways, registers = s.team_rows * s.team_ways, held_registers(s, element)
    if ways not in HELD_LONG_THREADS or registers <= HELD_REGISTERS:
        return 0 if registers <= HELD_REGISTERS else -1
    alone = min(THREAD_REGISTERS * max(ways, grid.resident_threads) // ways, THREAD_REGISTERS_MOST)
    return ways if registers + HELD_OTHERS <= alone else -1


def held_registers(s: GridRowSchedule, element: int) -> int:
    """Registers in which a thread holds its part of a row."""
    return s.turns_held * s.width * element


def crowding(s: GridRowSchedule, element: int, grid: GridLimits) -> tuple[float, int]:
    """A number that is lower for threads with more room for the row that they hold. Those that
    hold much load single elements: vectors take neighboring registers, which leads to spills."""
    sharing = sharing_threads(s, element, grid)
    crowded = held_registers(s, element) > THREAD_REGISTERS // 2
    return sharing and 1 / sharing, s.width if crowded else -s.width
