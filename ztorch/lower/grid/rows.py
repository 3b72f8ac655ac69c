"""Reductions on a grid: each team of threads computes a few results. At the end, the threads
combine their partial results in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ztorch.dtypes import DType, boolean, storage_dtype
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ir.opcodes import identity
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.held_rows import crowding, element_registers, sharing_threads
from ztorch.lower.grid.teams import Team, grid_axes, team
from ztorch.lower.grid.workgroups import (
    along,
    can_vectorize,
    threads,
    usual_width,
    where,
    width_refusal,
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
    width = n if _can_vectorize(region, axes, n) else 1
    results, each = _counts(axes, width)
    chosen = team(results, each, axes.by_columns, grid, width)
    s = GridRowSchedule(chosen.rows, chosen.ways, width, 0)
    if Phases(region).count <= 2:  # nothing is read twice
        return s
    ways = [chosen.ways]
    if not axes.by_columns and chosen.rows == 1 and grid.subgroup and not grid.implicit_simd:
        ways += [n for n in HELD_LONG_THREADS if n <= grid.threads]
    element = element_registers(region)
    held = [h for n in ways for w in dict.fromkeys((width, 1)) if not _held_refusal(
        h := replace(s, team_ways=n, width=w, turns_held=math.ceil(_counts(axes, w)[1] / n)),
        region, axes, grid)]
    # As usual if that is possible; otherwise alone, with as many threads as possible.
    return min(held, key=lambda h: crowding(h, element, grid), default=s)


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
    needed = size * across * sum({storage_dtype(summing(v.dtype)): summing(v.dtype).bytes
                                  for v in region.members if v.op.kind == "reduce"}.values())
    if s.team_ways > 1 and needed > grid.shared_bytes:
        return f"its threads share {needed} bytes of {grid.shared_bytes}"
    return ""


def _held_refusal(s: GridRowSchedule, region: Region, axes: Axes, grid: GridLimits) -> str:
    """Why threads cannot hold rows in registers; empty if they can."""
    results, each = _counts(axes, s.width)
    if axes.by_columns or results % s.team_rows or s.turns_held != math.ceil(each / s.team_ways):
        return (f"turns(held={s.turns_held}) must be the number of iterations of a thread, which "
                "needs whole rows per workgroup")
    if s.team_ways > each:
        return f"turns(held={s.turns_held}): {s.team_ways} threads hold {each} parts of a row"
    element = element_registers(region)
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


def _counts(axes: Axes, width: int) -> tuple[int, int]:
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
    rows, columns = _counts(axes, s.width)
    if s.turns_held:
        b.resident_threads = sharing_threads(s, element_registers(region), grid)
    shared = Team(s.team_rows, s.team_ways, axes.by_columns)
    with workgroups(b, math.ceil(rows / shared.rows), grid) as g, threads(b, shared.size) as t:
        row, share = shared.role(b, t)
        at = b.add(b.mul(g, shared.rows), row)
        active = b.lt(at, rows) if rows % shared.rows else None
        e = along(Emitter(b, memory, members=region.flat), at, axes.outer, down)
        nest = _TeamNest(b, region, phases, target, axes, columns, across, limits, shared,
                         s.turns_held)
        nest.run(e, t, row, share, active)


class _TeamNest:
    """The passes over the inner loop for one thread."""

    def __init__(self, b: Builder, region: Region, phases: Phases, target: Mapping[Value, str],
                 axes: Axes, columns: int, lanes: int, limits: Limits, shared: Team, held: int):
        self.b, self.region, self.phases, self.target = b, region, phases, target
        self.full, self.inner, self.columns, self.lanes = axes.full, axes.inner, columns, lanes
        self.limits, self.team, self.turns_held = limits, shared, held
        self.held: list[Emitter] = []  # scopes of the iterations, if their values are kept
        self.last_active: Operand | None = None  # whether a thread has the last one; None: all do
        self.scratch: dict[DType, str] = {}

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
                self._pass(scope, share, stores, variables)
            written |= {v: self.target[v] for v in stores}
            for v, variable in variables.items():
                x = b.get(variable)
                x = b.fold(v.op.opcode, x) if self.lanes > 1 else x
                e.here[v] = b.cast(self._total(v, x, t, row, share), dtype=v.dtype)
        rows = phases.rows(self.target)
        if rows:
            if self.team.ways > 1 and {self.target[v] for v in rows} & set(e.memory.values()):
                b.barrier()  # written in place: other threads of the team may still read it
            first = b.eq(share, 0)
            with where(b, first if active is None else b.and_(first, active)):
                evaluate(e.within(), rows, region, self.full, self.target)

    def _pass(self, scope: Emitter, share: Operand, stores: list[Value],
              variables: dict[Value, Operand]) -> None:
        """A thread's share of a row: a loop, or unrolled if the row is held in registers."""
        b, ways = self.b, self.team.ways
        if not self.turns_held:
            # Several loads in flight, if none depends on an earlier store.
            times = 1 if stores else _loads(self.columns, ways)
            if times == self.columns and ways == 1:  # one thread has all, at known positions
                for k in range(times):
                    at = b.const(k, b.index)
                    self._element(along(scope, at, self.inner, self.lanes), stores, variables)
                return
            even = self.columns // (ways * times) * ways * times
            with b.loop(share, even, ways * times) as i:
                for k in range(times):
                    at = b.add(i, k * ways) if k else i
                    self._element(along(scope, at, self.inner, self.lanes), stores, variables)
            if even < self.columns:
                with b.loop(b.add(share, even), self.columns, ways) as i:
                    self._element(along(scope, i, self.inner, self.lanes), stores, variables)
            return
        if not self.held:
            self._hold(scope, share)
        for e in self.held:
            e.here |= scope.here
            e.known |= scope.known
            self._element(e, stores, variables, self.last_active if e is self.held[-1] else None)

    def _hold(self, scope: Emitter, share: Operand) -> None:
        """Sets up the iterations of rows that are kept in registers. Threads without an element in
        the last iteration repeat their first one, which no other thread writes, and discard it."""
        b, trip_count = self.b, self.turns_held
        places = [b.add(share, k * self.team.ways) for k in range(trip_count)]
        if trip_count * self.team.ways != self.columns:
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

    def _total(self, v: Value, x: Operand, t: Operand, row: Operand, share: Operand) -> Operand:
        """The combined value of a team, in every thread."""
        b, ways, sub = self.b, self.team.ways, self.limits.grid.subgroup  # type: ignore[union-attr]
        if ways == 1:
            return x
        together = min(ways, sub) if not self.team.by_columns and x.dtype.bits == 32 else 1
        distance = together // 2
        while distance:  # a butterfly: all threads get the same bits
            x = b.emit(v.op.opcode, x, b.shuffle_xor(x, distance))
            distance //= 2
        if together == ways:
            return x
        self._put(t, x)
        b.barrier()
        if together > 1:  # few partial results remain: each thread combines them in the same order
            total = None
            for k in range(ways // together):
                at = self.team.thread(b, row, b.const(k * together, b.index))
                part = self._fetch(at, x)
                total = part if total is None else b.emit(v.op.opcode, total, part)
            assert total is not None
        else:
            distance = ways // 2
            while distance:
                with b.if_(b.lt(share, distance)):
                    other = self._fetch(self.team.thread(b, row, b.add(share, distance)), x)
                    self._put(t, b.emit(v.op.opcode, self._fetch(t, x), other))
                b.barrier()
                distance //= 2
            total = self._fetch(self.team.thread(b, row, b.const(0, b.index)), x)
        b.barrier()  # before the array is reused
        return total

    def _shared(self, x: Operand) -> tuple[str, int]:
        """The memory in which threads exchange a value, and its alignment."""
        stored = storage_dtype(x.dtype)
        if stored not in self.scratch:
            self.scratch[stored] = self.b.memory(f"team_{stored.name}", stored,
                                                 self.team.size * x.lanes, "shared", "rw")
        return self.scratch[stored], x.lanes * stored.bytes if x.lanes > 1 else 0

    def _put(self, thread: Operand, x: Operand) -> None:
        b, (array, align) = self.b, self._shared(x)
        at = b.mul(thread, x.lanes) if x.lanes > 1 else thread
        b.store(array, at, b.cast(x, dtype=storage_dtype(x.dtype)), align=align)

    def _fetch(self, thread: Operand, like: Operand) -> Operand:
        """The value that a thread has stored in the exchange memory."""
        b, (array, align) = self.b, self._shared(like)
        at = b.mul(thread, like.lanes) if like.lanes > 1 else thread
        x = b.load(array, at, lanes=like.lanes, align=align)
        return b.ne(x, 0) if like.dtype is boolean else x
