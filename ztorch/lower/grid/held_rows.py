"""Rows that threads hold in registers between the passes of a reduction: the registers that this
takes, and those that a thread has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ztorch.dtypes import boolean, i32
from ztorch.graph.value import Value
from ztorch.ir.limits import GridLimits
from ztorch.lower.index import Index
from ztorch.lower.reduction import Phases
from ztorch.lower.region import Region, real_reads
from ztorch.lower.schedule import GridRowSchedule
from ztorch.lower.tuning import (
    HELD_LONG_THREADS,
    HELD_MOST,
    HELD_OTHERS,
    HELD_REGISTERS,
    THREAD_REGISTERS,
    THREAD_REGISTERS_MOST,
)


class Handed(NamedTuple):
    """A value of each element that a pass hands to later ones."""

    value: Value
    at: Index  # its place in terms of the region's loops
    first: int  # the pass in which it is computed or loaded
    last: int  # the last one that uses it


def handed_values(region: Region) -> list[Handed]:
    """The values of an element that passes hand to later ones. Conditions are computed again."""
    first: dict[tuple[Value, Index], int] = {}
    last: dict[tuple[Value, Index], int] = {}
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
    return [Handed(v, at, first[v, at], p) for (v, at), p in last.items()
            if v.dtype is not boolean and first[v, at] < p]


def element_size(values: Sequence[Handed], bytes_each: int) -> int:
    """The most that the values of one element take at a time, each a multiple of so many bytes."""
    return max((sum(math.ceil(h.value.dtype.bytes / bytes_each) for h in values
                    if h.first < p <= h.last) for p in {h.last for h in values}), default=0)


def element_registers(region: Region) -> int:
    """32-bit registers for the values of one element that passes hand to later ones."""
    return element_size(handed_values(region), i32.bytes)


def sharing_threads(s: GridRowSchedule, element: int, grid: GridLimits) -> int:
    """How many threads share the registers of a compute unit, if those of a workgroup hold turns
    whose elements take `element` registers each; 0: as many as usual. -1: they cannot hold them."""
    ways, registers = s.team_rows * s.team_ways, s.turns_held * s.width * element
    if registers <= HELD_REGISTERS:
        return 0
    return ways if ways in HELD_LONG_THREADS and registers <= _alone(ways, grid) else -1


def held_turns(turns: int, ways: int, registers: int, grid: GridLimits) -> int:
    """How many of a row's turns a team of `ways` threads holds, if each takes `registers` of a
    thread: all of them or, of a workgroup that is alone on a unit whose registers are known, as
    many as it can; 0: none."""
    if turns * registers <= HELD_REGISTERS:
        return turns
    room = _alone(ways, grid) // registers if ways in HELD_LONG_THREADS else 0
    return turns if turns <= room else room if grid.resident_threads else 0


def _alone(ways: int, grid: GridLimits) -> int:
    """The registers in which a thread of a workgroup that is alone on a compute unit can hold
    turns."""
    own = min(THREAD_REGISTERS * max(ways, grid.resident_threads) // ways, THREAD_REGISTERS_MOST)
    return min(own - HELD_OTHERS, HELD_MOST)


def crowding(s: GridRowSchedule, element: int, grid: GridLimits) -> tuple[float, int]:
    """A number that is lower for threads with more room for the row that they hold. Those that
    hold much load single elements: vectors take neighboring registers, which leads to spills."""
    sharing = sharing_threads(s, element, grid)
    crowded = s.turns_held * s.width * element > THREAD_REGISTERS // 2
    return sharing and 1 / sharing, s.width if crowded else -s.width
