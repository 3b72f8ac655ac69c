"""Sorting, the k largest elements, and search in a sorted vector."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import boolean, result_type
from ztorch.graph.op import OPS, Sample, as_value, normal_axes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.orders import first_of, order_of, sorted_before


def _order_numpy(x: Any, axis: int = -1, descending: bool = False) -> Any:
    """NaN last, and equals in their order, both ways."""
    if descending:
        x = -x if x.dtype.kind == "f" else ~x
    return np.argsort(x, axis, kind="stable").astype(np.int32)


def _sort_numpy(x: Any, axis: int = -1, descending: bool = False) -> Any:
    return np.take_along_axis(x, _order_numpy(x, axis, descending), axis)


_SAMPLES = (Sample(((3, 5),), {}, -9.0, 9.0, "fsu"), Sample(((2, 7, 3),), {"axis": 1}),
            Sample(((4, 3),), {"axis": 0, "descending": True}, -3.0, 3.0, "fsu"),
            Sample(((2, 9),)))


@op(*_SAMPLES, numpy=_order_numpy)
def argsort(x: Value, axis: int | None = -1, descending: bool = False,
            stable: bool = True) -> Value:
    """The positions that bring x into order along an axis.

    The order is stable, and NaN comes last.

    Args:
        x: Tensor of any dtype.
        axis: Axis to sort along. `None` sorts the flattened tensor. Default: `-1`.
        descending: Whether the largest element comes first. Default: `False`.
        stable: Whether equal elements must keep their order. They always do. Default: `True`.

    Returns:
        An int32 tensor of the shape of `x`, a vector without an axis.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.argsort(np.array([3.0, 1.0, 2.0]))
        array([1, 2, 0], dtype=int32)
    """
    if axis is None:
        x, axis = OPS.ravel(x), 0
    [a] = normal_axes(axis, x.rank)
    n = x.shape[a]
    if x.size == 0 or n == 1:
        return OPS.full(x.shape, 0, "int32")
    return OPS.reshape(order_of(_as_rows(x, a, descending)), x.shape)


def _as_rows(x: Value, axis: int, descending: bool) -> Value:
    """Numbers that ascend where x is in order, with the axis as the middle one of three."""
    if x.dtype is boolean:
        x = OPS.cast(x, "uint8")
    if descending:
        x = -x if x.dtype.is_float else OPS.bitwise_not(x)
    return OPS.reshape(x, (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1:])))


@op(*_SAMPLES, numpy=_sort_numpy)
def sort(x: Value, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Value:
    """x in order along an axis. NaN comes last, in both directions.

    Args:
        x: Tensor of any dtype.
        axis: Axis to sort along. `None` sorts the flattened tensor. Default: `-1`.
        descending: Whether the largest element comes first. Default: `False`.
        stable: Whether equal elements must keep their order. They always do. Default: `True`.

    Returns:
        A tensor of the shape and dtype of `x`, a vector without an axis.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.sort(np.array([3.0, np.nan, 2.0]), descending=True)
        array([ 3.,  2., nan])
    """
    if axis is None:
        x, axis = OPS.ravel(x), 0
    order = argsort(x, axis, descending)
    return OPS.take_along_axis(x, order, axis, True)


def _top_numpy(x: Any, k: int, axis: int = -1) -> Any:
    order = np.take(_order_numpy(x, axis, True), np.arange(k), axis)
    return np.take_along_axis(x, order, axis), order


@op(Sample(((3, 5),), {"k": 2}, -9.0, 9.0, "fs"), Sample(((6, 3),), {"k": 6, "axis": 0}),
    numpy=_top_numpy, results=("values", "indices"), aliases=("topk",))
def top_k(x: Value, k: int, axis: int = -1) -> tuple[Value, Value]:
    """The k largest elements along an axis, largest first, and their positions.

    Of equal elements the first comes first; NaN comes after all numbers.

    Args:
        x: Tensor of numbers.
        k: Number of elements.
        axis: Axis to search along. Default: `-1`.

    Returns:
        `(values, indices)`: tensors with `k` elements along the axis; indices are int32.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.top_k(np.array([3.0, 1.0, 2.0]), 2)
        (array([3., 2.]), array([0, 2], dtype=int32))
    """
    [a] = normal_axes(axis, x.rank)
    if not 0 <= k <= x.shape[a]:
        raise shape_error(f"ops.top_k cannot find {k} elements along axis {axis} of", x.shape,
                          fix=f"k is between 0 and {x.shape[a]}")
    shape = (*x.shape[:a], k, *x.shape[a + 1:])
    if 0 in shape:
        return OPS.full(shape, 0, x.dtype), OPS.full(shape, 0, "int32")
    best = OPS.reshape(first_of(_as_rows(x, a, True), k), shape)
    return OPS.take_along_axis(x, best, axis), best


@op(Sample((np.arange(-4.0, 4.0), (3, 5))), Sample((np.array([0.0, 1.0, 1.0, 2.0]),
    np.array([0.0, 1.0, 1.5, 9.0])), {"side": "right"}), numpy=lambda sorted, values, side="left":
    np.searchsorted(sorted, values, side).astype(np.int32))
def searchsorted(sorted: Value, values: Value | float, side: str = "left",
                 sorter: Value | None = None) -> Value:
    """The number of elements of an ascending vector that come before each value.

    Args:
        sorted: Ascending vector of numbers.
        values: Tensor of numbers, or a number. Of two dtypes, both become the one that NumPy
            promotes them to.
        side: `"left"` counts elements below the value, `"right"` also those equal to it. Default:
            `"left"`.
        sorter: Integer vector: the order that sorts `sorted`, which need not be sorted then.
            Default: `None`.

    Returns:
        An int32 tensor of the shape of `values`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.searchsorted(np.array([1.0, 2.0, 2.0, 5.0]), np.array([2.0, 9.0]))
        array([1, 4], dtype=int32)
    """
    if sorted.rank != 1:
        raise shape_error("ops.searchsorted needs a vector of sorted numbers, not", sorted.shape)
    if sorter is not None:
        sorted = OPS.take(sorted, sorter, 0)
    if side not in ("left", "right"):
        raise shape_error(f"side {side!r} is neither 'left' nor 'right'")
    sought = as_value(values, sorted)
    row, flat = (OPS.reshape(OPS.cast(x, result_type(sorted.dtype, sought.dtype)), (1, x.size, 1))
                 for x in (sorted, sought))
    return OPS.reshape(count_before(row, flat, side), sought.shape)


def count_before(rows: Value, values: Value, side: str) -> Value:
    """For each value how many elements of its ascending row come before it, by halving; both have
    three axes, of which rows go along the middle one."""
    n = rows.shape[1]
    count = OPS.full(values.shape, 0, "int32")
    for bit in reversed(range(n.bit_length())):
        last = count + ((1 << bit) - 1)
        element = OPS.take_along_axis(rows, OPS.minimum(last, n - 1), 1)
        passed = sorted_before(element, values) if side == "left" else OPS.bitwise_not(
            sorted_before(values, element))
        count = OPS.where(OPS.bitwise_and(passed, last < n), count + (1 << bit), count)
    return count
