"""Reductions on a grid: each team of threads computes a few results. At the end, the threads
combine their partial results in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ztorch.dtypes import i32, storage_dtype
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ir.opcodes import identity
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.held_rows import (
    crowding,
    element_registers,
    element_size,
    handed_values,
    held_turns,
    sharing_threads,
)
from ztorch.lower.grid.row_rests import RowRest, rest_bytes
from ztorch.lower.grid.team_totals import TeamTotals
from ztorch.lower.grid.teams import Team, grid_axes, team
from ztorch.lower.grid.workgroups import (
    along,
    can_vectorize,
    threads,
    usual_width,
    where,
    width_refusal,
    widths,
    workgroups,
)
from ztorch.lower.loops import evaluate, summing
from ztorch.lower.positions import unflatten
from ztorch.lower.reduction import Axes, Phases, axes_of
from ztorch.lower.region import Region
from ztorch.lower.schedule import GridRowSchedule
from ztorch.lower.tuning import HELD_LONG_THREADS, REDUCTION_LOADS, REDUCTION_LOADS_UNEVEN


def propose(region: Region, limits: Limits) -> GridRowSchedule:
    """A thread takes several neighbors in memory at once: results, or elements of one result."""
    grid, axes = limits.grid, grid_axes(region)
    assert grid is not None
    n = usual_width(region, grid) if axes.by_columns else grid.load_width
    tried = widths(n) if axes.by_columns else [n]
    width = next((w for w in tried if _can_vectorize(region, axes, w)), 1)
    results, row_parts = counts(axes, width)
    aligned = width if width == n else 1  # other lines straddle sectors, and longer ones fewer
    chosen = team(results, row_parts, axes.by_columns, grid, aligned)
    s = GridRowSchedule(chosen.rows, chosen.ways, width, 0)
    if Phases(region).count <= 2:  # nothing is read twice
        return s
    ways = [chosen.ways]
    if not axes.by_columns and chosen.rows == 1 and grid.subgroup and not grid.implicit_simd:
        ways += [n for n in HELD_LONG_THREADS if n <= grid.threads]
    element = element_registers(region)
    proposals = [h for n in ways for w in dict.fromkeys((width, 1)) if not _held_refusal(
        h := replace(s, team_ways=n, width=w, turns_held=held_turns(
            math.ceil(counts(axes, w)[1] / n), n, w * element, grid)), region, axes, grid)]
    # As usual if that is possible; otherwise alone, with as many threads as possible.
    return min(proposals, key=lambda h: crowding(h, element, grid), default=s)


def stored_between_passes(region: Region, limits: Limits) -> list[Value]:
    """Members that a later pass reads, and that are kept neither in the registers of threads nor
    in a local array."""
    if limits.grid is not None and propose(region, limits).turns_held:
        return []
    phases = Phases(region)
    if not (late := phases.used_later()):
        return []
    local = phases.in_row(axes_of(region), limits)
    return [v for v in late if v not in local]


def refusal(s: GridRowSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    grid, axes = limits.grid, grid_axes(region)
    assert grid is not None
    size = s.team_rows * s.team_ways
    if why := width_refusal(s.width, grid, _can_vectorize(region, axes, s.width)):
        return why
    if s.turns_held and (why := _held_refusal(s, region, axes, grid)):
        return why
    for name, n in (("rows", s.team_rows), ("ways", s.team_ways)):
        if n < 1 or n & (n - 1):
            return f"team({name}={n}) must be a power of two"
    if size > grid.threads:
        return f"team(rows={s.team_rows}, ways={s.team_ways}) has {size} threads of {grid.threads}"
    if not axes.by_columns and s.team_ways > 1 and size < grid.subgroup:
        return (f"team(rows={s.team_rows}, ways={s.team_ways}) has {size} threads, and they "
                f"exchange values in subgroups of {grid.subgroup}")
    across = s.width if axes.by_columns else 1
    needed = _exchanged_bytes(region, size * across)
    if s.team_ways > 1 and needed > grid.shared_bytes:
        return f"its threads share {needed} bytes of {grid.shared_bytes}"
    return ""


def _exchanged_bytes(region: Region, numbers: int) -> int:
    """Shared memory in which threads exchange so many partial results of each dtype."""
    return numbers * sum({storage_dtype(summing(v.dtype)): summing(v.dtype).bytes
                          for v in region.members if v.op.kind == "reduce"}.values())


def _held_refusal(s: GridRowSchedule, region: Region, axes: Axes, grid: GridLimits) -> str:
    """Why threads cannot hold rows in registers; empty if they can."""
    results, row_parts = counts(axes, s.width)
    turns, handed = math.ceil(row_parts / s.team_ways), handed_values(region)
    if axes.by_columns or results % s.team_rows or not 0 < s.turns_held <= turns:
        return (f"turns(held={s.turns_held}) must be 1 to {turns}, the iterations of a thread, and "
                "needs whole rows per workgroup")
    if s.team_ways > row_parts:
        return f"turns(held={s.turns_held}): {s.team_ways} threads hold {row_parts} parts of a row"
    if s.turns_held < turns:
        if s.width > 1 or s.team_rows > 1:
            return (f"turns(held={s.turns_held}) leaves a rest of {turns - s.turns_held} turns, "
                    "which needs rows=1 and width(1)")
        needed = _exchanged_bytes(region, s.team_ways) + rest_bytes(
            handed, row_parts - s.turns_held * s.team_ways)
        if needed > grid.shared_bytes:
            return f"its threads share {needed} bytes of {grid.shared_bytes}"
    element = element_size(handed, i32.bytes)
    if sharing_threads(s, element, grid) < 0:
        return (f"turns(held={s.turns_held}) needs {s.turns_held * s.width * element} registers of "
                "a thread, which has fewer")
    return ""


def _can_vectorize(region: Region, axes: Axes, n: int) -> bool:
    loops = axes.outer if axes.by_columns else axes.inner
    return can_vectorize(region, axes.full, loops[-1], n) if loops else n == 1


def _loads(columns: int, ways: int) -> int:
    """The loads that a thread starts in one iteration of its loop: a divisor of its share, or for a
    long share without divisor a fixed number, with a second loop for the rest."""
    even = next(n for n in REDUCTION_LOADS if columns % (n * ways) == 0 or n == 1)
    long = columns >= 2 * REDUCTION_LOADS_UNEVEN * ways
    return REDUCTION_LOADS_UNEVEN if even == 1 and long else even


def counts(axes: Axes, width: int) -> tuple[int, int]:
    """The number of results, and of steps of one thread for each."""
    down, across = (width, 1) if axes.by_columns else (1, width)
    return (math.prod(v.extent for v in axes.outer) // down,
            math.prod(v.extent for v in axes.inner) // across)


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridRowSchedule) -> None:
    """All results of a reducing region."""
    grid = limits.grid
    assert grid is not None
    phases, axes = Phases(region), grid_axes(region)
    down, across = (s.width, 1) if axes.by_columns else (1, s.width)
    rows, columns = counts(axes, s.width)
    if s.turns_held:
        b.resident_threads = sharing_threads(s, element_registers(region), grid)
    shared = Team(s.team_rows, s.team_ways, axes.by_columns)
    with workgroups(b, math.ceil(rows / shared.rows), grid) as g, threads(b, shared.size) as t:
        row, share = shared.role(b, t)
        at = b.add(b.mul(g, shared.rows), row)
        active = b.lt(at, rows) if rows % shared.rows else None
        e = along(Emitter(b, memory, members=region.flat), at, axes.outer, down)
        nest = _TeamNest(b, region, phases, target, axes, columns, across, grid, shared,
                         s.turns_held)
        nest.run(e, t, row, share, active)


class _TeamNest:
    """The passes over the inner loop for one thread."""

    def __init__(self, b: Builder, region: Region, phases: Phases, target: Mapping[Value, str],
                 axes: Axes, columns: int, lanes: int, grid: GridLimits, shared: Team,
                 turns_held: int):
        self.b, self.region, self.phases, self.target = b, region, phases, target
        self.full, self.inner, self.columns, self.lanes = axes.full, axes.inner, columns, lanes
        self.team, self.turns_held = shared, turns_held
        self.held: list[Emitter] = []  # scopes of the iterations, if their values are kept
        self.last_active: Operand | None = None  # whether a thread has the last one; None: all do
        self.totals = TeamTotals(b, shared, grid.subgroup)
        first = turns_held * shared.ways
        self.rest = RowRest(b, handed_values(region) if turns_held else (), first,
                            max(0, columns - first), axes.full)

    def run(self, e: Emitter, t: Operand, row: Operand, share: Operand,
            active: Operand | None) -> None:
        b, region, phases = self.b, self.region, self.phases
        written: dict[Value, str] = {}
        lanes = max(e.lanes, self.lanes)
        for p, stores, sums in phases.passes(self.target):
            variables = {v: b.var(summing(v.dtype), lanes, identity(v.op.opcode, v.dtype))
                         for v in sums}
            with where(b, active):
                scope = e.within(memory={**e.memory, **written})
                for v in region.members:  # once per row, not per element
                    if v.op.kind == "map" and region.is_row(v) and phases.ready[v] <= p:
                        scope.element(v, unflatten(region.flat[v].replace(self.full), v.shape))
                self._pass(scope, share, p, stores, variables)
            written |= {v: self.target[v] for v in stores}
            for v, variable in variables.items():
                x = b.get(variable)
                x = b.fold(v.op.opcode, x) if self.lanes > 1 else x
                e.here[v] = b.cast(self.totals.of(v, x, t, row, share), dtype=v.dtype)
        rows = phases.rows(self.target)
        if rows:
            if self.team.ways > 1 and {self.target[v] for v in rows} & set(e.memory.values()):
                b.barrier()  # written in place: other threads of the team may still read it
            first = b.eq(share, 0)
            with where(b, first if active is None else b.and_(first, active)):
                evaluate(e.within(), rows, region, self.full, self.target)

    def _pass(self, scope: Emitter, share: Operand, p: int, stores: list[Value],
              variables: dict[Value, Operand]) -> None:
        """A thread's share of a row: unrolled as far as it is held in registers, then a loop."""
        if self.turns_held and not self.held:
            self._hold(scope, share)
        for e in self.held:
            e.here |= scope.here
            e.known |= scope.known
            self._element(e, stores, variables, self.last_active if e is self.held[-1] else None)

        def element(at: Operand) -> None:
            e = along(scope, at, self.inner, self.lanes)
            self.rest.fetch(e, at, p)
            self._element(e, stores, variables)
            self.rest.keep(e, at, p)

        b, ways, first = self.b, self.team.ways, self.rest.first
        columns = self.columns - first
        if columns <= 0:
            return
        # Several loads in flight, if none depends on an earlier store.
        times = 1 if stores else _loads(columns, ways)
        if times == columns and ways == 1:  # one thread has all, at known positions
            for k in range(times):
                element(b.const(first + k, b.index))
            return
        even = first + columns // (ways * times) * ways * times
        with b.loop(b.add(share, first) if first else share, even, ways * times) as i:
            for k in range(times):
                element(b.add(i, k * ways) if k else i)
        if even < self.columns:
            with b.loop(b.add(share, even), self.columns, ways) as i:
                element(i)

    def _hold(self, scope: Emitter, share: Operand) -> None:
        """Sets up the iterations of rows that are kept in registers. Threads without an element in
        the last iteration repeat their first one, which no other thread writes, and discard it."""
        b, trip_count = self.b, self.turns_held
        places = [b.add(share, k * self.team.ways) for k in range(trip_count)]
        if trip_count * self.team.ways > self.columns:
            self.last_active = b.lt(places[-1], self.columns)
            places[-1] = b.select(self.last_active, places[-1], share)
        self.held = [along(scope, at, self.inner, self.lanes) for at in places]
        if len(self.inner) == 1 and self.lanes == 1:  # one register for all addresses
            for k, e in enumerate(self.held[:-1]):
                e.bound[self.inner[0]], e.ahead = share, {self.inner[0]: k * self.team.ways}

    def _element(self, e: Emitter, stores: list[Value], variables: dict[Value, Operand],
                 active: Operand | None = None) -> None:
        """One element or vector: stores kept values and accumulates the reductions."""
        b = self.b
        if active is not None:  # later passes read these values
            for v in stores:
                e.element(v, unflatten(self.region.flat[v].replace(self.full), v.shape))
        added = {}
        for v, variable in variables.items():
            x = v.args[0]
            flat = self.region.full.replace(self.full)
            added[v] = b.cast(e.element(x, unflatten(flat, x.shape)), dtype=variable.dtype)
        with where(b, active):
            evaluate(e, stores, self.region, self.full, self.target)
            for v, variable in variables.items():
                b.set(variable, b.emit(v.op.opcode, b.get(variable), added[v]))
