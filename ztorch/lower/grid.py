"""Loop nests for a machine of workgroups: elementwise and reducing regions.

A grid loop gives each workgroup its part, a block loop each thread. Elementwise regions are one
thread an element, or one for four neighbours where these are read and written at once. A reduction
has several `ways` of threads for each row (or each column, where neighbours in memory are kept
apart), which add up their shares in a fixed order at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ztorch.dtypes import DType, boolean, lying
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ir.opcodes import identity
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var, flatten, unflatten
from ztorch.lower.loops import evaluate, merged_axes, spread, summing
from ztorch.lower.reduction import Axes, Phases, axes_of
from ztorch.lower.region import Region, computed, real_reads
from ztorch.lower.tuning import (
    COLUMN_NEIGHBOURS,
    GROUP_THREADS,
    THREAD_ELEMENTS,
    THREAD_ELEMENTS_FEW,
)


@contextmanager
def workgroups(b: Builder, count: int, grid: GridLimits) -> Iterator[Operand]:
    """The numbers below `count`, one for each workgroup; beyond what a grid may have, workgroups
    take several in turn."""
    if count <= grid.max_groups:
        with b.loop(0, count, kind="grid") as g:
            yield g
        return
    with b.loop(0, grid.max_groups, kind="grid") as g, b.loop(g, count, grid.max_groups) as at:
        yield at


@contextmanager
def threads(b: Builder, count: int) -> Iterator[Operand]:
    """The number of each thread of a workgroup."""
    b.workgroup = (count, 1, 1)
    with b.loop(0, count, kind="block") as t:
        yield t


@contextmanager
def where(b: Builder, condition: Operand | None) -> Iterator[None]:
    """Runs where the condition holds; None always does."""
    if condition is None:
        yield
        return
    with b.if_(condition):
        yield


def emit_map(b: Builder, region: Region, memory: Mapping[Value, str],
             target: Mapping[Value, str], limits: Limits) -> None:
    """A thread an element, or a vector of them."""
    assert limits.grid is not None
    axes = [Var(f"d{k}", n) for k, n in enumerate(merged_axes(region))] or [Var("d", 1)]
    full = {region.outer: flatten([Index.of(v) for v in axes], [v.extent for v in axes])}
    # neighbouring threads that are lanes of a vector have to have neighbouring elements
    n = 1 if limits.grid.implicit_simd else vectors(region, limits.grid)
    lanes = neighbours(region, target, full, axes[-1], n)
    size = region.size // lanes
    width = min(GROUP_THREADS, limits.grid.threads, _power(size))
    groups = math.ceil(size / width)
    # the block loop lies outside, so that a workgroup's turns are a loop of each thread
    with workgroups(b, groups, limits.grid) as g, threads(b, width) as t:
        at = b.add(b.mul(g, width), t)
        with where(b, b.lt(at, size) if size % width else None):
            e = along(Emitter(b, memory, members=region.flat), at, axes, lanes)
            evaluate(e, region.members, region, full, target)


def along(e: Emitter, flat: Operand, loops: list[Var], lanes: int) -> Emitter:
    """The scope of an element, or of `lanes` neighbours along the last loop, by its number."""
    if lanes == 1:
        return e.within(bound=spread(e, flat, loops))
    *rows, last = loops
    each = Var("vectors", last.extent // lanes)
    bound = spread(e, flat, [*rows, each])
    bound[last] = e.b.mul(bound[each], lanes)
    return e.within(bound=bound, lane=last, lanes=lanes, aligned=True)


def vectors(region: Region, grid: GridLimits) -> int:
    """How many elements a thread may compute at once, if enough threads are to be left."""
    enough = region.size // grid.load_width >= GROUP_THREADS * grid.compute_units
    return grid.load_width if enough else 1


def neighbours(region: Region, target: Mapping[Value, str], full: dict[Var, Index], last: Var,
               n: int) -> int:
    """n if so many elements along a loop can be computed at once: all that is read and written
    either lies side by side, aligned, or is the same for all of them, and none asks where it lies;
    else 1."""
    if last.extent % n:
        return 1
    members = [(v, region.index(v)) for v in region.members]
    touched = [(v, region.flat[v]) for v in target] + [
        (source, flat) for v, index in members for source, flat in real_reads(v, index)
        if source not in region.flat]
    if any(computed(v, index) for v, index in members):
        return 1
    for v, flat in touched:
        at = flat.replace(full)
        step = at.factor(last)
        rest = at - Index.of(last) * step
        places = (v.size, rest.const, *(f for _, f in rest.terms)) if step else ()
        if step not in (0, 1) or rest.mentions(last) or any(k % n for k in places):
            return 1
    return n


def _power(n: int) -> int:
    """The least power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


# -- reductions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Team:
    """How the threads of a workgroup share a reduction: `rows` results, `ways` threads for each.
    `beside`: threads of neighbouring results are neighbours, else those of one result are."""

    rows: int
    ways: int
    beside: bool

    @property
    def size(self) -> int:
        return self.rows * self.ways

    def place(self, b: Builder, t: Operand) -> tuple[Operand, Operand]:
        """(which result, which share) a thread has."""
        if self.beside:
            return b.rem(t, self.rows), b.div(t, self.rows)
        return b.div(t, self.ways), b.rem(t, self.ways)

    def thread(self, b: Builder, row: Operand, way: Operand) -> Operand:
        """The thread of a result and a share."""
        if self.beside:
            return b.add(b.mul(way, self.rows), row)
        return b.add(b.mul(row, self.ways), way)


def team(outer: int, inner: int, beside: bool, grid: GridLimits, lanes: int = 1) -> Team:
    """As many ways as leave each thread a few elements, or vectors of them; more where there are
    few results.

    >>> team(1024, 10, False, GridLimits()), team(4, 4096, False, GridLimits())
    (Team(rows=32, ways=8, beside=False), Team(rows=1, ways=256, beside=False))
    """
    most = min(GROUP_THREADS, grid.threads)
    enough = outer >= most * grid.compute_units
    share = THREAD_ELEMENTS if enough else THREAD_ELEMENTS_FEW
    ways = min(most, _power(math.ceil(inner / share)))
    rows = most // ways
    if beside:
        rows = min(max(rows, COLUMN_NEIGHBOURS // lanes), most, _power(outer))
        ways = min(ways, most // rows)
    rows = max(1, min(rows, _power(outer)))
    if not beside and rows * ways < grid.subgroup and ways > 1:
        rows = grid.subgroup // ways  # whole subgroups, even if some threads have nothing to do
    return Team(rows, ways, beside)


def emit_reduce(b: Builder, region: Region, memory: Mapping[Value, str],
                target: Mapping[Value, str], limits: Limits) -> None:
    """All results of a reducing region, a team of threads for each few of them. Of neighbours in
    memory a thread takes several at once: results, or what belongs to one."""
    grid = limits.grid
    assert grid is not None
    phases, axes = Phases(region), axes_of(region)
    loops, n = (axes.outer, vectors(region, grid)) if axes.beside else (axes.inner, grid.load_width)
    lanes = neighbours(region, target, axes.full, loops[-1], n) if loops else 1
    down, across = (lanes, 1) if axes.beside else (1, lanes)
    rows = math.prod(v.extent for v in axes.outer) // down
    columns = math.prod(v.extent for v in axes.inner) // across
    shared = team(rows, columns, axes.beside, grid, lanes)
    with workgroups(b, math.ceil(rows / shared.rows), grid) as g, threads(b, shared.size) as t:
        row, way = shared.place(b, t)
        at = b.add(b.mul(g, shared.rows), row)
        active = b.lt(at, rows) if rows % shared.rows else None
        e = along(Emitter(b, memory, members=region.flat), at, axes.outer, down)
        nest = _Nest(b, region, phases, target, axes, columns, across, limits, shared)
        nest.run(e, t, row, way, active)


class _Nest:
    """The passes over the inner loop for one thread."""

    def __init__(self, b: Builder, region: Region, phases: Phases, target: Mapping[Value, str],
                 axes: Axes, columns: int, lanes: int, limits: Limits, shared: Team):
        self.b, self.region, self.phases, self.target = b, region, phases, target
        self.full, self.inner, self.columns, self.lanes = axes.full, axes.inner, columns, lanes
        self.limits, self.team = limits, shared
        self.scratch: dict[DType, str] = {}

    def run(self, e: Emitter, t: Operand, row: Operand, way: Operand,
            active: Operand | None) -> None:
        b, region, phases = self.b, self.region, self.phases
        written: dict[Value, str] = {}
        lanes = max(e.lanes, self.lanes)
        for p, kept, sums in phases.passes(self.target):
            variables = {v: b.var(summing(v.dtype), lanes, identity(v.op.opcode, v.dtype))
                         for v in sums}
            with where(b, active):
                scope = e.within(memory={**e.memory, **written})
                for v in region.members:  # once a row, not once an element
                    if v.op.kind == "map" and region.is_row(v) and phases.ready[v] <= p:
                        scope.element(v, unflatten(region.flat[v].replace(self.full), v.shape))
                with b.loop(way, self.columns, self.team.ways) as i:
                    self._element(along(scope, i, self.inner, self.lanes), kept, variables)
            written |= {v: self.target[v] for v in kept}
            for v, variable in variables.items():
                x = b.get(variable)
                x = b.fold(v.op.opcode, x) if self.lanes > 1 else x
                e.here[v] = b.cast(self._total(v, x, t, row, way), dtype=v.dtype)
        rows = phases.rows(self.target)
        if rows:
            if self.team.ways > 1 and {self.target[v] for v in rows} & set(e.memory.values()):
                b.barrier()  # written in place, which others of the team may still have to read
            first = b.eq(way, 0)
            with where(b, first if active is None else b.and_(first, active)):
                evaluate(e.within(), rows, region, self.full, self.target)

    def _element(self, e: Emitter, kept: list[Value], variables: dict[Value, Operand]) -> None:
        b = self.b
        evaluate(e, kept, self.region, self.full, self.target)
        for v, variable in variables.items():
            x = v.args[0]
            flat = self.region.full.replace(self.full)
            new = b.cast(e.element(x, unflatten(flat, x.shape)), dtype=variable.dtype)
            b.set(variable, b.emit(v.op.opcode, b.get(variable), new))

    def _total(self, v: Value, x: Operand, t: Operand, row: Operand, way: Operand) -> Operand:
        """What the threads of a team have, combined; each of them gets it."""
        b, ways, sub = self.b, self.team.ways, self.limits.grid.subgroup  # type: ignore[union-attr]
        if ways == 1:
            return x
        together = min(ways, sub) if not self.team.beside and x.dtype.bits == 32 else 1
        distance = together // 2
        while distance:  # a butterfly: all end with the same bits
            x = b.emit(v.op.opcode, x, b.shuffle_xor(x, distance))
            distance //= 2
        if together == ways:
            return x
        self._put(t, x)
        b.barrier()
        if together > 1:  # few are left: each thread adds them up itself, in the same order
            total = None
            for k in range(ways // together):
                at = self.team.thread(b, row, b.const(k * together, b.index))
                part = self._got(at, x)
                total = part if total is None else b.emit(v.op.opcode, total, part)
            assert total is not None
        else:
            distance = ways // 2
            while distance:
                with b.if_(b.lt(way, distance)):
                    other = self._got(self.team.thread(b, row, b.add(way, distance)), x)
                    self._put(t, b.emit(v.op.opcode, self._got(t, x), other))
                b.barrier()
                distance //= 2
            total = self._got(self.team.thread(b, row, b.const(0, b.index)), x)
        b.barrier()  # before the array is used again
        return total

    def _shared(self, x: Operand) -> tuple[str, int]:
        """The memory in which threads leave each other what x is, and its alignment."""
        stored = lying(x.dtype)
        if stored not in self.scratch:
            self.scratch[stored] = self.b.memory(f"team_{stored.name}", stored,
                                                 self.team.size * x.lanes, "shared", "rw")
        return self.scratch[stored], x.lanes * stored.bytes if x.lanes > 1 else 0

    def _put(self, thread: Operand, x: Operand) -> None:
        b, (array, align) = self.b, self._shared(x)
        at = b.mul(thread, x.lanes) if x.lanes > 1 else thread
        b.store(array, at, b.cast(x, dtype=lying(x.dtype)), align=align)

    def _got(self, thread: Operand, like: Operand) -> Operand:
        """What a thread has put there."""
        b, (array, align) = self.b, self._shared(like)
        at = b.mul(thread, like.lanes) if like.lanes > 1 else thread
        x = b.load(array, at, lanes=like.lanes, align=align)
        return b.ne(x, 0) if like.dtype is boolean else x
