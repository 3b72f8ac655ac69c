"""The loop nests that a region can have, and the schedule of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ztorch.errors import Unsupported
from ztorch.graph.hints import hints_of
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.limits import Limits
from ztorch.lower import (
    contract,
    correlation,
    elements,
    grid_attention,
    grid_attention_matrix,
    grid_attention_role_tiles,
    grid_attention_roles,
    grid_attention_tiles,
    grid_contract,
    grid_elements,
    grid_recurring,
    grid_role_tiles,
    grid_roles,
    grid_rows,
    grid_tiles,
    grid_transpose,
    grid_window_tiles,
    grid_windows,
    recurring,
    rows,
    scatter_add,
    schedule,
    sliding_windows,
    thread_blocks,
    transpose,
    winograd_nest,
)
from ztorch.lower.kernel_names import dtype_of
from ztorch.lower.region import Region
from ztorch.lower.schedule import IllegalSchedule, Schedule
from ztorch.lower.schedule_hints import MATRIX_KINDS, Hinted, hinted, with_shared_memory

Emit = Callable[[Builder, Region, Mapping[Value, str], Mapping[Value, str], Limits, Any], None]


@dataclass(frozen=True)
class LoopNest:
    """One kind of loop nest."""

    kind: str  # of its schedules
    propose: Callable[[Region, Limits], Schedule | None]  # None: not for this region
    refusal: Callable[[Any, Region, Limits], str]  # why a schedule is illegal; empty: it is legal
    emit: Emit  # writes the loop nest


# By the kind of the region and whether the machine is a grid; preferred loop nests come first.
NESTS: dict[tuple[str, bool], tuple[LoopNest, ...]] = {
    ("map", False): (
        LoopNest("transpose", transpose.propose, transpose.refusal, transpose.emit),
        LoopNest("elements", elements.propose, elements.refusal, elements.emit)),
    ("reduce", False): (
        LoopNest("correlation", correlation.propose, correlation.refusal, correlation.emit),
        LoopNest("sliding", sliding_windows.propose, sliding_windows.refusal,
                 sliding_windows.emit),
        LoopNest("rows", rows.propose, rows.refusal, rows.emit)),
    ("contract", False): (
        LoopNest("product", contract.propose, contract.refusal, contract.emit),),
    ("winograd", False): (LoopNest("winograd", winograd_nest.propose, winograd_nest.refusal,
                                   winograd_nest.emit),),
    ("scatter", False): (
        LoopNest("scatter", scatter_add.propose, scatter_add.refusal, scatter_add.emit),),
    ("recurrence", False): (
        LoopNest("recurrence", recurring.propose, recurring.refusal, recurring.emit),),
    ("recurrence", True): (LoopNest("grid_recurrence", grid_recurring.propose,
                                    grid_recurring.refusal, grid_recurring.emit),),
    **{("threads", grid): (LoopNest("threads", thread_blocks.propose, thread_blocks.refusal,
                                    thread_blocks.emit),) for grid in (False, True)},
    ("map", True): (
        LoopNest("grid_transpose", grid_transpose.propose, grid_transpose.refusal,
                 grid_transpose.emit),
        LoopNest("grid_elements", grid_elements.propose, grid_elements.refusal,
                 grid_elements.emit)),
    ("reduce", True): (
        LoopNest("grid_rows", grid_rows.propose, grid_rows.refusal, grid_rows.emit),),
    ("attention", True): (
        LoopNest("grid_attention_roles", grid_attention_role_tiles.propose,
                 grid_attention_role_tiles.refusal, grid_attention_roles.emit),
        LoopNest("grid_attention_matrix", grid_attention_tiles.propose,
                 grid_attention_tiles.refusal, grid_attention_matrix.emit),
        LoopNest("grid_attention", grid_attention.propose, grid_attention.refusal,
                 grid_attention.emit)),
    ("contract", True): (
        LoopNest("grid_roles", grid_role_tiles.propose, grid_role_tiles.refusal,
                 grid_roles.emit),
        LoopNest("grid_windows", grid_window_tiles.propose, grid_window_tiles.refusal,
                 grid_windows.emit),
        LoopNest("grid_async", grid_tiles.propose_async, grid_tiles.refusal_async,
                 grid_contract.emit_async),
        LoopNest("grid_matrix", grid_tiles.propose_matrix, grid_tiles.refusal_matrix,
                 grid_contract.emit_matrix),
        LoopNest("grid_product", grid_tiles.propose, grid_tiles.refusal,
                 grid_contract.emit)),
}


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
    known = {s.kind: s for s in reversed(offered or [*proposals(region, limits)])}
    *_, first = known.values()
    chosen = known.get(hints.kind or first.kind)
    if chosen is None:
        unmet.append(f"hint kind={hints.kind} is not followed: this can be "
                     f"{' or '.join(reversed(known))}")
    made = hinted(chosen or first, hints, vector_lanes(region, limits),
                  partial(_refusal, region, limits))
    return replace(made, unmet=(*unmet, *made.unmet))


def vector_lanes(region: Region, limits: Limits) -> int:
    """The lanes of a vector, the unit in which the columns of a tile are counted."""
    if region.kind == "contract" and limits.grid is None:
        return contract.lanes_of(region, limits)
    return limits.lanes(dtype_of(region))


def _refusal(region: Region, limits: Limits, s: Schedule) -> str:
    nest = next(nest for nest in _nests(region, limits) if nest.kind == s.kind)
    return nest.refusal(s, region, limits)


def proposals(region: Region, limits: Limits) -> Iterator[Schedule]:
    """The rules' proposals for a region: one per kind of loop nest, the preferred one first."""
    hints = hints_of(region.members)
    for nest in _nests(region, limits):
        if hints is not None and hints.tensor_cores is False and nest.kind in MATRIX_KINDS:
            continue
        proposal = nest.propose(region, limits)
        if proposal is not None:
            yield proposal


def may_have(chosen: Schedule, region: Region, limits: Limits) -> bool:
    """Whether a region can have a schedule."""
    return any(nest.kind == chosen.kind and not nest.refusal(chosen, region, limits)
               for nest in _nests(region, limits))


def checked(from_outside: Schedule | str, region: Region, limits: Limits, name: str) -> Schedule:
    """A schedule given by the user or a tuner. Raises `IllegalSchedule` if the region cannot have
    it."""
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
