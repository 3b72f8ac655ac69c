"""Translates reads `x[...]`, for all iterations of the loops at once.

An index that is a sum of loop variables becomes movement: slices, windows and transposes, which
cost nothing until something copies them. An index that is data becomes a lookup.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.dtypes import boolean
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.kernels.arithmetic import TileArithmetic, index_table
from ztorch.kernels.tiles import Affine, Axes, LoopTensor, LoopVar, reordered, spread, union


class BadIndex(Exception):
    """An invalid index."""


@dataclass(frozen=True)
class ElementIndex:
    """The index of an element or a slice: a place for each axis."""

    places: tuple[Affine | LoopTensor, ...]  # of each axis of the array
    own: Axes  # the axes of slices, in order
    shape: tuple[int, ...]  # of the result: that of slices, with axes of size 1 for None

    @property
    def vars(self) -> Axes:
        """Loop variables that places depend on, slices among them."""
        return union(tuple(p.terms) if isinstance(p, Affine) else p.axes for p in self.places)


def index_of(keys: Any, shape: tuple[int, ...]) -> ElementIndex:
    """The index that the keys in brackets mean for an array with a shape.

    Raises:
        BadIndex: There are too many keys, or some are no indices.
    """
    places: list[Affine | LoopTensor] = []
    own: list[LoopVar] = []
    result: list[int] = []
    for key in _key_of_each_axis(keys, shape):
        if key is None:
            result.append(1)
            continue
        n = shape[len(places)]
        if isinstance(key, slice):
            start, size, step = _span(key, n)
            var = LoopVar(":", size)
            own.append(var)
            result.append(size)
            places.append(Affine.of(start).plus(Affine({var: step})))
        else:
            places.append(_place(key, n))
    return ElementIndex(tuple(places), tuple(own), tuple(result))


def _key_of_each_axis(keys: Any, shape: tuple[int, ...]) -> list[Any]:
    """The keys, with slices for axes that have none, and None for new axes."""
    items = list(keys) if isinstance(keys, tuple) else [keys]
    count = sum(k is not None and k is not Ellipsis for k in items)
    if count and not shape:
        raise BadIndex("a number has no elements; leave out the index")
    if count > len(shape):
        raise BadIndex(f"{count} indices, but the array has the shape {list(shape)}; write "
                       f"{len(shape)} of them")
    rest = [slice(None)] * (len(shape) - count)
    for n, key in enumerate(items):
        if key is Ellipsis:
            return [*items[:n], *rest, *items[n + 1:]]
    return [*items, *rest]


def _place(key: Any, n: int) -> Affine | LoopTensor:
    """The place of one element along an axis of n."""
    if isinstance(key, LoopTensor):
        if key.dtype is boolean and key.shape:
            raise BadIndex("a mask would choose as many elements as the data say, but shapes "
                           "are known while compiling; write np.where(mask, x, 0.0)")
        if not key.dtype.is_int:
            raise BadIndex(f"an index must be an integer, not {key.dtype}; convert it with "
                           "np.int32(...)")
        if key.shape:
            raise BadIndex("an index must be a number, not an array; loop over its elements")
        return key
    if not isinstance(key, (Affine, int)) or isinstance(key, bool):
        fix = "divide by //, or convert it with int(...)" if isinstance(key, float) else (
            "use integers, slices, None and ...")
        raise BadIndex(f"{key!r} is not an index; {fix}")
    if isinstance(key, int) and -n <= key < 0:
        key += n
    return Affine.of(key)


def _span(key: slice, n: int) -> tuple[Affine | int, int, int]:
    """(start, size, step) of a slice. Its ends may depend on loops, its size may not."""
    step = 1 if key.step is None else key.step
    if not isinstance(step, int) or step == 0:
        raise BadIndex("the step of a slice must be an integer that is known while compiling, and "
                       "not 0")
    ends = (key.start, key.stop)
    if all(e is None or (isinstance(e, int) and not isinstance(e, bool)) for e in ends):
        span = range(*key.indices(n))
        return span.start, len(span), span.step
    if any(isinstance(e, LoopTensor) for e in ends) or step < 0:
        raise BadIndex("the ends of a slice must be sums of loop variables and integers; other "
                       "starts are written as a loop over the elements")
    start = Affine.of(0 if key.start is None else key.start)
    size = Affine.of(n if key.stop is None else key.stop).plus(start, -1).simple()
    if not isinstance(size, int):
        raise BadIndex(f"the slice has {size!r} elements, but programs have fixed sizes; write "
                       "start : start + size")
    return start, max(0, -(-size // step)), step


def read(arithmetic: TileArithmetic, source: LoopTensor, index: ElementIndex, guarded: bool
         ) -> LoopTensor:
    """The elements of an array at an index.

    Args:
        arithmetic: The arithmetic of the kernel.
        source: The array, for each iteration of the loops that it depends on.
        index: The index. Variables of sequential loops are data in it.
        guarded: Whether a condition may exclude iterations that read outside of the array. These
            read zeros, which are not used.
    """
    value = source.value
    labels: list[LoopVar | None] = list(source.axes)
    first = len(labels)
    data = [k for k, p in enumerate(index.places) if isinstance(p, LoopTensor)]
    lookup = index.places[data[0]] if data else None
    if needs_lookup(source, index):
        return _gathered(arithmetic, source, index)
    value, places = _padded(value, first, index.places, guarded)
    for k in reversed(range(len(places))):
        place = places[k]
        if isinstance(place, Affine):
            value, new = _moved(value, first + k, place)
            labels[first:first] = new
        else:
            labels[first:first] = [LoopVar("data", value.shape[first + k])]
    if isinstance(lookup, LoopTensor):
        at = next(k for k, v in enumerate(labels) if v is not None and v.name == "data")
        value = OPS.take(value, lookup.value, axis=at)
        labels[at:at + 1] = lookup.axes
    loops = union((v,) for v in labels if v is not None and v not in index.own)
    value = reordered(value, labels, (*loops, *index.own))
    return _shaped(LoopTensor(value, loops), index)


def needs_lookup(source: LoopTensor, index: ElementIndex) -> bool:
    """Whether an index is more than movement: a loop occurs twice, or several places are data."""
    used = [v for p in index.places if isinstance(p, Affine) for v in p.terms]
    data = [p for p in index.places if isinstance(p, LoopTensor)]
    looked_up = {v for p in data for v in p.axes}
    return (len(set(used)) < len(used) or len(data) > 1 or bool({*source.axes} & {*used})
            or bool(looked_up & {*used, *source.axes}))


def _shaped(tile: LoopTensor, index: ElementIndex) -> LoopTensor:
    shape = (*[v.extent for v in tile.axes], *index.shape)
    if shape == tile.value.shape:
        return tile
    return LoopTensor(OPS.reshape(tile.value, shape), tile.axes)


def _padded(value: Value, first: int, places: Sequence[Affine | LoopTensor], guarded: bool
            ) -> tuple[Value, list[Affine | LoopTensor]]:
    """A tensor padded with zeros wherever indices reach beyond it, and the shifted indices. All
    axes are padded at once, so that reads of them remain movement ops: for example, windows of
    padding. Elements that no index reaches are cut off before, so that a shifted read is padding of
    the shape of the loops, which fuses with other work on them."""
    before, after = [0] * value.rank, [0] * value.rank
    moved = list(places)
    for k, place in enumerate(places):
        if isinstance(place, Affine):
            n = value.shape[first + k]
            low, high = place.range
            if (low < 0 or high >= n) and not guarded:
                raise BadIndex(outside(low, high, n))
            if low >= 0 and high < n:
                continue
            before[first + k], after[first + k] = max(0, -low), max(0, high - n + 1)
            start, end = max(0, low), min(n, high + 1)
            if start >= end or len(place.terms) > 1:  # nothing is left, or windows
                start, end = 0, n
            value = _cut(value, first + k, start, 1, end - start)
            moved[k] = place.plus(before[first + k] - start)
    if any(before) or any(after):
        value = OPS.pad(value, tuple(before), tuple(after), False if value.dtype.kind == "b" else 0)
    return value, moved


def _moved(value: Value, axis: int, place: Affine) -> tuple[Value, list[LoopVar | None]]:
    """A tensor with an axis replaced by the axes of a place, and their labels."""
    terms = sorted(place.terms.items(), key=lambda item: -abs(item[1]))
    back = [v for v, c in terms if c < 0]  # counted from the end, then flipped
    start = place.const + sum(c * (v.extent - 1) for v, c in terms if c < 0)
    steps = [(v, abs(c)) for v, c in terms]
    labels: list[LoopVar | None]
    if not steps:
        return _cut(value, axis, start, 1, 1), [None]
    if len(steps) == 1:
        [(v, step)] = steps
        value, labels = _cut(value, axis, start, step, v.extent), [v]
    elif all(c == d * w.extent for (_, c), (w, d) in itertools.pairwise(steps)):
        shape = tuple(v.extent for v, _ in steps)
        value = _cut(value, axis, start, steps[-1][1], math.prod(shape))
        value = OPS.reshape(value, (*value.shape[:axis], *shape, *value.shape[axis + 1:]))
        labels = [v for v, _ in steps]
    elif len(steps) == 2:
        (v, stride), (w, gap) = steps
        value = _cut(value, axis, start, 1, (v.extent - 1) * stride + (w.extent - 1) * gap + 1)
        value = OPS.windows(value, (axis,), w.extent, stride, gap)
        rank = value.rank - 1
        value = OPS.transpose(value, (*range(axis + 1), rank, *range(axis + 1, rank)))
        labels = [v, w]
    else:
        at = np.zeros((), np.int64)
        for v, step in steps:
            at = at[..., None] + np.arange(v.extent) * step
        value = OPS.take(value, constant((at + start).astype(np.int32)), axis=axis)
        labels = [v for v, _ in steps]
    flipped = tuple(axis + k for k, v in enumerate(labels) if v in back)
    return (OPS.flip(value, flipped) if flipped else value), labels


def check_inside(index: ElementIndex, shape: Sequence[int]) -> None:
    """Raises a BadIndex if a place that is not data leaves an axis of an array."""
    for place, n in zip(index.places, shape, strict=True):
        low, high = place.range if isinstance(place, Affine) else (0, 0)
        if low < 0 or (high >= n and isinstance(place, Affine)):
            raise BadIndex(outside(low, high, n))


def outside(low: int, high: int, n: int) -> str:
    """The message for an index that leaves an axis of n elements."""
    reach = f"is {low}" if low == high else f"goes from {low} to {high}"
    return (f"the index {reach}, but this axis has {n} elements"
            f"{f' (0 to {n - 1})' if n else ''}; guard it with a condition, or change the bounds "
            "of the loop")


def _at(value: Value, axis: int, number: int) -> tuple[int, ...]:
    return tuple(number if k == axis else 0 for k in range(value.rank))


def _cut(value: Value, axis: int, start: int, step: int, size: int) -> Value:
    if (start, step, size) == (0, 1, value.shape[axis]):
        return value
    steps = tuple(step if k == axis else 1 for k in range(value.rank))
    sizes = tuple(size if k == axis else n for k, n in enumerate(value.shape))
    return OPS.slice(value, _at(value, axis, start), steps, sizes)


def _gathered(arithmetic: TileArithmetic, source: LoopTensor, index: ElementIndex) -> LoopTensor:
    """The elements at computed positions: a lookup in the flat array. Positions outside of an axis
    are clipped to its ends."""
    lengths = source.value.shape
    places = [*(Affine({v: 1}) for v in source.axes), *index.places]
    flat: Any = None
    stride = 1
    for place, n in reversed(list(zip(places, lengths, strict=True))):
        inside = isinstance(place, Affine) and place.range[0] >= 0 and place.range[1] < n
        part: Any = place if inside else arithmetic.apply(
            "clip", place, 0, n - 1)
        part = arithmetic.apply("mul", part, stride)
        flat = part if flat is None else arithmetic.apply("add", flat, part)
        stride *= n
    if flat is None:
        flat = index_table(np.zeros((), np.int32), ())
    loops = union([tuple(v for v in flat.axes if v not in index.own)])
    positions = spread(flat, (*loops, *index.own))
    target = (*[v.extent for v in (*loops, *index.own)],)
    if positions.shape != target:
        positions = OPS.broadcast_to(positions, target)
    value = OPS.take(OPS.reshape(source.value, (math.prod(lengths),)), positions, axis=0)
    return _shaped(LoopTensor(value, loops), index)
