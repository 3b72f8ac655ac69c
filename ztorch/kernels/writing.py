"""The effect of `x[...] = y` and `x[...] += y` on an array, in every iteration of the loops at
once.

If each iteration writes a different element, the new array consists of the written elements, moved
to their positions. Iterations that write the same element must combine: their sum, product, largest
or smallest.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from ztorch.dtypes import DType, i32
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.opcodes import identity
from ztorch.kernels.arithmetic import TileArithmetic, misfit
from ztorch.kernels.overlap import overlaps
from ztorch.kernels.placing import (
    Runs,
    arrange,
    pad_elements,
    place_elements,
    replace_runs,
    runs_of,
)
from ztorch.kernels.reading import BadIndex, ElementIndex, outside
from ztorch.kernels.tiles import Affine, Axes, LoopTensor, LoopVar, full, union

# How iterations combine: the op on two elements, the op along axes, and the opcode of its neutral
# value.
COMBINE = {"add": ("add", "sum", "add"), "mul": ("mul", "prod", "mul"),
           "minimum": ("minimum", "min", "min"), "maximum": ("maximum", "max", "max"),
           "logical_and": ("logical_and", "all", "and"), "logical_or": ("logical_or", "any", "or")}


def neutral(reduction: str, d: DType) -> Any:
    """The neutral element of a reduction."""
    if d.kind == "b":
        return reduction == "logical_and"
    return identity(COMBINE[reduction][2], d)


def reduce_iterations(arithmetic: TileArithmetic, x: LoopTensor, condition: Any, over: Axes,
                      reduction: str, d: DType, contiguous: Collection[LoopVar] = ()
                      ) -> LoopTensor:
    """The combined values of the iterations of some loops.

    Args:
        arithmetic: The arithmetic of the kernel.
        x: The value of each iteration.
        condition: Which iterations count.
        over: The loops.
        reduction: A key of `COMBINE`.
        d: Dtype of the result.
        contiguous: Loops whose consecutive iterations read adjacent elements. Default: `()`.
    """
    x = arithmetic.cast(x, d)
    if condition is not True:
        x = arithmetic.choose(condition, x, LoopTensor(OPS.full((), neutral(reduction, d), d)))
    axes = union([x.axes, over])
    if not over:
        return x
    value = full(x, axes)
    result_axes = tuple(v for v in axes if v not in over)
    order = axes
    if (not x.shape and result_axes and result_axes[-1] in contiguous
            and not {*over} & {*contiguous}):
        # Last, the loops that remain fill vectors.
        order = (*(v for v in axes if v in over), *result_axes)
        value = OPS.transpose(value, tuple(axes.index(v) for v in order))
    value = getattr(OPS, COMBINE[reduction][1])(value, axis=tuple(order.index(v) for v in over))
    return LoopTensor(value if value.dtype is d else OPS.cast(value, d), result_axes)


def write(arithmetic: TileArithmetic, array: LoopTensor, index: ElementIndex, new: LoopTensor,
          condition: Any, inner: Axes, reduction: str | None) -> LoopTensor:
    """The array after the writes of all iterations.

    Args:
        arithmetic: The arithmetic of the kernel.
        array: The array, for each iteration of the loops that it belongs to.
        index: Where each iteration writes.
        new: The value that it writes.
        condition: Which iterations write: True, or a tile of bools.
        inner: The parallel loops inside those that the array belongs to.
        reduction: A key of `COMBINE`: how iterations combine; None: each element is written once,
            or the last iteration counts.

    Raises:
        BadIndex: The index leaves the array.
    """
    d = array.dtype
    if (n := misfit(arithmetic.tile(new), d)) is not None:
        raise BadIndex(f"{n} does not fit into an array of {d}; make the array of a wider dtype")
    new = _labeled(arithmetic.cast(new, d), index)
    conditions = () if condition is True else condition.axes
    own = union([array.axes, *(tuple(v for v in axes if v not in inner and v not in index.own)
                               for axes in (new.axes, conditions, index.vars))])
    array = LoopTensor(full(array, own), own)
    missing = tuple(v for v in inner if v not in index.vars and v.extent > 1)
    shared = {*own} & {*index.vars}  # each iteration writes to its own array, at a place of its own
    if any(isinstance(p, LoopTensor) for p in index.places) or not _injective(index) or (
            missing and reduction is None) or shared:
        return _scattered(arithmetic, array, index, new, condition, inner, reduction)
    _check_bounds(index, array.shape, condition)
    if reduction is not None:
        new = reduce_iterations(arithmetic, new, condition, missing, reduction, d)
    old, plain = array.value, condition is True and reduction is None
    tiles = [new]  # of a reduction, a condition has chosen neutral elements
    if condition is not True and reduction is None:
        tiles.append(_labeled(condition, index))

    def combined(before: Value, after: Value, *where: Value) -> Value:
        if reduction is not None:
            return getattr(OPS, COMBINE[reduction][0])(before, after)
        return OPS.where(*where, after, before) if where else after

    runs = _regular_runs(index, array.shape)
    partial = [r for r, n in zip(runs or (), array.shape, strict=False) if r.width < n]
    strided = any(r.count > 1 for r in partial)
    if runs and partial and not strided and plain and old.op.name == "full":
        return LoopTensor(pad_elements(new, own, index, array.shape, old.attrs["value"]), own)
    if runs is not None and (strided or len(partial) <= plain):
        arranged = [arrange(tile, own, index) for tile in tiles]
        return LoopTensor(replace_runs(old, arranged, runs, len(own), combined), own)
    placed = [place_elements(tile, own, index, array.shape) for tile in tiles]
    value, covered = combined(old, *(v for v, _ in placed)), placed[0][1]
    return LoopTensor(value if covered is None else OPS.where(covered, value, old), own)


def _regular_runs(index: ElementIndex, shape: tuple[int, ...]) -> list[Runs] | None:
    """The runs of positions on each axis; None if some positions are none, or outside."""
    runs = [runs_of(p) for p in index.places if isinstance(p, Affine)]
    inside = [r for r, n in zip(runs, shape, strict=True) if r is not None and r.is_within(n)]
    return inside if len(inside) == len(runs) else None


def combined_first(arithmetic: TileArithmetic, d: DType, index: ElementIndex, new: LoopTensor,
                   condition: Any, inner: Axes, reduction: str
                   ) -> tuple[Any, Axes, LoopTensor]:
    """The condition, inner loops and value of a `write` that follows later, where iterations that
    write the same element are combined at once."""
    if not all(isinstance(p, Affine) for p in index.places):
        return condition, inner, new
    missing = tuple(v for v in inner if v not in index.vars and v.extent > 1)
    if not missing:
        return condition, inner, new
    new = reduce_iterations(arithmetic, _labeled(new, index), condition, missing, reduction, d)
    return True, tuple(v for v in inner if v not in missing), new


def _labeled(new: LoopTensor, index: ElementIndex) -> LoopTensor:
    """A tile whose own axes are those of the slices that it is written to."""
    if not new.shape and not index.own:
        return new
    try:
        np.broadcast_shapes(new.shape, index.shape)
        fits = len(new.shape) <= len(index.shape)
    except ValueError:
        fits = False
    if not fits:
        place = f"a place of shape {list(index.shape)}" if index.shape else "one element"
        raise BadIndex(f"an array of shape {list(new.shape)} does not fit {place}")
    if not new.shape:
        return new
    value = full(new, new.axes, index.shape)
    loops = [v.extent for v in new.axes]
    value = OPS.reshape(value, (*loops, *(v.extent for v in index.own)))
    return LoopTensor(value, (*new.axes, *index.own))


def _injective(index: ElementIndex) -> bool:
    """Whether different iterations write different elements."""
    seen: set[LoopVar] = set()
    for place in index.places:
        assert isinstance(place, Affine)
        if seen & {*place.terms} or overlaps(place):
            return False
        seen |= {*place.terms}
    return True


def _check_bounds(index: ElementIndex, shape: tuple[int, ...], condition: Any) -> None:
    for place, n in zip(index.places, shape, strict=True):
        assert isinstance(place, Affine)
        low, high = place.range
        if (low < 0 or high >= n) and condition is True:
            raise BadIndex(outside(low, high, n))


# -- positions that are data -----------------------------------------------------------------------


def _scattered(arithmetic: TileArithmetic, array: LoopTensor, index: ElementIndex,
               new: LoopTensor, condition: Any, inner: Axes, reduction: str | None) -> LoopTensor:
    own, d = array.axes, array.dtype
    lengths = array.value.shape
    places = [*(Affine({v: 1}) for v in own), *index.places]
    rows = _whole_axes(places, lengths, condition) if reduction == "add" else ()
    count = len(places) - len(rows)
    flat: Any = 0
    inside: Any = condition
    stride = 1
    alone = condition is True and all(map(_certain, places[1:count], lengths[1:count])) and (
        isinstance(places[0], Affine) or places[0].dtype.bits <= i32.bits)
    for k in reversed(range(count)):
        place, n = places[k], lengths[k]
        if not _certain(place, n) and not (k == 0 and alone and stride == 1 and reduction == "add"):
            inside = arithmetic.both(inside, arithmetic.both(
                arithmetic.apply("greater_equal", place, 0), arithmetic.apply("less", place, n)))
        flat = arithmetic.apply("add", flat, arithmetic.apply("mul", place, stride)) if (
            count > 1) else place
        stride *= n
    if inside is not True:
        flat = arithmetic.choose(inside, flat, -1)
    flat = arithmetic.cast(flat, i32)
    axes = tuple(v for v in union([flat.axes, new.axes, inner, own, index.own]) if v not in rows)
    positions = OPS.reshape(full(flat, axes), (-1,))
    order = (*axes, *rows)
    known = union([order])
    updates = OPS.transpose(full(new, known), tuple(known.index(v) for v in order))
    size, wide = math.prod(lengths[:count]), lengths[count:]
    updates = OPS.reshape(updates, (positions.size, *wide))
    old = OPS.reshape(array.value, (size, *wide))
    if reduction == "add":  # places outside count nowhere
        value = OPS.scatter_add(old, positions, updates, axis=0)
    else:
        value = _compared(old, positions, updates, reduction, d)
    return LoopTensor(OPS.reshape(value, lengths), own)


def _certain(place: Any, n: int) -> bool:
    """Whether a place is inside an axis of n elements for certain."""
    return isinstance(place, Affine) and place.range[0] >= 0 and place.range[1] < n


def _whole_axes(places: list[Any], lengths: tuple[int, ...], condition: Any) -> Axes:
    """The loops of the last places that run over whole axes, and that nothing else depends on:
    there, iterations write whole rows."""
    rows: Axes = ()
    used = {*(() if condition is True else condition.axes)}
    for place, n in reversed(list(zip(places, lengths, strict=True))):
        [v, *others] = place.terms if isinstance(place, Affine) and place.terms else [None]
        if v is None or others or place.terms[v] != 1 or place.const or v.extent != n or v in rows:
            break
        rows = (v, *rows)
    for place in places[:len(places) - len(rows)]:
        used |= {*(place.terms if isinstance(place, Affine) else place.axes)}
    return () if used & {*rows} else rows


def _compared(old: Value, positions: Value, updates: Value, reduction: str | None,
              d: DType) -> Value:
    """Each element is compared with the positions of all iterations, to find those that write
    it."""
    count, size = positions.size, old.size
    matches = OPS.equal(OPS.reshape(positions, (1, count)), OPS.iota((size, 1), 0))
    if reduction is None:  # the last iteration counts
        last = OPS.max(OPS.where(matches, OPS.iota((size, count), 1), -1), axis=1)
        return OPS.where(OPS.greater_equal(last, 0),
                         OPS.take(updates, OPS.maximum(last, 0), axis=0), old)
    fill = OPS.full((size, count), neutral(reduction, d), d)
    candidates = OPS.where(matches, OPS.broadcast_to(updates, (size, count)), fill)
    binary, along_axis = (getattr(OPS, name) for name in COMBINE[reduction][:2])
    return binary(old, along_axis(candidates, axis=1))
