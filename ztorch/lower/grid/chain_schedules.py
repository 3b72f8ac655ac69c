"""Schedules of the parts of a chain: all have equally many threads, on few workgroups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ztorch.ir.limits import Limits
from ztorch.lower import nests
from ztorch.lower.grid.held_rows import element_registers, held_turns
from ztorch.lower.grid.rows import counts
from ztorch.lower.grid.teams import grid_axes
from ztorch.lower.region import Region
from ztorch.lower.schedule import GridElementSchedule, GridRowSchedule, Schedule
from ztorch.lower.tuning import CHAIN_ELEMENT, CHAIN_LEVEL, CHAIN_SECTOR, GROUP_THREADS

KINDS = ("grid_rows", "grid_elements")  # of the schedules that parts can have


def part_schedule(region: Region, limits: Limits, groups: int) -> Schedule | None:
    """The schedule of a region as a part of a chain of so many workgroups; None if it has none."""
    proposal = nests.propose(region, limits).schedule
    if proposal.kind not in KINDS:
        return None
    if isinstance(proposal, GridElementSchedule):
        whole = replace(proposal, threads=GROUP_THREADS, width=1)
        return whole if nests.may_have(whole, region, limits) else None
    assert isinstance(proposal, GridRowSchedule)
    timed = [(_cycles(s, region, limits, groups), s) for s in _teams(region, limits)
             if nests.may_have(s, region, limits)]
    return min(timed, key=lambda pair: pair[0], default=(0.0, None))[1]


def elements_of(region: Region) -> int:
    """The elements that the threads of a part read and compute with."""
    axes = grid_axes(region) if region.kind == "reduce" else None
    return math.prod(counts(axes, 1)) if axes else region.size


def _teams(region: Region, limits: Limits) -> Iterator[GridRowSchedule]:
    grid, axes = limits.grid, grid_axes(region)
    assert grid is not None
    ways = 1
    while ways <= GROUP_THREADS:
        for width in dict.fromkeys((grid.load_width, 1)):
            turns = math.ceil(counts(axes, width)[1] / ways)
            held = held_turns(turns, ways, width * element_registers(region), grid)
            for some in dict.fromkeys((held if held == turns else 0, 0)):
                yield GridRowSchedule(GROUP_THREADS // ways, ways, width, some)
        ways *= 2


def _cycles(s: GridRowSchedule, region: Region, limits: Limits, groups: int) -> float:
    """The time of a thread's share of a reduction, and of the exchange of partial results."""
    grid, axes = limits.grid, grid_axes(region)
    assert grid is not None
    results, columns = counts(axes, s.width)
    rounds = math.ceil(results / s.team_rows / groups)
    share = math.ceil(columns / s.team_ways) * (1 + s.width)
    near = 1 if axes.by_columns else min(s.team_ways, grid.subgroup or 1)
    levels = math.log2(s.team_ways // near) + (near > 1)
    across = s.team_rows * s.width * region.members[0].dtype.bytes
    narrow = axes.by_columns and across < CHAIN_SECTOR
    return rounds * (share * CHAIN_ELEMENT * (1 + narrow) + levels * CHAIN_LEVEL) + (
        not s.turns_held)
