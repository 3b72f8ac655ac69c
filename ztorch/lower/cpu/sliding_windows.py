"""Sums over sliding windows on a processor: depthwise convolutions and pooling.

Neighboring results along a row of an image read mostly the same elements. Several of them are
computed together, one vector of channels each: an element is loaded once for all windows that
contain it, and a weight once for all results that use it. Padding around images is not stored:
loops over a window skip its rows; results whose windows cross its columns have separate code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.ir.opcodes import identity
from ztorch.lower.cpu.lanes import lanes_refusal, lanes_that_fit
from ztorch.lower.cpu.left_operand import Run
from ztorch.lower.cpu.window_edges import Edges, all_inside, edges_of, overlap, runs
from ztorch.lower.cpu.window_prefetch import NextRow
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import (
    added,
    evaluate,
    side_by_side,
    spread,
    summing,
    widest,
)
from ztorch.lower.positions import unflatten
from ztorch.lower.reduction import Phases, axes_of
from ztorch.lower.region import Region, real_reads, view_of
from ztorch.lower.schedule import SlidingSchedule
from ztorch.lower.tuning import (
    SLIDING_BORDERS,
    SLIDING_PAIRS,
    SLIDING_REGISTERS,
    SLIDING_VALUES,
)


@dataclass(frozen=True)
class _Axes:
    """The loops of a region that sums windows."""

    rows: list[Var]  # over results, without the last two axes
    across: Var  # over neighboring results whose windows overlap
    column: Var  # over channels, which are contiguous
    inner: list[Var]  # over the window, without its last axis
    last: Var  # over the last axis of the window
    full: dict[Var, Index]  # the region's two loop variables in terms of these loops
    step: int  # stride in elements from one result's window to the next
    gap: int  # stride in elements within a window
    image: tuple[Value, Index]  # what windows are of, and the position of an element
    edges: Edges = ()  # borders of images that windows cross

    def inside(self, at: dict[Var, Index]) -> bool | None:
        """Whether elements at these columns are inside the image; None if only some are."""
        return all_inside([edge for edge in self.edges if edge.at.mentions(self.across)], at)

    def runs(self, places: int) -> Iterator[Run]:
        """Groups of neighboring results. Results at a border form groups of one."""
        return runs(self.across.extent, places, lambda at: self.inside({self.across: at}))


def _axes(region: Region) -> _Axes | None:
    """The loops of a region that only reduces overlapping windows; None for any other region."""
    axes = axes_of(region)
    if not axes.by_columns or len(axes.outer) < 2 or not axes.inner or Phases(region).count != 2:
        return None
    *rows, across, column = axes.outer
    *inner, last = axes.inner
    if any(not region.is_row(v) and v.op.kind != "reduce" for v in region.stores):
        return None
    edges = _edges(region, axes.full, (across, last), inner)
    if edges is None:
        return None
    for source, flat in read_for_sums(region):
        at = flat.replace(axes.full)
        if source not in region.flat and at.is_affine and overlap(at, across, last) and (
                at.factor(column) == 1):
            step, gap = at.factor(across), at.factor(last)
            return _Axes(rows, across, column, inner, last, axes.full, step, gap,
                         (source, at), edges)
    return None


def _edges(region: Region, full: dict[Var, Index], columns: tuple[Var, Var],
           inner: Sequence[Var]) -> Edges | None:
    """The image axes on which windows cross a border, one per loop over a window; None if loops
    cannot skip the border."""
    edges = edges_of(region, full)
    across, last = columns
    for loop in (last, *inner):
        mine = [edge for edge in edges if edge.at.mentions(loop)]
        others = [v for edge in mine for v in (across, last, *inner)
                  if v != loop and edge.at.mentions(v)]
        if len(mine) > 1 or any(edge.at.factor(loop) < 1 or not edge.at.is_affine for edge in mine
                                ) or others != ([across] if mine and loop == last else []):
            return None
    all_move = all(any(edge.at.mentions(loop) for loop in (last, *inner)) for edge in edges)
    return edges if all_move else None


def read_for_sums(region: Region) -> list[tuple[Value, Index]]:
    """The values that are read for an element of a window, with positions."""
    sources: list[tuple[Value, Index]] = []
    for v in region.members:
        if v.op.kind == "reduce":
            base = view_of(v.args[0], unflatten(region.full, v.args[0].shape))
            sources += [base] if base else []
        elif not region.is_row(v):
            sources += real_reads(v, unflatten(region.flat[v], v.shape))
    return sources


def propose(region: Region, limits: Limits) -> SlidingSchedule | None:
    """All lanes, and as many results together as registers can hold sums for."""
    lanes = limits.lanes(widest(region))
    axes = _axes(region) if lanes > 1 and region.axes else None
    places = _most_places(axes, region, limits) if axes else 0
    if axes is None or places <= 1 or _border_groups(axes, places) > SLIDING_BORDERS:
        return None
    return SlidingSchedule(lanes_that_fit(axes.column.extent, lanes), places)


def _border_groups(axes: _Axes, places: int) -> int:
    """Groups of results that have separate code."""
    return sum(run.count == 1 for run in axes.runs(places)) if axes.edges else 0


def _most_places(axes: _Axes, region: Region, limits: Limits) -> int:
    sums = sum(v.op.kind == "reduce" for v in region.members)
    return min(axes.across.extent, SLIDING_PAIRS // axes.last.extent,
               int(limits.vector_registers * SLIDING_REGISTERS) // sums,
               SLIDING_VALUES // len(region.members))


def refusal(s: SlidingSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    if why := lanes_refusal(s.lanes, limits.lanes(widest(region))):
        return why
    axes = _axes(region) if s.lanes > 1 else None
    if axes is None:
        return "it sums no overlapping windows, or has one lane"
    most = _most_places(axes, region, limits)
    if not 1 <= s.places <= most:
        return f"places({s.places}) must be between 1 and {most}"
    groups = _border_groups(axes, s.places)
    return "" if groups <= SLIDING_BORDERS else (
        f"{groups} groups at borders would need separate code, at most {SLIDING_BORDERS} may")


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: SlidingSchedule) -> None:
    """All results. Workers share the groups of neighbors."""
    axes = _axes(region)
    assert axes is not None
    e = Emitter(b, memory, members=region.flat)
    for run in axes.runs(s.places):
        group = Var("g", run.count)
        shared = [*axes.rows, group]
        with b.loop(0, prod(v.extent for v in shared), kind="parallel") as r:
            bound = spread(e, r, shared)
            for [scope] in side_by_side(e.within(bound=bound), axes.column, s.lanes, False, 1):
                _Neighbors(region, target, limits, axes, run, group).results(scope)


class _Neighbors:
    """Neighboring results for one vector of channels."""

    def __init__(self, region: Region, target: Mapping[Value, str], limits: Limits, axes: _Axes,
                 run: Run, group: Var):
        self.region, self.target, self.limits, self.axes = region, target, limits, axes
        self.where = [Index.of(group) * run.size + run.start + j for j in range(run.size)]
        self.sums = [v for v in region.members if v.op.kind == "reduce"]
        row = axes.rows[-1] if axes.rows else None
        self.next_row = NextRow(region, target, axes.image, row, axes.inner, limits)

    def results(self, e: Emitter) -> None:
        b, axes = e.b, self.axes
        lanes = e.lanes if e.lane else 1
        self._prefetch(e)
        variables = {(v, j): b.var(summing(v.dtype), lanes, identity(v.op.opcode, v.dtype))
                     for v in self.sums for j in range(len(self.where))}
        # Pairs that read the same element are adjacent.
        pairs = sorted(((j, k) for j in range(len(self.where)) for k in range(axes.last.extent)),
                       key=lambda pair: (pair[0] * axes.step + pair[1] * axes.gap, pair[1]))
        pairs = [(j, k) for j, k in pairs if axes.inside(self._columns(j, k)) is not False]
        with ExitStack() as loops:
            counters = {v: loops.enter_context(b.loop(*self._places(e, v))) for v in axes.inner}
            inside = e.within(bound={**e.bound, **counters}, borderless=bool(axes.edges))
            totals = {key: b.get(variable) for key, variable in variables.items()}
            for j, k in pairs:
                scope = replace(inside, here=dict(inside.here))  # shares the loaded values
                for v in self.sums:
                    totals[v, j] = added(scope, self.region, self.limits, v, self._full(j, k),
                                         totals[v, j])
            for key, variable in variables.items():
                b.set(variable, totals[key])
        inner = e.within()
        rows = Phases(self.region).rows(self.target)
        for j in range(len(self.where)):
            scope = replace(inner, here=dict(inner.here))
            for v in self.sums:
                scope.here[v] = b.cast(b.get(variables[v, j]), dtype=v.dtype)
            evaluate(scope, rows, self.region, self._full(j, 0), self.target)

    def _prefetch(self, e: Emitter) -> None:
        """Prefetches for the next row. Each result has its own part of the columns."""
        extent, places = self.axes.last.extent, range(len(self.where))
        own = max(1, min(extent, self.axes.step // self.axes.gap))
        first = (extent - own + 1) // 2
        self.next_row.prefetch(e, [self._columns(j, k) for j in places
                                   for k in range(first, min(first + own, extent))],
                               [self._full(j, 0) for j in places])

    def _places(self, e: Emitter, v: Var) -> tuple[Operand | int, Operand | int]:
        """The range of a loop over the window that is inside the image."""
        b = e.b
        start: Operand | int = 0
        stop: Operand | int = v.extent
        for edge in self.axes.edges:
            if factor := edge.at.factor(v):
                before = (edge.at - Index.of(v) * factor) * -1 + (factor - 1)
                least, most = edge.at.range
                if least < edge.low:
                    start = _quotient(e, before + edge.low, factor)
                if most >= edge.high:
                    stop = b.min(_quotient(e, before + edge.high, factor), v.extent)
        return start, stop

    def _columns(self, j: int, k: int) -> dict[Var, Index]:
        return {self.axes.across: self.where[j], self.axes.last: Index.of(k)}

    def _full(self, j: int, k: int) -> dict[Var, Index]:
        at = self._columns(j, k)
        return {axis: flat.replace(at) for axis, flat in self.axes.full.items()}


def _quotient(e: Emitter, index: Index, by: int) -> Operand:
    """An index divided by a number; 0 for negative indices."""
    positive = e.b.max(e.value(index), 0)
    return positive if by == 1 else e.b.div(positive, by)
