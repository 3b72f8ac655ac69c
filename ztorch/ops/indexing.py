"""Lookups and sums at data-dependent positions.

The gradient of a lookup is a sum over all readers of the same position, in a fixed order: either
each position iterates over all readers, or, if that is too much work, readers are sorted by
position and runs of equal positions are summed in steps of 1, 2, 4, ...
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.batching import Examples, per_example, with_first
from ztorch.graph.op import (
    OPS,
    Sample,
    broadcast_shapes,
    constant,
    normal_axes,
    op,
    shape_error,
)
from ztorch.graph.value import Op, Value
from ztorch.ops.scattering import summed_at

Shape = tuple[int, ...]


def wide_integers(x: Value) -> Value:
    """Integers of at least 32 bits, which hold every position; other tensors unchanged."""
    return OPS.cast(x, "int32") if x.dtype.is_int and x.dtype.bits < 32 else x


def need_integers(name: str, indices: Any) -> Value:
    """Indices of at least 32 bits, or a ShapeError if they are not integers."""
    indices = indices if isinstance(indices, Value) else constant(indices)
    if not indices.dtype.is_int:
        raise shape_error(f"ops.{name} needs integer indices, not {indices.dtype}",
                          fix="use ops.cast(indices, 'int32')")
    return wide_integers(indices)


def _need_elements(name: str, x: Value, axis: int, indices: Value) -> None:
    if indices.size and not x.shape[axis]:
        raise shape_error(f"ops.{name} finds no elements along axis {axis} of", x.shape)


def _flat(x: Value, axis: int, count: int = 1) -> Value:
    """x with three axes: those before the axis, `count` axes from it on, and the rest."""
    return OPS.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:axis + count]),
                           math.prod(x.shape[axis + count:])))


def _clamped(indices: Value, n: int) -> Value:
    return OPS.clip(indices, 0, n - 1)


# -- rows ------------------------------------------------------------------------------------------


def _take_infer(x: Value, indices: Value, axis: int) -> tuple[Shape, DType]:
    return (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]), x.dtype


def _take_body(e: Any, index: Any, axis: int) -> Any:
    rank = len(e.shape(1))
    at = e.read(1, index[axis:axis + rank])
    row = e.index(at, e.shape(0)[axis])  # clamped: a bad index never reads outside
    return e.read(0, (*index[:axis], row, *index[axis + rank:]))


def _take_numpy(x: Any, indices: Any, axis: int | None = None) -> Any:
    n = x.size if axis is None else x.shape[axis]
    return np.take(x, np.clip(indices, 0, n - 1), axis)


def _take_grad(o: Any, g: Value, y: Value, x: Value, indices: Value, axis: int) -> tuple:
    places = OPS.reshape(_clamped(indices, x.shape[axis]), (1, indices.size, 1))
    sums = summed_at(_flat(g, axis, indices.rank), places, x.shape[axis])
    return o.reshape(sums, x.shape), None


def _take_batch(one: Value, many: Examples, axis: int) -> Value:
    if many.batched == (True, False):
        return one.op(*many.args, axis=axis + 1)
    if many.batched == (False, True):
        y = one.op(*many.args, axis=axis)
        return OPS.transpose(y, with_first(axis, y.rank))
    return per_example(one, many, axis=axis)


_TAKE = Op("take", "map", _take_infer, _take_numpy, _take_grad, _take_body, cost=8,
           batch=_take_batch)


@op(Sample(((5, 3), np.array([[0, 4], [2, 2]], np.int32)), {"axis": 0}, dtypes="fsub"),
    Sample(((5, 3), np.array([[0, 4], [2, 2]], np.int32)), {"axis": 1}),
    Sample(((5, 3), np.array([[0, 14], [7, 7]], np.int32))), primitive=_TAKE,
    numpy=_take_numpy, aliases=("gather",))
def take(x: Value, indices: Value, axis: int | None = None) -> Value:
    """Slices of x along an axis at integer positions, as in an embedding lookup.

    Args:
        x: Tensor of any dtype.
        indices: Integer tensor of positions; negative ones count from the end. Positions out of
            range are an error in a list or an array, and clamped to the nearest end in a tensor, as
            by NumPy's `mode="clip"`.
        axis: Axis along which slices are taken. `None` takes elements of the flattened tensor.
            Default: `None`.

    Returns:
        A tensor of the shape of `x`, with the axes of `indices` in place of the axis.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.take(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 1, 0]), axis=0)
        array([[3., 4.],
               [3., 4.],
               [1., 2.]])
        >>> zt.ops.take(np.array([1.0, 2.0, 3.0]), -1)
        array(3.)
    """
    if axis is None:
        x, axis = OPS.reshape(x, (x.size,)), 0
    [a] = normal_axes(axis, x.rank)
    indices = need_integers("take", indices)
    _need_elements("take", x, a, indices)
    return _TAKE(x, indices, axis=a)


@op(Sample((np.array([0, 2, 1], np.int32),), {"classes": 4}),
    Sample((np.array([0, 2, 1], np.int32),), {"classes": 4, "axis": 0}),
    numpy=lambda x, classes, dtype="float32", axis=-1: np.moveaxis(np.eye(classes)[x], -1, axis))
def one_hot(x: Value, classes: int, dtype: DType | str = "float32", axis: int = -1) -> Value:
    """1 at each label and 0 elsewhere, along a new axis.

    Args:
        x: Integer tensor of labels. Labels out of range give zeros.
        classes: Size of the new axis.
        dtype: Dtype of the result: a `DType` or a name such as `"float32"`. Default: `"float32"`.
        axis: Where the new axis is in the result. Default: `-1`.

    Returns:
        A tensor of the shape of `x` with one more axis.
    """
    [a] = normal_axes(axis, x.rank + 1)
    x = wide_integers(x)
    numbers = OPS.iota((classes, *(1,) * (x.rank - a)), 0, x.dtype)
    return OPS.cast(OPS.equal(OPS.expand_dims(x, a), numbers), dtype)


# -- one element a place ---------------------------------------------------------------------------


def _along_infer(x: Value, indices: Value, axis: int, n: int, once: bool) -> tuple[Shape, DType]:
    return indices.shape, x.dtype


def _along_body(e: Any, index: Any, axis: int, n: int, once: bool) -> Any:
    """x is flat, because the position of an element depends on loops and on data."""
    shape = [n if k == axis else m for k, m in enumerate(e.shape(1))]
    strides = [math.prod(shape[k + 1:]) for k in range(len(shape))]
    at = [*index[:axis], e.index(e.read(1, index), n), *index[axis + 1:]]
    return e.read(0, (sum((i * s for i, s in zip(at, strides, strict=True)), e.zero),))


def _along_numpy(x: Any, indices: Any, axis: int | None = -1, once: bool = False) -> Any:
    n = x.size if axis is None else x.shape[axis]
    return np.take_along_axis(x, np.clip(indices, 0, n - 1), axis)


def _along_flat_numpy(x: Any, indices: Any, axis: int, n: int, once: bool) -> Any:
    shape = [n if k == axis else m for k, m in enumerate(indices.shape)]
    return _along_numpy(np.reshape(x, shape), indices, axis)


def _along_grad(o: Any, g: Value, y: Value, x: Value, indices: Value, axis: int, n: int,
                once: bool) -> tuple:
    if once:  # a permutation: the gradient looks up by its inverse
        back = _ALONG(o.reshape(g, (g.size,)), o.argsort(indices, axis), axis=axis, n=n, once=True)
        return o.reshape(back, x.shape), None
    sums = summed_at(_flat(g, axis), _flat(_clamped(indices, n), axis), n)
    return o.reshape(sums, x.shape), None


def _along_batch(one: Value, many: Examples, axis: int, **attrs: Any) -> Value:
    x, indices = many.spread()
    return one.op(OPS.reshape(x, (x.size,)), indices, axis=axis + 1, **attrs)


_ALONG = Op("take_along_axis", "map", _along_infer, _along_flat_numpy, _along_grad, _along_body,
            cost=16, batch=_along_batch)


@op(Sample(((4, 3), np.array([[0, 3, 1], [2, 2, 0]], np.int32)), {"axis": 0}, dtypes="fsub"),
    Sample(((2, 5, 2), np.array([[[4], [0], [9]]], np.int32)), {"axis": 1}),
    Sample(((4,), np.array([2, 0, 3, 1], np.int32)), {"once": True}),
    Sample(((2, 3), np.array([5, 0, 5], np.int32)), {"axis": None}),
    primitive=_ALONG, numpy=_along_numpy)
def take_along_axis(x: Value, indices: Value, axis: int | None = -1, once: bool = False) -> Value:
    """The element of x at each index along an axis.

    On the other axes, an index reads at its own position, and both shapes broadcast.

    Args:
        x: Tensor of any dtype.
        indices: Integer tensor with as many axes as `x`; negative positions count from the end.
            Those out of range are treated as in `take`.
        axis: Axis along which elements are taken. `None` takes elements of the flattened tensor,
            by a vector of indices. Default: `-1`.
        once: Whether the indices are known to be a permutation, so that the gradient is a lookup
            too. Default: `False`.

    Returns:
        A tensor of the dtype of `x`, with the size of `indices` along the axis.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.take_along_axis(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1], [0]]), axis=1)
        array([[2.],
               [3.]])
    """
    if axis is None:
        x, axis = OPS.reshape(x, (x.size,)), 0
    [a] = normal_axes(axis, x.rank)
    indices = need_integers("take_along_axis", indices)
    if indices.rank != x.rank:
        raise shape_error("ops.take_along_axis needs indices of the same rank as x, not",
                          indices.shape, x.shape, fix="ops.take looks up whole rows")
    _need_elements("take_along_axis", x, a, indices)
    rest = broadcast_shapes((*x.shape[:a], 1, *x.shape[a + 1:]),
                            (*indices.shape[:a], 1, *indices.shape[a + 1:]))
    x, indices = (OPS.broadcast_to(v, (*rest[:a], v.shape[a], *rest[a + 1:])) for v in (x, indices))
    return _ALONG(OPS.reshape(x, (x.size,)), indices, axis=a, n=x.shape[a], once=once)


# -- sums at places --------------------------------------------------------------------------------


def _scatter_numpy(x: Any, indices: Any, updates: Any, axis: int = 0) -> Any:
    y, axis = np.array(x), axis % x.ndim
    inside = (indices >= 0) & (indices < x.shape[axis])
    rows = np.moveaxis(np.reshape(updates, (*x.shape[:axis], indices.size, *x.shape[axis + 1:])),
                       axis, 0)
    np.add.at(np.moveaxis(y, axis, 0), indices[inside], rows[inside.reshape(-1)])
    return y


@op(Sample(((4, 3), np.array([1, 3, 1], np.int32), (3, 3)), dtypes="fs"),
    Sample(((2, 4, 2), np.array([[0, 7], [-1, 0]], np.int32), (2, 2, 2, 2)), {"axis": 1}),
    numpy=_scatter_numpy)
def scatter_add(x: Value, indices: Value, updates: Value, axis: int = 0) -> Value:
    """Adds each slice of `updates` to x at its position along an axis.

    Equal positions are summed in a fixed order, so equal arguments give equal bits.

    Args:
        x: Tensor of numbers.
        indices: Integer tensor of positions. Those out of range are ignored.
        updates: Tensor of the shape of `take(x, indices, axis)` and the dtype of `x`.
        axis: Axis along which slices are added. Default: `0`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.scatter_add(np.zeros(3), np.array([2, 0, 2]), np.array([1.0, 2.0, 3.0]))
        array([2., 0., 4.])
    """
    [a] = normal_axes(axis, x.rank)
    indices = need_integers("scatter_add", indices)
    shape = (*x.shape[:a], *indices.shape, *x.shape[a + 1:])
    if updates.shape != shape or updates.dtype != x.dtype:
        raise shape_error(f"ops.scatter_add got {updates.dtype} updates that do not fit:",
                          updates.shape, shape, fix="the second is the shape of "
                                                     f"take(x, indices, {axis}), of {x.dtype}")
    places = OPS.reshape(indices, (1, indices.size, 1))
    return x + OPS.reshape(summed_at(_flat(updates, a, indices.rank), places, x.shape[a]), x.shape)
