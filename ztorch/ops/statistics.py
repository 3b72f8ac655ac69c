"""Mean, variance, deviation and norm along axes: reductions made of other ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, normal_axes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import (
    REDUCTION_SAMPLES,
    Axes,
    max_,
    min_,
    ones_in,
    sum_,
    widened,
)


@op(*REDUCTION_SAMPLES, Sample(((4, 3),), {"axis": 0}, dtypes="su"), numpy=np.mean)
def mean(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The mean along axes; NaN for no elements.

    Args:
        x: Tensor of numbers.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.

    Returns:
        A tensor without these axes, of the dtype of `x`; float64 for integers, as in NumPy.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.mean(np.array([[1.0, 2.0], [3.0, 5.0]]), axis=1)
        array([1.5, 4. ])
    """
    if not x.dtype.is_float:
        return mean(OPS.cast(x, "float64"), axis, keepdims)
    count = math.prod(x.shape[a] for a in normal_axes(axis, x.rank))
    share = 1.0 / count if count else math.nan
    return OPS.cast(sum_(widened(x), axis, keepdims) * share, x.dtype)


def _spread_numpy(function: Any) -> Any:
    return lambda x, axis=None, keepdims=False, ddof=0: function(x, axis, ddof=ddof,
                                                                 keepdims=keepdims)


_SPREADS = (*REDUCTION_SAMPLES, Sample(((3, 5),), {"axis": 1, "ddof": 1}))


@op(*_SPREADS, numpy=_spread_numpy(np.var))
def var(x: Value, axis: Axes = None, keepdims: bool = False, ddof: float = 0,
        correction: float | None = None) -> Value:
    """The variance along axes, exact also where the mean is large.

    It is the mean of squared differences from the mean, minus the square of the rounding error left
    in them.

    Args:
        x: Tensor of numbers.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        ddof: Delta degrees of freedom: the sum is divided by the count minus `ddof`. Default: `0`.
        correction: Another name of `ddof`, which it replaces. Default: `None`.

    Returns:
        A tensor without these axes, of the dtype of `x`; float64 for integers.

    Raises:
        ShapeError: `ddof` is not below the number of elements.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.var(np.array([10001.0, 10003.0], np.float32))
        array(1., dtype=float32)
    """
    ddof = ddof if correction is None else correction
    if not x.dtype.is_float:
        return var(OPS.cast(x, "float64"), axis, keepdims, ddof)
    count = math.prod(x.shape[a] for a in normal_axes(axis, x.rank))
    wide = widened(x)
    deviations = wide - OPS.stop_gradient(mean(wide, axis, True))
    error = mean(deviations, axis, keepdims)
    variance = mean(deviations * deviations, axis, keepdims) - error * error
    if ddof:
        if ddof >= count:
            raise shape_error(f"ops.var(ddof={ddof}) divides by the {count} elements less {ddof}; "
                              "got", x.shape)
        variance = variance * (count / (count - ddof))
    return OPS.cast(OPS.maximum(variance, 0.0), x.dtype)


def root(x: Value, order: float = 2) -> Value:
    """The root of a sum of powers, with gradient 0 at 0 rather than infinity."""
    none = OPS.less_equal(x, 0.0)
    some = OPS.where(none, 1.0, x)
    return OPS.where(none, 0.0, OPS.sqrt(some) if order == 2 else OPS.power(some, 1.0 / order))


@op(*_SPREADS, numpy=_spread_numpy(np.std))
def std(x: Value, axis: Axes = None, keepdims: bool = False, ddof: float = 0,
        correction: float | None = None) -> Value:
    """The standard deviation along axes: the square root of `var`.

    Its gradient is 0 where all elements are equal.

    Args:
        x: Tensor of numbers.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        ddof: Delta degrees of freedom: the sum is divided by the count minus `ddof`. Default: `0`.
        correction: Another name of `ddof`, which it replaces. Default: `None`.

    Returns:
        A tensor without these axes, of the dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.std(np.array([1.0, 3.0]))
        array(1.)
    """
    ddof = ddof if correction is None else correction
    if not x.dtype.is_float:
        x = OPS.cast(x, "float64")
    return OPS.cast(root(var(widened(x), axis, keepdims, ddof)), x.dtype)


def _norm_numpy(x: Any, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Any:
    if ord in (math.inf, -math.inf):
        return (np.max if ord > 0 else np.min)(np.abs(x), axis, keepdims=keepdims)
    if ord == 0:
        return np.sum(x != 0, axis, keepdims=keepdims).astype(x.dtype)
    return np.sum(np.abs(x) ** ord, axis, keepdims=keepdims) ** (1 / ord)


@op(*REDUCTION_SAMPLES, Sample(((3, 5),), {"ord": 1, "axis": 1}),
    Sample(((3, 5),), {"ord": math.inf}), Sample(((3, 5),), {"ord": 3, "axis": 1}),
    numpy=_norm_numpy)
def vector_norm(x: Value, ord: float | None = 2, axis: Axes = None, keepdims: bool = False
                ) -> Value:
    """The norm of vectors along axes, without overflow or underflow.

    Args:
        x: Tensor of numbers.
        ord: Order of the norm: the root of the sum of powers of absolute values. 0 counts the
            elements that are not zero; `math.inf` gives the largest absolute value, `-math.inf`
            the smallest; `None` means 2. Default: `2`.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.

    Returns:
        A tensor of the dtype of `x` without these axes; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.vector_norm(np.array([[3e30, 4e30], [0.0, 0.0]], np.float32), axis=1)
        array([5.e+30, 0.e+00], dtype=float32)
    """
    ord = 2 if ord is None else ord
    if isinstance(ord, str) or math.isnan(ord):
        raise shape_error(f"ops.vector_norm(ord={ord!r}) is not a number",
                          fix="matrices have ops.matrix_norm")
    [x] = as_floats(x)
    size = OPS.abs(widened(x))
    if ord in (0, 1, math.inf, -math.inf):
        reduce = {1: sum_, math.inf: max_, -math.inf: min_}.get(ord, sum_)
        size = OPS.cast(OPS.not_equal(size, 0.0), size.dtype) if ord == 0 else size
        return OPS.cast(reduce(size, axis, keepdims), x.dtype)
    if x.size == 0:
        return sum_(x, axis, keepdims)
    # The element that weighs most: no power of the others, divided by it, overflows.
    heaviest = OPS.stop_gradient((max_ if ord > 0 else min_)(size, axis, True))
    usual = OPS.bitwise_and(OPS.greater(heaviest, 0.0), OPS.less(heaviest, math.inf))
    scale = OPS.where(usual, heaviest, 1.0)
    if ord == 2:
        part = widened(x) / scale
        y = root(sum_(part * part, axis, True)) * scale
    else:
        zero = OPS.equal(size, 0.0)  # its power has no finite gradient for orders below 1
        powers = OPS.power(OPS.where(zero, 1.0, size / scale), ord)
        total = sum_(OPS.where(zero, 0.0 if ord > 0 else math.inf, powers), axis, True)
        y = (root(total, ord) if ord > 0 else OPS.power(total, 1.0 / ord)) * scale
    axes = normal_axes(axis, x.rank)
    shape = ones_in(x.shape, axes) if keepdims else tuple(
        n for k, n in enumerate(x.shape) if k not in axes)
    return OPS.cast(OPS.reshape(y, shape), x.dtype)
