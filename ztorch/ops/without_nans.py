"""Sums, means and extremes of the numbers that are not NaN."""

from __future__ import annotations

import math
from collections.abc import Callable

from ztorch.dtypes import DType
from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import Axes, widened
from ztorch.ops.statistics import root

_X = Sample(((3, 4),), {"axis": 1})


def _without(x: Value, instead: float) -> tuple[Value, Value]:
    """x with a number in place of NaN, and which are NaN. Bools become floats."""
    if x.dtype.is_int:
        return x, OPS.full(x.shape, False, "bool")
    [x] = as_floats(x)
    missing = OPS.isnan(x)
    return OPS.where(missing, instead, x), missing


def _wide(x: Value) -> Value:
    """Integers and bools in 64 bits, as NumPy sums them."""
    return x if x.dtype.is_float else OPS.cast(x, "uint64" if x.dtype.kind == "u" else "int64")


def _count(missing: Value, like: Value, axis: Axes, keepdims: bool) -> Value:
    return OPS.sum(OPS.cast(OPS.logical_not(missing), like.dtype), axis, keepdims)


@composition(_X)
def nansum(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The sum of the numbers that are not NaN; 0 where there are none.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A tensor of the dtype of `x` without those axes; of 64 bits for integers and bools.
    """
    return OPS.sum(_without(_wide(x), 0.0)[0], axis, keepdims)


@composition(_X)
def nanprod(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The product of the numbers that are not NaN; 1 where there are none.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A tensor of the dtype of `x` without those axes; of 64 bits for integers and bools.
    """
    return OPS.prod(_without(_wide(x), 1.0)[0], axis, keepdims)


@composition(_X)
def nanmax(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The largest of the numbers that are not NaN; NaN where there are none.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A tensor of the dtype of `x` without those axes.
    """
    if x.dtype.is_int:
        return OPS.max(x, axis, keepdims)
    numbers, missing = _without(x, -math.inf)
    none = OPS.all(missing, axis, keepdims)
    return OPS.where(none, math.nan, OPS.max(numbers, axis, keepdims))


@composition(_X)
def nanmin(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The smallest of the numbers that are not NaN; NaN where there are none.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A tensor of the dtype of `x` without those axes.
    """
    if x.dtype.is_int:
        return OPS.min(x, axis, keepdims)
    numbers, missing = _without(x, math.inf)
    none = OPS.all(missing, axis, keepdims)
    return OPS.where(none, math.nan, OPS.min(numbers, axis, keepdims))


@composition(_X)
def nanmean(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The mean of the numbers that are not NaN; NaN where there are none.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A float tensor without those axes.
    """
    [x] = as_floats(x)
    numbers, missing = _without(widened(x), 0.0)
    total = OPS.sum(numbers, axis, keepdims)
    return OPS.cast(total / _count(missing, numbers, axis, keepdims), x.dtype)


@composition(_X)
def nanvar(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The variance of the numbers that are not NaN; NaN where there are none.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A float tensor without those axes.
    """
    [x] = as_floats(x)
    wide = widened(x)
    numbers, missing = _without(wide, 0.0)
    deviations = OPS.where(missing, 0.0, numbers - nanmean(wide, axis, True))
    total = OPS.sum(deviations * deviations, axis, keepdims)
    return OPS.cast(total / _count(missing, numbers, axis, keepdims), x.dtype)


@composition(_X)
def nanstd(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The standard deviation of the numbers that are not NaN; NaN where there are none.

    Its gradient is 0 where all numbers are equal.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A float tensor without those axes.
    """
    [x] = as_floats(x)
    return OPS.cast(root(nanvar(widened(x), axis, keepdims)), x.dtype)


@composition(_X)
def nanargmax(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The position of the largest of the numbers that are not NaN; -1 where there are none.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        An int32 tensor without those axes.
    """
    return _position(x, axis, keepdims, -math.inf, OPS.max)


@composition(_X)
def nanargmin(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The position of the smallest of the numbers that are not NaN; -1 where there are none.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        An int32 tensor without those axes.
    """
    return _position(x, axis, keepdims, math.inf, OPS.min)


def _position(x: Value, axis: Axes, keepdims: bool, instead: float,
              extreme: Callable[..., Value]) -> Value:
    """The first position of the extreme number. An infinity may equal what NaN is replaced by."""
    numbers, missing = _without(x, instead)
    hit = OPS.logical_and(OPS.equal(numbers, extreme(numbers, axis, True)),
                          OPS.logical_not(missing))
    return OPS.where(OPS.all(missing, axis, keepdims), -1, OPS.argmax(hit, axis, keepdims))


@composition(_X)
def nancumsum(x: Value, axis: int | None = None, dtype: DType | str | None = None) -> Value:
    """The sums of all elements up to each, in which NaN does not count.

    Args:
        x: Tensor of numbers.
        axis: The axis of the numbers. `None` means the flattened tensor. Default: `None`.
        dtype: Dtype of the result. `None` means that of `x`, or 64 bits for integers and bools.
            Default: `None`.

    Returns:
        A tensor of the shape of `x`, or a vector.
    """
    numbers = _without(_wide(x), 0.0)[0]
    return OPS.cumsum(numbers, axis, dtype)


@composition(_X)
def nancumprod(x: Value, axis: int | None = None, dtype: DType | str | None = None) -> Value:
    """The products of all elements up to each, in which NaN does not count.

    Args:
        x: Tensor of numbers.
        axis: The axis of the numbers. `None` means the flattened tensor. Default: `None`.
        dtype: Dtype of the result. `None` means that of `x`, or 64 bits for integers and bools.
            Default: `None`.

    Returns:
        A tensor of the shape of `x`, or a vector.
    """
    numbers = _without(_wide(x), 1.0)[0]
    return OPS.cumprod(numbers, axis, dtype)
