"""Elementwise regions on a grid: a thread for each element, or for a few neighbours."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.elements import merged_axes
from ztorch.lower.emit import Emitter
from ztorch.lower.grid import (
    along,
    can_be_wide,
    power_of_two,
    threads,
    usual_width,
    where,
    width_refusal,
    workgroups,
)
from ztorch.lower.in_place_updates import at_position, entry_axes, write
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import evaluate, spread
from ztorch.lower.positions import flatten
from ztorch.lower.region import Region
from ztorch.lower.schedule import GridElementSchedule
from ztorch.lower.tuning import GROUP_THREADS


def propose(region: Region, limits: Limits) -> GridElementSchedule:
    """Several neighbours for each thread if they can be loaded at once and enough threads remain.
    One if the driver's compiler makes vectors of neighbouring threads, since their elements must
    then be neighbours."""
    grid = limits.grid
    assert grid is not None
    axes, full = _axes(region)
    n = 1 if grid.implicit_simd else usual_width(region, grid)
    width = n if can_be_wide(region, full, axes[-1], n) else 1
    threads_wanted = min(GROUP_THREADS, grid.threads, power_of_two(region.size // width))
    return GridElementSchedule(threads_wanted, width)


def refusal(s: GridElementSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    grid = limits.grid
    assert grid is not None
    axes, full = _axes(region)
    if not 1 <= s.threads <= grid.threads:
        return f"threads({s.threads}) must be between 1 and {grid.threads}"
    return width_refusal(s.width, grid, can_be_wide(region, full, axes[-1], s.width))


def _axes(region: Region) -> tuple[list[Var], dict[Var, Index]]:
    """A loop for each axis, and the position of the loops in the region."""
    axes = [Var(f"d{k}", n) for k, n in enumerate(merged_axes(region))] or [Var("d", 1)]
    flat = flatten([Index.of(v) for v in axes], [v.extent for v in axes])
    return axes, {region.outer: flat}


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridElementSchedule) -> None:
    """All elements, each by one thread."""
    assert limits.grid is not None
    if region.in_place:
        _entries(b, region, memory, target, limits.grid, s)
        return
    axes, full = _axes(region)
    size = region.size // s.width
    groups = math.ceil(size / s.threads)
    # the block loop is outermost, so that a workgroup's iterations are a loop of each thread
    with workgroups(b, groups, limits.grid) as g, threads(b, s.threads) as t:
        at = b.add(b.mul(g, s.threads), t)
        with where(b, b.lt(at, size) if size % s.threads else None):
            e = along(Emitter(b, memory, members=region.flat), at, axes, s.width)
            evaluate(e, region.members, region, full, target)


def _entries(b: Builder, region: Region, memory: Mapping[Value, str],
             target: Mapping[Value, str], grid: GridLimits, s: GridElementSchedule) -> None:
    """Every entry that is written in place, each by one thread."""
    axes = entry_axes(region)
    size = math.prod(v.extent for v in axes)
    with workgroups(b, math.ceil(size / s.threads), grid) as g, threads(b, s.threads) as t:
        at = b.add(b.mul(g, s.threads), t)
        with where(b, b.lt(at, size)):
            e = Emitter(b, memory)
            e = e.within(bound=spread(e, at, axes))
            with at_position(e, region, axes) as place:
                write(e, region, axes, place, target[region.members[0]])
