"""Sums over all positions of images, one sum for each offset in a window, on a processor: gradients
of depthwise kernels.

The sums of all offsets are computed together, each for one vector of channels, so the element at a
position is loaded once for all of them. Positions whose windows cross a border have separate code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.ir.opcodes import identity
from ztorch.lower.cpu.lanes import lanes_refusal
from ztorch.lower.cpu.sliding_windows import read_for_sums
from ztorch.lower.cpu.window_edges import Edges, all_inside, edges_of, overlap, runs
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import added, evaluate, side_by_side, summing, widest
from ztorch.lower.reduction import Phases, axes_of
from ztorch.lower.region import Region
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import (
    CORRELATION_CODE,
    CORRELATION_PAIRS,
    CORRELATION_REGISTERS,
    CORRELATION_RESULTS,
    CORRELATION_VECTORS,
)

_Places = dict[Var, Index]


@dataclass(frozen=True, repr=False)
class CorrelationSchedule(Schedule):
    """Sums over all positions of images for each offset in a window, on a processor."""

    kind = "correlation"
    lanes: int  # channels computed at once
    steps: int  # neighboring positions that are added in unrolled code

    def tile(self, lanes: int) -> str:
        return f"{self.steps}x{self.lanes}"


@dataclass(frozen=True)
class _Correlation:
    """The loops of a region that correlates images."""

    window: list[Var]  # over results, without channels
    column: Var  # over channels, which are contiguous
    inner: list[Var]  # over positions
    full: dict[Var, Index]  # the region's two loop variables in terms of these loops
    edges: Edges

    def groups(self, registers: int) -> list[list[_Places]]:
        """The offsets in the window, in groups of whole rows whose sums fit in registers."""
        across = self.window[-1].extent
        rows = [*product(*(range(v.extent) for v in self.window[:-1]))]
        size = registers // across
        return [[{v: Index.of(at) for v, at in zip(self.window, (*row, k), strict=True)}
                 for row in rows[start:start + size] for k in range(across)]
                for start in range(0, len(rows), size)]

    def inside(self, group: Sequence[_Places], v: Var, at: Index) -> bool | None:
        """Whether all elements that a group reads at some positions are inside the image; None if
        some are outside."""
        edges = [edge for edge in self.edges if edge.at.mentions(v)]
        answers = {all_inside(edges, {**place, v: at}) for place in group}
        return answers == {True} or None


def _axes(region: Region) -> _Correlation | None:
    """The loops of a region that only sums overlapping windows, over more positions than a window
    has offsets; None for any other region."""
    axes = axes_of(region)
    if not axes.by_columns or len(axes.outer) < 2 or not axes.inner or Phases(region).count != 2:
        return None
    *window, column = axes.outer
    if not prod(v.extent for v in window) < prod(v.extent for v in axes.inner):
        return None
    if any(not region.is_row(v) and v.op.kind != "reduce" for v in region.stores):
        return None
    edges = edges_of(region, axes.full)
    if any(not edge.at.is_affine or sum(edge.at.mentions(v) for v in axes.inner) != 1
           for edge in edges):
        return None
    moves = [at for source, flat in read_for_sums(region) if source not in region.flat
             and (at := flat.replace(axes.full)).is_affine and at.factor(column) == 1]
    if any(overlap(at, window[-1], axes.inner[-1]) for at in moves):
        return _Correlation(window, column, axes.inner, axes.full, edges)
    return None


def propose(region: Region, limits: Limits) -> CorrelationSchedule | None:
    """All lanes, and as many unrolled positions as keep the code small."""
    lanes = limits.lanes(widest(region))
    axes = _axes(region) if lanes > 1 and region.axes else None
    if axes is None:
        return None
    registers = _registers(region, limits)
    if axes.window[-1].extent > registers:
        return None
    steps = min(axes.inner[-1].extent, max(1, CORRELATION_PAIRS // len(axes.groups(registers)[0])))
    s = CorrelationSchedule(lanes, steps)
    return None if refusal(s, region, limits) else s


def refusal(s: CorrelationSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    if why := lanes_refusal(s.lanes, limits.lanes(widest(region))):
        return why
    axes = _axes(region) if s.lanes > 1 else None
    registers = _registers(region, limits)
    if axes is None or axes.window[-1].extent > registers:
        return "the region sums no overlapping windows over positions, or has one lane"
    if prod(v.extent for v in axes.window) > CORRELATION_RESULTS:
        return f"its windows have more than {CORRELATION_RESULTS} offsets"
    if not 1 <= s.steps <= axes.inner[-1].extent:
        return f"steps({s.steps}) must be between 1 and {axes.inner[-1].extent}"
    code = sum(len(group) * prod(_code(axes, group, v, s) for v in axes.inner)
               for group in axes.groups(registers))
    return "" if code <= CORRELATION_CODE else "its code would be too long"


def _registers(region: Region, limits: Limits) -> int:
    sums = sum(v.op.kind == "reduce" for v in region.members)
    return int(limits.vector_registers * CORRELATION_REGISTERS) // sums


def _most(axes: _Correlation, v: Var, s: CorrelationSchedule) -> int:
    return s.steps if v == axes.inner[-1] else 1


def _code(axes: _Correlation, group: Sequence[_Places], v: Var, s: CorrelationSchedule) -> int:
    """The number of positions along a loop that have separate code."""
    return sum(run.size for run in runs(v.extent, _most(axes, v, s),
                                        lambda at: axes.inside(group, v, at)))


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: CorrelationSchedule) -> None:
    """All results. Workers share the channels."""
    axes = _axes(region)
    assert axes is not None
    e = Emitter(b, memory, members=region.flat)
    vectors, rest = divmod(axes.column.extent, s.lanes)
    unroll = max(n for n in range(1, CORRELATION_VECTORS + 1) if vectors % n == 0)
    for number, group in enumerate(axes.groups(_registers(region, limits))):
        window = _Window(region, target, limits, axes, s, group)
        if unroll == 1 or rest:
            for [scope] in side_by_side(e, axes.column, s.lanes, True, 1):
                window.results(scope)
            continue
        arrays = window.arrays(b, number, unroll)
        with b.loop(0, vectors // unroll, kind="parallel") as k:
            window.results_side_by_side(e, b.mul(k, unroll), unroll, arrays)


_Sums = dict[tuple[Value, int], Operand]  # by reduction and offset in the window


class _Window:
    """A group of offsets in a window, for vectors of channels."""

    def __init__(self, region: Region, target: Mapping[Value, str], limits: Limits,
                 axes: _Correlation, s: CorrelationSchedule, places: Sequence[_Places]):
        self.region, self.target, self.limits, self.axes = region, target, limits, axes
        self.schedule, self.places = s, places
        self.sums = [v for v in region.members if v.op.kind == "reduce"]

    def results(self, e: Emitter) -> None:
        """The results of one vector of channels, which iterates over all positions."""
        b, lanes = e.b, e.lanes if e.lane else 1
        sums = {(v, j): b.var(summing(v.dtype), lanes, identity(v.op.opcode, v.dtype))
                for v in self.sums for j in range(len(self.places))}
        for scope, at in self._rows(e, self.axes.inner[:-1], {}):
            self._add_row(scope, at, sums)
        self._finish(e, {key: b.get(variable) for key, variable in sums.items()})

    # Several vectors of channels iterate over one row of an image before the next row: their
    # elements are adjacent, and those that the next row reads again are still in the L1 cache.

    def arrays(self, b: Builder, number: int, unroll: int) -> dict[Value, str]:
        """Local arrays that hold the sums between rows."""
        size = len(self.places) * unroll * self.schedule.lanes
        return {v: b.memory(f"sums{number}_{k}", summing(v.dtype), size, "local", "rw")
                for k, v in enumerate(self.sums)}

    def results_side_by_side(self, e: Emitter, first: Operand, unroll: int,
                       arrays: Mapping[Value, str]) -> None:
        """The results of `unroll` vectors, starting at vector `first`."""
        b, lanes, count = e.b, self.schedule.lanes, len(self.places)
        for v, array in arrays.items():
            neutral = b.splat(b.const(identity(v.op.opcode, v.dtype), summing(v.dtype)), lanes)
            with b.loop(0, count * unroll) as k:
                b.store(array, b.mul(k, lanes), neutral)

        def vectors(scope: Emitter) -> Iterator[tuple[Emitter, Operand, _Sums]]:
            with b.loop(0, unroll) as u:
                at = b.mul(u, count * lanes)
                start = b.mul(b.add(first, u), lanes)
                columns = scope.within(bound={**scope.bound, self.axes.column: start},
                                   lane=self.axes.column, lanes=lanes, mask=None)
                yield columns, at, {(v, j): b.load(array, at, j * lanes, lanes)
                                for v, array in arrays.items() for j in range(count)}

        for scope, row in self._rows(e, self.axes.inner[:-1], {}):
            for columns, at, loaded in vectors(scope):
                sums = {key: b.var(x.dtype, lanes, x) for key, x in loaded.items()}
                self._add_row(columns, row, sums)
                for (v, j), variable in sums.items():
                    b.store(arrays[v], at, b.get(variable), j * lanes)
        for columns, _, loaded in vectors(e):
            self._finish(columns, loaded)

    def _rows(self, e: Emitter, loops: Sequence[Var],
              at: _Places) -> Iterator[tuple[Emitter, _Places]]:
        """Scopes that cover all rows of all images."""
        if not loops:
            yield e, at
            return
        for scope, start, size in self._runs(e, loops[0]):
            assert size == 1
            yield from self._rows(scope, loops[1:], at | {loops[0]: start})

    def _runs(self, e: Emitter, v: Var) -> Iterator[tuple[Emitter, Index, int]]:
        """Scopes that cover a loop: the first of a group of neighbors, and their number."""
        for run in runs(v.extent, _most(self.axes, v, self.schedule),
                        lambda start: self.axes.inside(self.places, v, start)):
            group = Var(f"{v.name} group", run.count)
            with e.b.loop(0, run.count) if run.count > 1 else nullcontext() as counter:
                bound = e.bound if counter is None else {**e.bound, group: counter}
                yield (e.within(bound=bound, borderless=bool(self.axes.edges)),
                       Index.of(group) * run.size + run.start, run.size)

    def _add_row(self, e: Emitter, at: _Places, sums: _Sums) -> None:
        """Adds the elements at the positions of a row to variables."""
        b, last = e.b, self.axes.inner[-1]
        for scope, start, size in self._runs(e, last):
            totals = {key: b.get(variable) for key, variable in sums.items()}
            for position in (at | {last: start + k} for k in range(size)):
                for j, place in enumerate(self.places):
                    if all_inside(self.axes.edges, place | position) is False:
                        continue
                    for v in self.sums:
                        copy = replace(scope, here=dict(scope.here))  # shares the loaded values
                        totals[v, j] = added(copy, self.region, self.limits, v,
                                             self._full(place | position), totals[v, j])
            for key, variable in sums.items():
                b.set(variable, totals[key])

    def _finish(self, e: Emitter, totals: _Sums) -> None:
        rows = Phases(self.region).rows(self.target)
        for j, place in enumerate(self.places):
            scope = e.within()
            for v in self.sums:
                scope.here[v] = e.b.cast(totals[v, j], dtype=v.dtype)
            evaluate(scope, rows, self.region, self._full(place), self.target)

    def _full(self, at: _Places) -> dict[Var, Index]:
        return {axis: flat.replace(at) for axis, flat in self.axes.full.items()}
