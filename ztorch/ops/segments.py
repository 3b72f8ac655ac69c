"""Ops that put numbers at places: segments, scattering, labels as ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.composition import composition
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, constant, normal_axes, shape_error
from ztorch.graph.value import Value
from ztorch.ops.indexing import need_integers
from ztorch.ops.scattering import combined_at

_IDS = np.array([0, 2, 1, 2], np.int32)
_PLACES = np.array([[0, 1], [2, 0], [1, 1]], np.int32)


def _number(num_segments: Any, name: str) -> int:
    if not isinstance(num_segments, (int, np.integer)) or num_segments < 1:
        raise shape_error(f"ops.{name} needs num_segments=, the number of segments: shapes do not "
                          "depend on numbers")
    return int(num_segments)


def _combined(opcode: str, data: Value, ids: Value, count: int) -> Value:
    """The rows of each segment, combined by an opcode."""
    width = math.prod(data.shape[1:])
    table = combined_at(opcode, OPS.reshape(data, (1, data.shape[0], width)),
                        OPS.reshape(ids, (1, -1, 1)), count)
    return OPS.reshape(table, (count, *data.shape[1:]))


class _SegmentRows:
    """What gradients know of rows: whether each is in a segment, and the row of its segment."""

    def __init__(self, data: Value, ids: Value, count: int):
        inside = OPS.logical_and(ids >= 0, ids < count)
        self.inside = OPS.reshape(inside, (-1, *(1,) * (data.rank - 1)))
        self.at = OPS.where(inside, ids, 0)

    def of(self, table: Value) -> Value:
        """The row of each row's segment."""
        return OPS.take(table, self.at, 0)


def _extreme(opcode: str, data: Value, ids: Value, count: int) -> Value:
    """The largest or smallest rows of each segment."""
    ids = OPS.reshape(ids, (-1,))
    if not data.dtype.is_float:
        return _combined(opcode, data, ids, count)
    y = OPS.stop_gradient(_combined(opcode, data, ids, count))

    def rule(upstreams: Any, args: Any, shared: Any) -> list[Value]:
        """Rows that are equal to the result share its gradient."""
        [slope], [data], (ids, y) = upstreams, args, shared
        rows = _SegmentRows(data, ids, count)
        hit = OPS.logical_and(OPS.equal(data, rows.of(y)), rows.inside)
        shares = segment_sum(OPS.cast(hit, data.dtype), ids, count)
        return [OPS.where(hit, rows.of(slope / OPS.maximum(shares, 1.0)), 0.0)]

    return with_gradient([y], [data], [ids, y], rule)[0]


def _product(data: Value, ids: Value, count: int) -> Value:
    """The products of the rows of each segment."""
    ids = OPS.reshape(ids, (-1,))
    if not data.dtype.is_float:
        return _combined("mul", data, ids, count)
    y = OPS.stop_gradient(_combined("mul", data, ids, count))

    def rule(upstreams: Any, args: Any, shared: Any) -> list[Value]:
        """The product of all others, right also where a number is zero."""
        [slope], [data], [ids] = upstreams, args, shared
        rows, zero = _SegmentRows(data, ids, count), OPS.equal(data, 0.0)
        zeros = segment_sum(OPS.cast(zero, data.dtype), ids, count)
        others = rows.of(slope * _product(OPS.where(zero, 1.0, data), ids, count))
        zeros = rows.of(zeros) - OPS.cast(zero, data.dtype)  # among the others
        slopes = OPS.where(zero, others, others / OPS.where(zero, 1.0, data))
        return [OPS.where(OPS.logical_and(rows.inside, OPS.equal(zeros, 0.0)), slopes, 0.0)]

    return with_gradient([y], [data], [ids], rule)[0]


@composition(Sample(((4, 3), _IDS), {"num_segments": 4}))
def segment_sum(data: Value, segment_ids: Value, num_segments: int | None = None,
                sorted: bool = False) -> Value:
    """The sum of the rows of each segment.

    Args:
        data: Rows of numbers.
        segment_ids: The segment of each row, an integer vector. Rows out of range are ignored.
        num_segments: Number of segments. Required. Default: `None`.
        sorted: Has no effect. Default: `False`.

    Returns:
        A row for each segment.
    """
    count = _number(num_segments, "segment_sum")
    zeros = OPS.full((count, *data.shape[1:]), 0, data.dtype)
    return OPS.scatter_add(zeros, segment_ids, data)


@composition(Sample(((4, 3), _IDS), {"num_segments": 3}))
def segment_max(data: Value, segment_ids: Value, num_segments: int | None = None,
                sorted: bool = False) -> Value:
    """The largest numbers of the rows of each segment.

    Args:
        data: Rows of numbers.
        segment_ids: The segment of each row, an integer vector. Rows out of range are ignored.
        num_segments: Number of segments. Required. Default: `None`.
        sorted: Has no effect. Default: `False`.

    Returns:
        A row for each segment; that of an empty one holds the least that the dtype has.
    """
    count = _number(num_segments, "segment_max")
    return _extreme("max", data, need_integers("segment_max", segment_ids), count)


@composition(Sample(((4, 3), _IDS), {"num_segments": 3}))
def segment_min(data: Value, segment_ids: Value, num_segments: int | None = None,
                sorted: bool = False) -> Value:
    """The smallest numbers of the rows of each segment.

    Args:
        data: Rows of numbers.
        segment_ids: The segment of each row, an integer vector. Rows out of range are ignored.
        num_segments: Number of segments. Required. Default: `None`.
        sorted: Has no effect. Default: `False`.

    Returns:
        A row for each segment; that of an empty one holds the most that the dtype has.
    """
    count = _number(num_segments, "segment_min")
    return _extreme("min", data, need_integers("segment_min", segment_ids), count)


@composition(Sample(((4, 3), _IDS), {"num_segments": 3}))
def segment_prod(data: Value, segment_ids: Value, num_segments: int | None = None,
                 sorted: bool = False) -> Value:
    """The products of the rows of each segment.

    Args:
        data: Rows of numbers.
        segment_ids: The segment of each row, an integer vector. Rows out of range are ignored.
        num_segments: Number of segments. Required. Default: `None`.
        sorted: Has no effect. Default: `False`.

    Returns:
        A row for each segment; that of an empty one holds ones.
    """
    count = _number(num_segments, "segment_prod")
    return _product(data, need_integers("segment_prod", segment_ids), count)


# The functions that combine updates of one place, and these with the old value.
_REDUCTIONS: dict[str | None, tuple[Callable[..., Value], Callable[..., Value]]] = {
    "max": (segment_max, lambda a, b: OPS.maximum(a, b)),
    "min": (segment_min, lambda a, b: OPS.minimum(a, b)),
    "mul": (segment_prod, lambda a, b: OPS.mul(a, b))}


def _flat_places(indices: Value, shape: tuple[int, ...]) -> Value:
    """Places in the leading axes of a shape as positions in them flattened; -1 outside of it.
    Negative indices count from the end of their axis."""
    depth = indices.shape[-1]
    if depth > len(shape):
        raise shape_error(f"each index names {depth} axes, and the shape has fewer:", shape)
    indices = OPS.cast(indices, "int64" if indices.dtype.bits == 64 else "int32")
    sizes = constant(np.array(shape[:depth]), indices.dtype)
    steps = np.cumprod([1, *reversed(shape[1:depth])])[::-1]
    indices = OPS.where(indices < 0, indices + sizes, indices)
    inside = OPS.all(OPS.logical_and(indices >= 0, indices < sizes), axis=-1)
    flat = OPS.sum(indices * constant(steps, indices.dtype), axis=-1)
    return OPS.reshape(OPS.where(inside, flat, -1), (-1,))


@composition(Sample((_PLACES, (3,)), {"shape": (3, 2)}))
def scatter(indices: Value, values: Value, shape: tuple[int, ...]) -> Value:
    """Zeros of a shape with values at places; values at the same place add up.

    Args:
        indices: Places `(..., axes)`: an integer for each of the first axes. Negative ones count
            from the end; places outside of the shape are ignored.
        values: The value at each place: a number, or a slice of the other axes.
        shape: The shape of the result.

    Returns:
        A tensor of that shape and the dtype of `values`.
    """
    shape, depth = tuple(map(int, shape)), indices.shape[-1]
    flat = OPS.full((int(np.prod(shape[:depth])), *shape[depth:]), 0, values.dtype)
    rows = OPS.reshape(values, (-1, *shape[depth:]))
    return OPS.reshape(OPS.scatter_add(flat, _flat_places(indices, shape), rows), shape)


@composition(Sample(((3, 2), _PLACES, (3,))))
def scatter_update(inputs: Value, indices: Value, updates: Value,
                   reduction: str | None = None) -> Value:
    """A tensor with other values at places; of those at the same place the last one stays.

    Args:
        inputs: Tensor of any dtype.
        indices: Places `(n, axes)`: an integer for each of the first axes. Negative ones count from
            the end; places outside of `inputs` are ignored.
        updates: The new values: numbers, or slices of the other axes.
        reduction: How an update changes the old value: `"add"`, `"max"`, `"min"` or `"mul"`. `None`
            replaces it. Default: `None`.

    Returns:
        A tensor of the shape and dtype of `inputs`.
    """
    if reduction not in (None, "add", *_REDUCTIONS):
        raise shape_error(f"ops.scatter_update(reduction={reduction!r}) must be None, 'add', "
                          "'max', 'min' or 'mul'")
    if inputs.dtype.kind == "b":
        inputs, updates = OPS.cast(inputs, "uint8"), OPS.cast(updates, "uint8")
        return OPS.cast(scatter_update(inputs, indices, updates, reduction), "bool")
    depth = indices.shape[-1]
    places = _flat_places(indices, inputs.shape)
    flat = OPS.reshape(inputs, (-1, *inputs.shape[depth:]))
    rows = OPS.cast(OPS.reshape(updates, (-1, *inputs.shape[depth:])), inputs.dtype)
    if reduction in _REDUCTIONS:
        of_places, combine = _REDUCTIONS[reduction]
        return OPS.reshape(combine(flat, of_places(rows, places, flat.shape[0])), inputs.shape)
    if reduction is None:
        return OPS.reshape(_replaced(flat, places, rows), inputs.shape)
    return OPS.reshape(OPS.scatter_add(flat, places, rows), inputs.shape)


def _replaced(x: Value, places: Value, rows: Value) -> Value:
    """x with rows at places; of several at one place the last one."""
    if not rows.size:
        return x
    order = OPS.argsort(places)
    places = OPS.take(places, order, 0)
    behind = OPS.concat(places[1:], OPS.full((1,), -1, places.dtype), axis=0)
    places = OPS.where(OPS.equal(places, behind), -1, places)
    none = OPS.full(x.shape[:1], 0, "int32")
    number = OPS.scatter_add(none, places, OPS.cast(order, "int32") + 1)  # of the row, from 1
    hit = OPS.reshape(OPS.greater(number, 0), (-1, *(1,) * (x.rank - 1)))
    return OPS.where(hit, OPS.take(rows, OPS.maximum(number - 1, 0), 0), x)


@composition(Sample(((3, 4), np.array([1, 0], np.int32), (2, 2))))
def slice_update(inputs: Value, start_indices: Value, updates: Value) -> Value:
    """A tensor with another block of elements in it.

    Args:
        inputs: Tensor of any dtype.
        start_indices: Where the block begins: an integer for each axis.
        updates: The block, of as many axes and the same dtype.

    Returns:
        A tensor of the shape and dtype of `inputs`.
    """
    y, inside = updates, None
    start_indices = need_integers("slice_update", start_indices)
    for a, n in enumerate(inputs.shape):
        place = OPS.iota((n,), 0, start_indices.dtype) - start_indices[a]
        mask = OPS.logical_and(place >= 0, place < updates.shape[a])
        mask = OPS.reshape(mask, tuple(-1 if k == a else 1 for k in range(inputs.rank)))
        inside = mask if inside is None else OPS.logical_and(inside, mask)
        y = OPS.take(y, OPS.clip(place, 0, updates.shape[a] - 1), a)
    return y if inside is None else OPS.where(inside, y, inputs)


@composition(Sample((np.array([[0, 2], [1, 1]], np.int32),), {"num_classes": 3}))
def multi_hot(inputs: Value, num_classes: int | None = None, axis: int = -1,
              dtype: DType | str | None = None, sparse: bool = False) -> Value:
    """1 at the classes of each row and 0 elsewhere.

    Args:
        inputs: Rows of class numbers, or one row.
        num_classes: Number of classes, which must be given. Default: `None`.
        axis: The axis of the classes, which is the last. Default: `-1`.
        dtype: Dtype of the result. `None` means float32. Default: `None`.
        sparse: Must be false. Default: `False`.

    Returns:
        A tensor with the classes in place of the second axis, or of the only one.
    """
    if sparse or normal_axes(axis, inputs.rank + 1) != (inputs.rank,):
        raise shape_error("ops.multi_hot puts classes last, and is not sparse")
    ones = OPS.one_hot(inputs, _number(num_classes, "multi_hot"), dtype or "float32")
    return OPS.max(ones, 1 if inputs.rank > 1 else 0)
