"""Parts of the loop nests of all regions: vectors along an axis, nested loops, and the values of a
region at one position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod

from ztorch.dtypes import DType, f32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.halves import HALVES
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.insets import INTERLEAVED, position_in_part
from ztorch.lower.positions import unflatten
from ztorch.lower.region import Region, view_of


def widest(region: Region) -> DType:
    """The dtype that determines the vector length: the widest float, else the widest dtype."""
    floats = [v.dtype for v in region.members if v.dtype.is_float]
    return max(floats or [v.dtype for v in region.members], key=lambda d: d.bits)


def summing(d: DType) -> DType:
    """The dtype of sums: in 16-bit floats small addends would be lost."""
    return f32 if d in HALVES else d


def multiply_add(b: Builder, limits: Limits, x: Operand, y: Operand, total: Operand,
                 dot: str = "") -> Operand:
    """total + x * y, in one instruction where the machine has it. If `dot` names an opcode, x and y
    are words of several numbers, which that opcode multiplies."""
    if dot:
        return b.emit(dot, x, y, total)
    if limits.fma and total.dtype.is_float:
        return b.fma(x, y, total)
    return b.add(total, b.mul(x, y))


def added(e: Emitter, region: Region, limits: Limits, v: Value, full: dict[Var, Index],
          total: Operand) -> Operand:
    """The total of a reduction after adding the element at the position `full` of the region."""
    b, x, e = e.b, v.args[0], replace(e, place=full)
    index = unflatten(region.full.replace(full), x.shape)
    base = view_of(x, index)
    if base and v.op.opcode == "add" and base[0].op.opcode == "mul" and (
            base[0] in region.flat and base[0].dtype is total.dtype):
        at = unflatten(base[1], base[0].shape)
        left, right = (b.splat(e.element(a, at), total.lanes) for a in base[0].args)
        return multiply_add(b, limits, left, right, total)
    new = b.splat(b.cast(e.element(x, index), dtype=total.dtype), total.lanes)
    return b.emit(v.op.opcode, total, new)


def vectors(e: Emitter, var: Var, lanes: int, parallel: bool = False,
            unroll: int = 1) -> Iterator[tuple[Emitter, int]]:
    """Scopes that cover [0, var.extent), each with its number in an iteration of the loop, of which
    there are `unroll`, so that each can have its own accumulator."""
    for scopes in side_by_side(e, var, lanes, parallel, unroll):
        yield from zip(scopes, range(len(scopes)), strict=True)


def side_by_side(e: Emitter, var: Var, lanes: int, parallel: bool,
                 unroll: int) -> Iterator[list[Emitter]]:
    """Scopes that cover [0, var.extent): a loop over whole vectors, `unroll` per iteration, then
    one masked remainder."""
    b, full = e.b, var.extent // max(lanes, 1) * lanes
    kind = "parallel" if parallel else "serial"
    if lanes == unroll == 1:
        with b.loop(0, var.extent, kind=kind) as i:
            yield [e.within(bound={**e.bound, var: i})]
        return
    lane = var if lanes > 1 else None
    vectors, covered = full // lanes, 0
    for times in (unroll, 1):
        trip_count = (vectors - covered) // times
        if not trip_count:
            continue
        with b.loop(0, trip_count, kind=kind) as k:
            start = b.add(b.mul(k, lanes * times), covered * lanes)
            yield [e.within(bound={**e.bound, var: b.add(start, u * lanes)}, lane=lane, lanes=lanes,
                            mask=None) for u in range(times)]
        covered += trip_count * times
    if full < var.extent:
        with _once(b, parallel):
            mask = b.lt(b.iota(lanes), var.extent - full)
            start = b.const(full, b.index)
            yield [e.within(bound={**e.bound, var: start}, lane=var, lanes=lanes, mask=mask)]


@contextmanager
def _once(b: Builder, parallel: bool) -> Iterator[None]:
    """A body that only one worker runs."""
    if not parallel:
        yield
        return
    with b.loop(0, 1, kind="parallel"):
        yield


def evaluate(e: Emitter, values: Sequence[Value], region: Region, full: dict[Var, Index],
             target: Mapping[Value, str]) -> None:
    """Computes values at the position of a scope, then stores those in `target`.

    All stores come last, so nothing is read after it was overwritten in place; those of runs, which
    are never in place, as soon as they are computed."""
    worked_out(e, values, region, full, target)()


def worked_out(e: Emitter, values: Sequence[Value], region: Region, full: dict[Var, Index],
               target: Mapping[Value, str]) -> Callable[[], None]:
    """Computes the same, and returns what emits the stores."""
    results: list[tuple[Value, Index, list[Operand]]] = []
    e = replace(e, place=full)
    stored = [v for v in values if v in target]
    if stored and all(v.op is INTERLEAVED and v.attrs["run"] > 1 for v in stored):
        return partial(_evaluate_runs, e, stored, region, full, target)
    for v in stored:
        flat = region.flat[v].replace(full)
        x = e.element(v, unflatten(flat, v.shape))
        results.append((v, flat, [x] if v.op is not INTERLEAVED else [
            e.element(a, unflatten(position_in_part(v, flat), a.shape)) for a in v.args]))

    def store() -> None:
        for v, flat, xs in results:
            if v.op is INTERLEAVED:
                e.store_interleaved(target[v], v, flat, xs)
            else:
                e.store(target[v], v, flat, *xs)
    return store


def _evaluate_runs(e: Emitter, values: Sequence[Value], region: Region, full: dict[Var, Index],
                   target: Mapping[Value, str]) -> None:
    """Computes values in runs, and stores each at once: many would not fit in registers."""
    count = max(len(v.args) for v in values)
    for k in range(count):
        for v in values:
            if k < len(v.args):
                flat = region.flat[v].replace(full)
                a, run = v.args[k], v.attrs["run"]
                x = e.element(a, unflatten(position_in_part(v, flat), a.shape))
                e.store(target[v], v, flat + k * run, x)


def spread(e: Emitter, flat: Operand, loops: Sequence[Var]) -> dict[Var, Operand]:
    """Bindings of loop variables, computed from one flat counter."""
    counter = Var("flat", prod(v.extent for v in loops))
    scope = e.within(bound={**e.bound, counter: flat})
    parts = unflatten(Index.of(counter), [v.extent for v in loops])
    return {**e.bound, **{v: scope.value(i) for v, i in zip(loops, parts, strict=True)}}


@contextmanager
def nested(b: Builder, loops: Sequence[Var]) -> Iterator[list[Operand]]:
    """Nested serial loops."""
    if not loops:
        yield []
        return
    with b.loop(0, loops[0].extent) as i, nested(b, loops[1:]) as rest:
        yield [i, *rest]
