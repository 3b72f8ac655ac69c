"""Crops with a separate, data-dependent position for each example."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.batching import Examples
from ztorch.graph.op import OPS, Sample, op, shape_error
from ztorch.graph.value import Op, Value

Shape = tuple[int, ...]


def _starts(start: Any, room: int) -> Any:
    return np.clip(np.asarray(start, np.int64), 0, room)  # a bad start stays inside the tensor


def _cut_infer(x: Value, start: Value, size: int, axis: int) -> tuple[Shape, DType]:
    return (*x.shape[:axis], size, *x.shape[axis + 1:]), x.dtype


def _cut_numpy(x: Any, start: Any, size: int, axis: int) -> Any:
    rows = zip(x, _starts(start, x.shape[axis] - size), strict=True)
    return np.stack([np.take(row, np.arange(s, s + size), axis - 1) for row, s in rows])


def _cut_body(e: Any, index: Any, size: int, axis: int) -> Any:
    start = e.index(e.read(1, index[:1]), e.shape(0)[axis] - size + 1)
    return e.read(0, (*index[:axis], index[axis] + start, *index[axis + 1:]))


def _cut_grad(o: Any, g: Value, y: Value, x: Value, start: Value, size: int, axis: int) -> tuple:
    return _PUT(g, start, size=x.shape[axis], axis=axis), None


def _put_numpy(x: Any, start: Any, size: int, axis: int) -> Any:
    out = np.zeros((*x.shape[:axis], size, *x.shape[axis + 1:]), x.dtype)
    n = x.shape[axis]
    for row, source, s in zip(out, x, _starts(start, size - n), strict=True):
        np.moveaxis(row, axis - 1, 0)[s:s + n] = np.moveaxis(source, axis - 1, 0)
    return out


def _put_body(e: Any, index: Any, size: int, axis: int) -> Any:
    n = e.shape(0)[axis]
    at = index[axis] - e.index(e.read(1, index[:1]), size - n + 1)
    inside = e.within((at,), (0,), (n,))
    x = e.read(0, (*index[:axis], at, *index[axis + 1:]), where=inside)
    return x if inside is None else e.b.select(inside, x, 0)


def _put_grad(o: Any, g: Value, y: Value, x: Value, start: Value, size: int, axis: int) -> tuple:
    return _CUT(g, start, size=x.shape[axis], axis=axis), None


def _batch(one: Value, many: Examples, size: int, axis: int) -> Value:
    """Batches of examples as one batch."""
    x, start = many.spread()
    rows = OPS.reshape(x, (math.prod(x.shape[:2]), *x.shape[2:]))
    y = one.op(rows, OPS.reshape(start, (start.size,)), size=size, axis=axis)
    return OPS.reshape(y, (many.count, *one.shape))


# Each is the other's gradient.
_CUT = Op("cut", "map", _cut_infer, _cut_numpy, _cut_grad, _cut_body, cost=4, batch=_batch)
_PUT = Op("put", "map", _cut_infer, _put_numpy, _put_grad, _put_body, cost=6, batch=_batch)


@op(Sample(((3, 7, 4), np.array([0, 3, 2], np.int32)), {"size": 4, "axis": 1}, dtypes="fs"),
    Sample(((3, 2, 9), np.array([5, -1, 99], np.int32)), {"size": 4, "axis": 2}),
    Sample(((2, 5), np.array([0, 0], np.int32)), {"size": 5, "axis": -1}), primitive=_CUT,
    numpy=lambda x, start, size, axis: _cut_numpy(x, start, size, axis % x.ndim))
def crop(x: Value, start: Value, size: int, axis: int) -> Value:
    """A slice of each example along an axis, with a separate start for each.

    Args:
        x: Tensor `(batch, ...)`.
        start: First position of each example, an integer tensor `(batch,)`. Values out of range are
            clamped to the nearest valid start.
        size: Number of elements to keep.
        axis: Axis to crop, not the batch.

    Returns:
        A tensor of the shape of `x` with `size` elements along the axis.

    Examples:
        >>> from ztorch.graph.evaluate import evaluate
        >>> from ztorch.graph.op import constant
        >>> rows = constant(np.arange(8.0).reshape(2, 4))
        >>> starts = constant(np.array([0, 2], np.int32))
        >>> evaluate([crop(rows, starts, 2, axis=1)], {})[0].tolist()
        [[0.0, 1.0], [6.0, 7.0]]
    """
    a = axis % x.rank if -x.rank <= axis < x.rank else 0
    if a == 0:
        raise shape_error(f"ops.crop cannot cut along axis {axis} of", x.shape,
                          fix="use an axis of the examples, 1 or above")
    if start.shape != x.shape[:1] or not start.dtype.is_int:
        raise shape_error(f"ops.crop needs an integer for each of {x.shape[0]} examples, not "
                          f"{start.dtype} of shape", start.shape)
    if not 1 <= size <= x.shape[a]:
        raise shape_error(f"cannot cut {size} elements from axis {axis} of", x.shape)
    return _CUT(x, start, size=size, axis=a)
