"""Loop nests for elementwise and reducing regions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ztorch.dtypes import DType, f32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.halves import HALVES
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.ir.opcodes import identity
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var, flatten, unflatten
from ztorch.lower.reduction import Axes, Phases, axes_of
from ztorch.lower.region import Region, computed, real_reads
from ztorch.lower.tuning import (
    COLUMN_MEMBERS,
    COLUMN_TURNS,
    COLUMN_VECTORS,
    RECOMPUTE_SLOTS,
    ROW_SUM_VECTORS,
    ROW_SUMS,
    SHARED_TURN_ELEMENTS,
    SHARED_TURNS,
)


def widest(region: Region) -> DType:
    """The dtype whose lanes decide the vector length: the widest float, else the widest."""
    floats = [v.dtype for v in region.members if v.dtype.is_float]
    return max(floats or [v.dtype for v in region.members], key=lambda d: d.bits)


def summing(d: DType) -> DType:
    """What sums of a dtype are held in: 16-bit floats would lose every small addend."""
    return f32 if d in HALVES else d


def multiply_add(b: Builder, limits: Limits, x: Operand, y: Operand, total: Operand) -> Operand:
    """total + x * y, in one instruction where the machine has it."""
    if limits.fma and total.dtype.is_float:
        return b.fma(x, y, total)
    return b.add(total, b.mul(x, y))


# -- elementwise -----------------------------------------------------------------------------------


def emit_map(b: Builder, region: Region, memory: Mapping[Value, str],
             target: Mapping[Value, str], limits: Limits) -> None:
    """Every element for itself: one flat loop where positions allow it, else a loop an axis."""
    lanes = limits.lanes(widest(region))
    axes = [Var(f"d{k}", n) for k, n in enumerate(merged_axes(region))]
    *rows, col = axes or [Var("d", 1)]
    full = {region.outer: flatten([Index.of(v) for v in axes], [v.extent for v in axes])}
    e = Emitter(b, memory, members=region.flat)
    if not rows:
        for inner, _ in _vectors(e, col, lanes, parallel=True):
            evaluate(inner, region.members, region, full, target)
        return
    shared = _shared(rows, col.extent)
    with b.loop(0, math.prod(v.extent for v in rows[:shared]), kind="parallel") as r:
        bound = spread(e, r, rows[:shared])
        with nested(b, rows[shared:]) as counters:
            bound |= dict(zip(rows[shared:], counters, strict=True))
            for inner, _ in _vectors(e.within(bound=bound), col, lanes):
                evaluate(inner, region.members, region, full, target)


def merged_axes(region: Region) -> tuple[int, ...]:
    """The shape that a region's loops run over: its own, with neighbouring axes as one wherever
    that makes no position harder to compute. Inner loops of a few elements become longer ones."""
    read, other = _positions(region)
    if all(at.is_affine for at in (*read, *other)) and all(
            at.factor(region.outer) in (0, 1) for at in read):
        return (region.size,)
    shape = [n for n in region.shape if n != 1]
    now = _divisions(region, shape, [*read, *other])
    for k in reversed(range(len(shape) - 1)):
        merged = [*shape[:k], shape[k] * shape[k + 1], *shape[k + 2:]]
        then = _divisions(region, merged, [*read, *other])
        if then <= now:
            shape, now = merged, then
    return tuple(shape)


def _positions(region: Region) -> tuple[list[Index], list[Index]]:
    """Where a region reads memory, and what else it computes with positions."""
    at = [(v, unflatten(region.flat[v], v.shape)) for v in region.members]
    read = [flat for v, index in at for source, flat in real_reads(v, index)
            if source not in region.flat]
    return read, [i for v, index in at for i in computed(v, index)]


def _divisions(region: Region, shape: Sequence[int], positions: list[Index]) -> int:
    """How many divisions it takes to find positions from loops over a shape."""
    loops = flatten([Index.of(Var(f"d{k}", n)) for k, n in enumerate(shape)], shape)
    return sum(at.replace({region.outer: loops}).divisions for at in positions)


def _shared(rows: Sequence[Var], columns: int) -> int:
    """How many of the row axes workers share out. The others are loops of their own: a counter
    costs an addition, an axis of the shared loop a division."""
    inner = columns
    for k in reversed(range(1, len(rows))):
        inner *= rows[k].extent
        if inner > SHARED_TURN_ELEMENTS or math.prod(v.extent for v in rows[:k]) < SHARED_TURNS:
            return k + 1
    return min(1, len(rows))


def _vectors(e: Emitter, var: Var, lanes: int, parallel: bool = False,
             unroll: int = 1) -> Iterator[tuple[Emitter, int]]:
    """Scopes that cover [0, var.extent), one after another. With `unroll`, a turn of the loop has
    that many, numbered, so that each can have its own sum."""
    for scopes in _abreast(e, var, lanes, parallel, unroll):
        yield from zip(scopes, range(len(scopes)), strict=True)


def _abreast(e: Emitter, var: Var, lanes: int, parallel: bool,
             unroll: int) -> Iterator[list[Emitter]]:
    """Scopes that cover [0, var.extent): a loop of whole vectors, `unroll` in a turn, then one
    masked remainder."""
    b, whole = e.b, var.extent // max(lanes, 1) * lanes
    kind = "parallel" if parallel else "serial"
    if lanes == 1:
        with b.loop(0, var.extent, kind=kind) as i:
            yield [e.within(bound={**e.bound, var: i})]
        return
    vectors, done = whole // lanes, 0
    for times in (unroll, 1):
        turns = (vectors - done) // times
        if not turns:
            continue
        with b.loop(0, turns, kind=kind) as k:
            start = b.add(b.mul(k, lanes * times), done * lanes)
            yield [e.within(bound={**e.bound, var: b.add(start, u * lanes)}, lane=var, lanes=lanes,
                            mask=None) for u in range(times)]
        done += turns * times
    if whole < var.extent:
        with _once(b, parallel):
            mask = b.lt(b.iota(lanes), var.extent - whole)
            start = b.const(whole, b.index)
            yield [e.within(bound={**e.bound, var: start}, lane=var, lanes=lanes, mask=mask)]


@contextmanager
def _once(b: Builder, parallel: bool) -> Iterator[None]:
    """Run by one worker only."""
    if not parallel:
        yield
        return
    with b.loop(0, 1, kind="parallel"):
        yield


def evaluate(e: Emitter, values: Sequence[Value], region: Region, full: dict[Var, Index],
              target: Mapping[Value, str]) -> None:
    """Compute values at the position of this scope, then store those that leave the region.

    All stores come last, so that nothing is read after it was overwritten in place."""
    done: list[tuple[Value, Index, Operand]] = []
    for v in values:
        if v not in target:
            continue
        flat = region.flat[v].replace(full)
        done.append((v, flat, e.element(v, unflatten(flat, v.shape))))
    for v, flat, x in done:
        e.store(target[v], v, flat, x)


# -- reductions ------------------------------------------------------------------------------------


def _columns_abreast(region: Region, most: int) -> int:
    """How many vectors of columns to reduce in one loop: neighbours lie in the same lines of the
    cache, and no sum waits for its own last addition."""
    sums = sum(v.op.kind == "reduce" for v in region.members)
    return max(1, min(COLUMN_VECTORS, most)) if len(region.members) <= COLUMN_MEMBERS // sums else 1


def emit_reduce(b: Builder, region: Region, memory: Mapping[Value, str],
                target: Mapping[Value, str], limits: Limits) -> None:
    """Rows (lanes along the reduced axis) where neighbours in memory are reduced together, else
    columns (lanes along a kept axis)."""
    phases, axes = Phases(region), axes_of(region)
    lanes = limits.lanes(widest(region))
    nest = _Nest(b, region, phases, memory, target, axes, lanes)
    e = Emitter(b, memory, members=region.flat)
    if axes.beside:
        *rows, column = axes.outer
        if not rows:
            many = _columns_abreast(region, column.extent // (lanes * COLUMN_TURNS))
            for scopes in _abreast(e, column, lanes, True, many):
                nest.one_outer(scopes, lanes if scopes[0].lane else 1, along=False)
        else:
            with b.loop(0, math.prod(v.extent for v in rows), kind="parallel") as r:
                bound = spread(e, r, rows)
                many = _columns_abreast(region, column.extent // lanes)
                for scopes in _abreast(e.within(bound=bound), column, lanes, False, many):
                    nest.one_outer(scopes, lanes if scopes[0].lane else 1, along=False)
    else:
        with b.loop(0, math.prod(v.extent for v in axes.outer), kind="parallel") as r:
            nest.one_outer([e.within(bound=spread(e, r, axes.outer))], 1, along=lanes > 1)


def spread(e: Emitter, flat: Operand, loops: Sequence[Var]) -> dict[Var, Operand]:
    """Loop variables from one flat counter."""
    whole = Var("flat", math.prod(v.extent for v in loops))
    scope = e.within(bound={**e.bound, whole: flat})
    parts = unflatten(Index.of(whole), [v.extent for v in loops])
    return {**e.bound, **{v: scope.value(i) for v, i in zip(loops, parts, strict=True)}}


class _Nest:
    """The body of a reducing region for one outer position (or one vector of them)."""

    def __init__(self, b: Builder, region: Region, phases: Phases, memory: Mapping[Value, str],
                 target: Mapping[Value, str], axes: Axes, lanes: int):
        self.b, self.region, self.phases = b, region, phases
        self.memory, self.target = memory, target
        self.full, self.inner, self.lanes = axes.full, axes.inner, lanes

    def one_outer(self, scopes: list[Emitter], wide: int, along: bool) -> None:
        """All passes, then what is known once a row: for one scope with `along`, where lanes run
        along the inner axis, else for some vectors of rows at once."""
        written: dict[Value, str] = {}
        for p, kept, sums in self.phases.passes(self.target):
            self._pass(scopes, p, kept, sums, wide, along, written)
            written |= {v: self.target[v] for v in kept}
        rows = self.phases.rows(self.target)
        for e in scopes:
            evaluate(e, rows, self.region, self.full, self.target)

    def _pass(self, rows: list[Emitter], p: int, kept: list[Value], sums: list[Value], wide: int,
              along: bool, written: dict[Value, str]) -> None:
        b = self.b
        lanes = self.lanes if along else wide
        many = self._unroll(sums, kept) if along else len(rows)
        variables = {(v, u): b.var(summing(v.dtype), lanes, identity(v.op.opcode, v.dtype))
                     for v in sums for u in range(many)}
        for v in self._row_values(p):
            flat = self.region.flat[v].replace(self.full)
            for e in rows:
                e.element(v, unflatten(flat, v.shape))  # once a row, not once an element
        readable = {**self.memory, **written}
        with nested(b, self.inner[:-1] if along else self.inner) as counters:
            at = dict(zip(self.inner, counters, strict=False))
            inside = [e.within(bound={**e.bound, **at}, memory=readable) for e in rows]
            scopes: Iterator[tuple[Emitter, int]] = iter(zip(inside, range(many), strict=False))
            if along:
                last = self.inner[-1] if self.inner else Var("i", 1)
                scopes = _vectors(inside[0], last, self.lanes, unroll=many)
            for inner, u in scopes:
                evaluate(inner, kept, self.region, self.full, self.target)
                for v in sums:
                    self._accumulate(inner, v, variables[v, u])
        for v in sums:
            found = [b.get(variables[v, u]) for u in range(many)]
            if along:
                x = found[0]
                for other in found[1:]:
                    x = b.emit(v.op.opcode, x, other)
                found = [b.fold(v.op.opcode, x)]
            for e, x in zip(rows, found, strict=True):
                e.here[v] = b.cast(x, dtype=v.dtype)

    def _unroll(self, sums: list[Value], kept: list[Value]) -> int:
        """Several sums side by side where a single one would wait for its own last addition."""
        vectors = self.inner[-1].extent // self.lanes if self.inner else 0
        work = sum(self.phases.cost(v.args[0]) for v in sums)
        several = vectors >= ROW_SUM_VECTORS and work <= RECOMPUTE_SLOTS
        return ROW_SUMS if sums and not kept and several else 1

    def _row_values(self, p: int) -> list[Value]:
        return [v for v in self.region.members
                if self.region.is_row(v) and v.op.kind == "map" and self.phases.ready[v] == p
                and v.op.cost > 1]

    def _accumulate(self, e: Emitter, v: Value, variable: Operand) -> None:
        b, x = self.b, v.args[0]
        flat = self.region.full.replace(self.full)
        new = b.cast(e.element(x, unflatten(flat, x.shape)), dtype=variable.dtype)
        new = b.splat(new, variable.lanes)
        old = b.get(variable)
        total = b.emit(v.op.opcode, old, new)
        if e.mask is not None:
            total = b.select(e.mask, total, old)
        b.set(variable, total)


@contextmanager
def nested(b: Builder, loops: Sequence[Var]) -> Iterator[list[Operand]]:
    """Serial loops inside one another."""
    if not loops:
        yield []
        return
    with b.loop(0, loops[0].extent) as i, nested(b, loops[1:]) as rest:
        yield [i, *rest]


