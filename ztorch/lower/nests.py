"""The loop nests that a region can have, and the schedule of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from ztorch.errors import ConfigError, Unsupported, nearest
from ztorch.graph.hints import hints_of
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.limits import Limits
from ztorch.lower import schedule
from ztorch.lower.cpu import contract
from ztorch.lower.cpu.loop_nests import LOOP_NESTS as CPU_NESTS
from ztorch.lower.grid import column_parts
from ztorch.lower.grid.loop_nests import LOOP_NESTS as GRID_NESTS
from ztorch.lower.grid.parts import IN_PARTS
from ztorch.lower.kernel_names import dtype_of
from ztorch.lower.loop_nest import LoopNest
from ztorch.lower.region import Region
from ztorch.lower.schedule import IllegalSchedule, Schedule
from ztorch.lower.schedule_hints import MATRIX_KINDS, Hinted, hinted, with_shared_memory


def propose(region: Region, limits: Limits) -> Hinted:
    """The schedule that the rules propose for a region, changed by the user's hints."""
    hints = hints_of(region.members)
    if hints is None:
        return Hinted(next(proposals(region, limits)))
    unmet, offered = [], None
    if hints.shared_memory and (limits.grid is None or region.kind == "threads"):
        why = ("a processor has no shared memory" if limits.grid is None else
               "the kernel declares its own shared memory")
        unmet.append(f"hint shared_memory={hints.shared_memory} is not followed: {why}")
    elif hints.shared_memory:
        less = with_shared_memory(limits, hints.shared_memory)
        try:
            offered, limits = [*proposals(region, less)], less
        except Unsupported:
            unmet.append(f"hint shared_memory={hints.shared_memory} is not followed: the kernel "
                         "needs more")
    by_kind = {s.kind: s for s in reversed(offered or [*proposals(region, limits)])}
    *_, first = by_kind.values()
    if hints.kind and hints.kind not in schedule.KINDS:
        raise ConfigError(f"the hint kind={hints.kind!r} is no loop nest"
                          f"{nearest(hints.kind, schedule.KINDS)}; this can be "
                          f"{' or '.join(reversed(by_kind))}, and others are "
                          f"{', '.join(sorted(schedule.KINDS.keys() - by_kind))}")
    chosen = by_kind.get(hints.kind or first.kind)
    if chosen is None:
        unmet.append(f"hint kind={hints.kind} is not followed: this can be "
                     f"{' or '.join(reversed(by_kind))}")
    proposal = hinted(chosen or first, hints, vector_lanes(region, limits),
                      partial(_refusal, region, limits))
    return replace(proposal, unmet=(*unmet, *proposal.unmet))


def vector_lanes(region: Region, limits: Limits) -> int:
    """The lanes of a vector, the unit in which the columns of a tile are counted."""
    if region.kind == "contract" and limits.grid is None:
        return contract.lanes_of(region, limits)
    return limits.lanes(dtype_of(region))


def _refusal(region: Region, limits: Limits, s: Schedule) -> str:
    nest = next(nest for nest in nests_of(region, limits) if nest.kind == s.kind)
    return refusal_of(nest, s, region, limits)


def proposals(region: Region, limits: Limits) -> Iterator[Schedule]:
    """The rules' proposals for a region: one per kind of loop nest, the preferred one first."""
    hints = hints_of(region.members)
    nests = sorted(nests_of(region, limits),
                   key=lambda nest: not (nest.gains and nest.gains(region, limits)))
    for nest in nests:
        if hints is not None and hints.tensor_cores is False and nest.kind in MATRIX_KINDS:
            continue
        proposal = nest.propose(region, limits)
        if proposal is not None:
            yield proposal


def by_library(library: str, region: Region, limits: Limits) -> Schedule | None:
    """The schedule by which a library computes a region; None if it cannot."""
    return next((s for s in proposals(region, limits) if s.library == library), None)


def may_have(chosen: Schedule, region: Region, limits: Limits) -> bool:
    """Whether a region can have a schedule."""
    return any(nest.kind == chosen.kind and not refusal_of(nest, chosen, region, limits)
               for nest in nests_of(region, limits))


def checked(from_outside: Schedule | str, region: Region, limits: Limits, name: str) -> Schedule:
    """A schedule given by the user or a tuner. Raises `IllegalSchedule` if the region cannot have
    it."""
    chosen = schedule.parse(from_outside) if isinstance(from_outside, str) else from_outside
    nests = {nest.kind: nest for nest in nests_of(region, limits)}
    if chosen.kind not in nests:
        raise IllegalSchedule(f"{name} cannot have the schedule {chosen!r}: its kinds are "
                              f"{', '.join(nests)}")
    if why := refusal_of(nests[chosen.kind], chosen, region, limits):
        raise IllegalSchedule(f"{name} cannot have the schedule {chosen!r}: {why}")
    return chosen


def refusal_of(nest: LoopNest, s: Schedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    return nest.refusal(s, region, limits) or column_parts.refusal(s, region, limits)


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, chosen: Schedule) -> None:
    """The loop nest of a region by its schedule."""
    [nest] = [nest for nest in nests_of(region, limits) if nest.kind == chosen.kind]
    nest.emit(b, region, memory, target, limits, chosen)


def nests_of(region: Region, limits: Limits) -> tuple[LoopNest, ...]:
    """The loop nests that regions of this kind can have on a machine."""
    if any(v.op is IN_PARTS for v in region.members):
        return GRID_NESTS[IN_PARTS.name]
    return (CPU_NESTS if limits.grid is None else GRID_NESTS)[region.kind]
