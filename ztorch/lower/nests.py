"""Which loop nests there are for a region, and which schedule each of them takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.limits import Limits
from ztorch.lower import (
    contract,
    elements,
    grid_contract,
    grid_elements,
    grid_recurring,
    grid_rows,
    grid_tiles,
    recurring,
    rows,
    schedule,
    sliding,
    transpose,
)
from ztorch.lower.region import Region
from ztorch.lower.schedule import IllegalSchedule, Schedule

Emit = Callable[[Builder, Region, Mapping[Value, str], Mapping[Value, str], Limits, Any], None]


@dataclass(frozen=True)
class LoopNest:
    """One way to compute a region."""

    kind: str  # of its schedules
    propose: Callable[[Region, Limits], Schedule | None]  # None: not for this region
    refusal: Callable[[Any, Region, Limits], str]  # why a region cannot have one; empty: it can
    emit: Emit


# By the kind of the region, and whether the machine is a grid; the preferred ones first.
NESTS: dict[tuple[str, bool], tuple[LoopNest, ...]] = {
    ("map", False): (
        LoopNest("transpose", transpose.propose, transpose.refusal, transpose.emit),
        LoopNest("elements", elements.propose, elements.refusal, elements.emit)),
    ("reduce", False): (
        LoopNest("sliding", sliding.propose, sliding.refusal, sliding.emit),
        LoopNest("rows", rows.propose, rows.refusal, rows.emit)),
    ("contract", False): (
        LoopNest("product", contract.propose, contract.refusal, contract.emit),),
    ("recurrence", False): (
        LoopNest("recurrence", recurring.propose, recurring.refusal, recurring.emit),),
    ("recurrence", True): (LoopNest("grid_recurrence", grid_recurring.propose,
                                    grid_recurring.refusal, grid_recurring.emit),),
    ("map", True): (LoopNest("grid_elements", grid_elements.propose, grid_elements.refusal,
                             grid_elements.emit),),
    ("reduce", True): (
        LoopNest("grid_rows", grid_rows.propose, grid_rows.refusal, grid_rows.emit),),
    ("contract", True): (
        LoopNest("grid_async", grid_tiles.propose_async, grid_tiles.refusal_async,
                 grid_contract.emit_async),
        LoopNest("grid_matrix", grid_tiles.propose_matrix, grid_tiles.refusal_matrix,
                 grid_contract.emit_matrix),
        LoopNest("grid_product", grid_tiles.propose, grid_tiles.refusal,
                 grid_contract.emit)),
}


def propose(region: Region, limits: Limits) -> Schedule:
    """The schedule that the rules give a region."""
    for nest in _nests(region, limits):
        proposal = nest.propose(region, limits)
        if proposal is not None:
            return proposal
    raise AssertionError(f"no loop nest computes a region of kind {region.kind}")


def checked(from_outside: Schedule | str, region: Region, limits: Limits, name: str) -> Schedule:
    """A schedule from outside, if the region can have it; else an error that says why not."""
    chosen = schedule.parse(from_outside) if isinstance(from_outside, str) else from_outside
    nests = {nest.kind: nest for nest in _nests(region, limits)}
    if chosen.kind not in nests:
        raise IllegalSchedule(f"{name} cannot have the schedule {chosen!r}: its kinds are "
                              f"{', '.join(nests)}")
    if why := nests[chosen.kind].refusal(chosen, region, limits):
        raise IllegalSchedule(f"{name} cannot have the schedule {chosen!r}: {why}")
    return chosen


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, chosen: Schedule) -> None:
    """The loop nest of a region by its schedule."""
    [nest] = [nest for nest in _nests(region, limits) if nest.kind == chosen.kind]
    nest.emit(b, region, memory, target, limits, chosen)


def _nests(region: Region, limits: Limits) -> tuple[LoopNest, ...]:
    return NESTS[region.kind, limits.grid is not None]
