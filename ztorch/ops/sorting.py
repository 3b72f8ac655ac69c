"""Sorting, the k largest elements, and search in a sorted vector.

Comparisons put NaN last and break ties by position, so every order is stable. On short axes, the
position of an element is the number of elements before it; long axes, and many rows, use a bitonic
network, which compares elements of several rows at once. Long rows that are few, and the longest,
are cut into runs that are merged.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import boolean
from ztorch.graph.op import OPS, Sample, as_value, normal_axes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ir.opcodes import identity

COUNTED = 2048  # elements up to which counting (two kernels) beats a network of many kernels
COMPARED = 1 << 21  # pairs of all rows up to which it does
RUN = 1 << 8  # elements of the runs of a row that merges begin with
FEW_ROWS = 8  # from so many rows on, the network works on whole vectors
LONGEST = 1 << 16  # elements of many rows up to which a network sorts them: it has 136 kernels


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
def argsort(x: Value, axis: int = -1, descending: bool = False, stable: bool = True) -> Value:
    """The positions that bring x into order along an axis.

    The order is stable, and NaN comes last.

    Args:
        x: Tensor of any dtype.
        axis: Axis to sort along. Default: `-1`.
        descending: Whether the largest element comes first. Default: `False`.
        stable: Whether equal elements must keep their order. They always do. Default: `True`.

    Returns:
        An int32 tensor of the shape of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.argsort(np.array([3.0, 1.0, 2.0]))
        array([1, 2, 0], dtype=int32)
    """
    [a] = normal_axes(axis, x.rank)
    n = x.shape[a]
    if x.size == 0 or n == 1:
        return OPS.full(x.shape, 0, "int32")
    if x.dtype is boolean:
        x = OPS.cast(x, "uint8")
    if descending:
        x = -x if x.dtype.is_float else OPS.bitwise_not(x)
    rows = OPS.reshape(x, (math.prod(x.shape[:a]), n, math.prod(x.shape[a + 1:])))
    merged = n > (2 * RUN if x.size < FEW_ROWS * n else LONGEST)
    return OPS.reshape(_merged(rows) if merged else _order(rows), x.shape)


@op(*_SAMPLES, numpy=_sort_numpy)
def sort(x: Value, axis: int = -1, descending: bool = False, stable: bool = True) -> Value:
    """x in order along an axis. NaN comes last, in both directions.

    Args:
        x: Tensor of any dtype.
        axis: Axis to sort along. Default: `-1`.
        descending: Whether the largest element comes first. Default: `False`.
        stable: Whether equal elements must keep their order. They always do. Default: `True`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.sort(np.array([3.0, np.nan, 2.0]), descending=True)
        array([ 3.,  2., nan])
    """
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
    best = argsort(x, axis, True)[(slice(None),) * a + (slice(0, k),)]
    return OPS.take_along_axis(x, best, axis), best


@op(Sample((np.arange(-4.0, 4.0), (3, 5))), Sample((np.array([0.0, 1.0, 1.0, 2.0]),
    np.array([0.0, 1.0, 1.5, 9.0])), {"side": "right"}), numpy=lambda sorted, values, side="left":
    np.searchsorted(sorted, values, side).astype(np.int32))
def searchsorted(sorted: Value, values: Value | float, side: str = "left",
                 sorter: Value | None = None) -> Value:
    """The number of elements of an ascending vector that come before each value.

    Args:
        sorted: Ascending vector of numbers.
        values: Tensor of the same dtype, or a number.
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
    values = as_value(values, sorted)
    if values.dtype != sorted.dtype:
        raise shape_error(f"{values.dtype} values are not found among {sorted.dtype}",
                          fix="cast one to the other")
    n = sorted.size
    flat = OPS.reshape(values, (1, values.size, 1))
    places = count_before(OPS.reshape(sorted, (1, n, 1)), flat, side)
    return OPS.reshape(places, values.shape)


# -- the order itself, along the middle one of three axes ------------------------------------------


def effort(n: int) -> int:
    """The cost of sorting a row, in comparisons of a vectorised loop."""
    bits = (n - 1).bit_length()
    return 3 * n * n if n <= COUNTED else 15 * n * bits * (bits + 1)


def _order(rows: Value) -> Value:
    """The positions in order, of rows that are not too long for one network."""
    n = rows.shape[1]
    few = n <= COUNTED and rows.size * n <= COMPARED
    order = _counted(*_keys(rows)) if few else _network(*_keys(rows))
    return OPS.where(order >= n, order - n, order)


def _keys(x: Value) -> tuple[Value, Value]:
    """Sort keys that compare as x does, and tie breakers: the position, with NaN behind all
    infinities."""
    position = OPS.iota(x.shape, 1)
    if not x.dtype.is_float:
        return x, position
    nan = OPS.not_equal(x, x)
    return OPS.where(nan, math.inf, x), OPS.where(nan, position + x.shape[1], position)


def _before(key: Value, tie: Value, other_key: Value, other_tie: Value) -> Value:
    """Whether the first comes before the other."""
    equal = OPS.bitwise_and(OPS.equal(key, other_key), OPS.less(tie, other_tie))
    return OPS.bitwise_or(OPS.less(key, other_key), equal)


def _counted(key: Value, tie: Value) -> Value:
    """The ties in order: each element's place is how many come before it."""
    outer, n, inner = key.shape
    mine = [OPS.reshape(x, (outer, 1, n, inner)) for x in (key, tie)]
    theirs = [OPS.reshape(x, (outer, n, 1, inner)) for x in (key, tie)]
    place = OPS.sum(OPS.cast(_before(*theirs, *mine), "int32"), axis=1)
    here = OPS.equal(OPS.reshape(place, (outer, n, 1, inner)), OPS.iota((1, 1, n, 1), 2))
    return OPS.sum(OPS.where(here, theirs[1], 0), axis=1)


def _network(key: Value, tie: Value) -> Value:
    """The ties in order: runs of 2, 4, 8, ... are merged, the second one read backwards."""
    outer, n, inner = key.shape
    if outer > 1 and inner == 1:  # rows side by side: whole vectors are compared
        order = _network(*(OPS.transpose(x, (2, 1, 0)) for x in (key, tie)))
        return OPS.transpose(order, (2, 1, 0))
    bits = (n - 1).bit_length()
    more = ((0, 0, 0), (0, (1 << bits) - n, 0))
    key = OPS.pad(key, *more, identity("min", key.dtype))
    tie = OPS.pad(tie, *more, 2 * n)
    for run in range(bits):
        for near in reversed(range(run + 1)):
            pairs = (outer, 1 << (bits - near - 1), 2, 1 << near, inner)
            mirrored = (2, 3) if near == run else (2,)
            mine = [OPS.reshape(x, pairs) for x in (key, tie)]
            theirs = [OPS.flip(x, mirrored) for x in mine]
            low = OPS.equal(OPS.iota((1, 1, 2, 1, 1), 2), 0)
            swap = OPS.equal(_before(*theirs, *mine), OPS.broadcast_to(low, pairs))
            key, tie = (OPS.reshape(OPS.where(swap, a, b), (outer, 1 << bits, inner))
                        for a, b in zip(theirs, mine, strict=True))
    return tie[:, :n]


def _merged(x: Value) -> Value:
    """The positions in order, by merges of runs that are sorted as rows."""
    outer, n, inner = x.shape
    merges = (-(-n // RUN) - 1).bit_length()
    last = math.nan if x.dtype.is_float else identity("min", x.dtype)
    x = OPS.pad(x, (0, 0, 0), (0, (RUN << merges) - n, 0), last)
    runs = OPS.reshape(x, (outer << merges, RUN, inner))
    order = _order(runs)
    x = OPS.take_along_axis(runs, order, 1)
    first = OPS.iota((outer, 1 << merges, 1, 1), 1) * RUN
    order = OPS.reshape(OPS.reshape(order, (outer, 1 << merges, RUN, inner)) + first, runs.shape)
    for _ in range(merges):
        x, order = _merge(x, order)
    return order[:, :n]


def _merge(x: Value, order: Value) -> tuple[Value, Value]:
    """Rows two by two as one, in order, with their positions. Each element of the result finds how
    many of those before it are from the first row, by halving."""
    rows, n, inner = x.shape
    (a, b), (a_order, b_order) = (
        [OPS.reshape(y, (rows // 2, 2, n, inner))[:, k] for k in (0, 1)] for y in (x, order))
    place = OPS.iota((rows // 2, 2 * n, inner), 1)
    count = OPS.full(place.shape, 0, "int32")
    for bit in reversed(range(n.bit_length())):
        more = count + (1 << bit)
        rest = place - more  # from the second row, if so many are from the first
        mine = OPS.take_along_axis(a, OPS.minimum(more - 1, n - 1), 1)
        theirs = OPS.take_along_axis(b, OPS.clip(rest, 0, n - 1), 1)
        passed = OPS.bitwise_or(rest >= n, OPS.bitwise_not(_sorted_before(theirs, mine)))
        fits = OPS.bitwise_and(more <= n, rest >= 0)
        count = OPS.where(OPS.bitwise_and(fits, passed), more, count)
    rest = place - count
    at = OPS.minimum(count, n - 1), OPS.minimum(rest, n - 1)
    mine, theirs = (OPS.take_along_axis(y, k, 1) for y, k in zip((a, b), at, strict=True))
    from_a = OPS.bitwise_and(count < n, OPS.bitwise_or(
        rest >= n, OPS.bitwise_not(_sorted_before(theirs, mine))))
    return OPS.where(from_a, mine, theirs), OPS.where(from_a, *(
        OPS.take_along_axis(y, k, 1) for y, k in zip((a_order, b_order), at, strict=True)))


def count_before(rows: Value, values: Value, side: str) -> Value:
    """For each value how many elements of its ascending row come before it, by halving; both have
    three axes, of which rows go along the middle one."""
    n = rows.shape[1]
    count = OPS.full(values.shape, 0, "int32")
    for bit in reversed(range(n.bit_length())):
        last = count + ((1 << bit) - 1)
        seen = OPS.take_along_axis(rows, OPS.minimum(last, n - 1), 1)
        passed = _sorted_before(seen, values) if side == "left" else OPS.bitwise_not(
            _sorted_before(values, seen))
        count = OPS.where(OPS.bitwise_and(passed, last < n), count + (1 << bit), count)
    return count


def _sorted_before(a: Value, b: Value) -> Value:
    """Whether a comes before b where NaN is last."""
    if not a.dtype.is_float:
        return OPS.less(a, b)
    number_nan = OPS.bitwise_and(OPS.equal(a, a), OPS.not_equal(b, b))
    return OPS.bitwise_or(OPS.less(a, b), number_nan)
