"""Recurrences on a grid: a thread an element."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.recurring import Iterations, recurrence_axes
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.workgroups import power_of_two, threads, where, workgroups
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import spread
from ztorch.lower.positions import flatten
from ztorch.lower.region import Region
from ztorch.lower.schedule import GridRecurrenceSchedule
from ztorch.lower.tuning import GROUP_THREADS


def propose(region: Region, limits: Limits) -> GridRecurrenceSchedule:
    """Workgroups of the usual size."""
    assert limits.grid is not None
    return GridRecurrenceSchedule(
        min(GROUP_THREADS, limits.grid.threads, power_of_two(region.size)))


def refusal(s: GridRecurrenceSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    assert limits.grid is not None
    if not 1 <= s.threads <= limits.grid.threads:
        return f"threads({s.threads}) must be between 1 and {limits.grid.threads}"
    return ""


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridRecurrenceSchedule) -> None:
    """All elements, each by one thread."""
    assert limits.grid is not None
    axes = [Var(f"d{k}", n) for k, n in enumerate(recurrence_axes(region))]
    outer = flatten([Index.of(v) for v in axes], [v.extent for v in axes])
    iterations = Iterations(region, outer, target)
    groups = math.ceil(region.size / s.threads)
    with workgroups(b, groups, limits.grid) as g, threads(b, s.threads) as t:
        at = b.add(b.mul(g, s.threads), t)
        with where(b, b.lt(at, region.size) if region.size % s.threads else None):
            e = Emitter(b, iterations.memory(memory))
            iterations.emit([e.within(bound=spread(e, at, axes))])
