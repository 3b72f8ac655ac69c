"""Statistics and distances, under Keras' names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.config import positive
from ztorch.errors import ConfigError
from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, constant, normal_axes, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import Axes, widened
from ztorch.ops.statistics import root


@composition(Sample(((3, 4),)), Sample(((3, 4),), {"axis": 1}))
def average(x: Value, axis: Axes = None, weights: Value | None = None) -> Value:
    """The mean, optionally weighted.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        weights: Weights of the shape of `x`, or a vector along a single axis. `None` weights all
            equally. Default: `None`.

    Returns:
        A float tensor without those axes.
    """
    [x] = as_floats(x)
    if weights is None:
        return OPS.mean(x, axis)
    weights = OPS.cast(weights, x.dtype)
    if weights.shape != x.shape:
        axes = normal_axes(axis, x.rank)
        if axis is None or len(axes) != 1 or weights.shape != (x.shape[axes[0]],):
            raise shape_error("ops.average needs weights of the shape of x, or a vector along one "
                              "axis, not", weights.shape, x.shape)
        weights = OPS.reshape(weights, tuple(-1 if a in axes else 1 for a in range(x.rank)))
    weights = OPS.broadcast_to(weights, x.shape)
    return OPS.sum(x * weights, axis) / OPS.sum(weights, axis)


@composition(Sample(((3, 4),), {"axes": (1,)}), results=("mean", "variance"))
def moments(x: Value, axes: Axes, keepdims: bool = False, synchronized: bool = False
            ) -> tuple[Value, Value]:
    """The mean and the variance.

    Args:
        x: Tensor of numbers.
        axes: Axis or axes of the numbers.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.
        synchronized: Has no effect: a program has one device. Default: `False`.

    Returns:
        Two float tensors without those axes.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.moments(np.array([1.0, 3.0]), 0)
        (array(2.), array(1.))
    """
    [x] = as_floats(x)
    return OPS.mean(x, axes, keepdims), OPS.var(x, axes, keepdims)


@composition(Sample(((3, 4),)))
def normalize(x: Value, axis: Axes = -1, order: float = 2, epsilon: float | None = None) -> Value:
    """Scales vectors to length 1.

    Args:
        x: Float tensor.
        axis: Axis or axes of the vectors. Default: `-1`.
        order: The order of the norm: 2 for the root of the sum of squares. Default: `2`.
        epsilon: The minimum norm of the divisor. `None` means 1e-7. Default: `None`.

    Returns:
        A tensor of the shape of `x`.
    """
    [x] = as_floats(x)
    least = 1e-7 if epsilon is None else float(epsilon)
    size = OPS.vector_norm(x, order, axis, True)
    return x / OPS.maximum(size, least)


@composition(Sample(((3, 4),)))
def ptp(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The largest number minus the smallest.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A tensor without those axes.
    """
    return OPS.max(x, axis, keepdims) - OPS.min(x, axis, keepdims)


@composition(Sample(((3, 5),)))
def corrcoef(x: Value) -> Value:
    """The correlation of each pair of rows, from -1 to 1.

    Args:
        x: One row of numbers per variable, or a vector.

    Returns:
        A square float matrix; a number for a vector.
    """
    [x] = as_floats(x)
    if x.rank not in (1, 2):
        raise shape_error("ops.corrcoef takes a matrix or a vector, not", x.shape)
    rows = OPS.reshape(x, (-1, x.shape[-1]))
    deviations = rows - OPS.mean(rows, -1, True)
    products = OPS.matmul(deviations, OPS.transpose(deviations, (1, 0)))
    length = OPS.sqrt(OPS.sum(deviations * deviations, -1))
    scaled = products / (OPS.expand_dims(length, 0) * OPS.expand_dims(length, 1))
    return OPS.clip(scaled if x.rank > 1 else OPS.reshape(scaled, ()), -1.0, 1.0)


@composition(Sample(((3, 4), (2, 4))))
def cdist(x: Value, y: Value) -> Value:
    """The distance of each pair of rows.

    Args:
        x: Rows `(..., n, features)`.
        y: Rows `(..., m, features)`, of the same dtype.

    Returns:
        A float tensor `(..., n, m)`.
    """
    [x], [y] = as_floats(x), as_floats(y)
    columns = OPS.expand_dims(OPS.swapaxes(y, -1, -2), -3)  # neighbors in memory are other rows
    differences = OPS.expand_dims(x, -1) - columns
    return root(OPS.sum(differences * differences, -2))


@composition(Sample(((3, 4), (3, 4)), {"max_val": 2.0}))
def psnr(x1: Value, x2: Value, max_val: float) -> Value:
    """The peak signal-to-noise ratio, in decibels.

    Args:
        x1: Tensor of numbers.
        x2: Tensor of the same shape and dtype.
        max_val: The largest possible value.

    Returns:
        A number.
    """
    x1, x2 = as_floats(x1, x2)  # differences of unsigned integers would wrap
    error = OPS.mean(OPS.square(widened(x1) - widened(x2)))
    return OPS.cast(OPS.log(float(max_val) ** 2 / error) * (10 / math.log(10)), x1.dtype)


@composition(Sample(((3, 4),), {"dx": 0.5}), Sample(((3, 4), (4,))))
def trapezoid(y: Value, x: Value | None = None, dx: float = 1.0, axis: int = -1) -> Value:
    """The integral of a function along an axis, by the trapezoidal rule.

    Args:
        y: Values of the function.
        x: Their positions: a vector, or of the shape of `y`. `None` means spacing `dx`. Default:
            `None`.
        dx: Distance between values. Default: `1.0`.
        axis: The axis of the values. Default: `-1`.

    Returns:
        A float tensor without that axis.
    """
    [y] = as_floats(y)
    [a] = normal_axes(axis, y.rank)
    before, after = ((slice(None),) * a + (part,) for part in (slice(None, -1), slice(1, None)))
    height = (y[before] + y[after]) * 0.5
    if x is None:
        return OPS.sum(height * float(dx), a)
    x = OPS.cast(x, y.dtype)
    width = OPS.diff(x, axis=a) if x.rank == y.rank else OPS.reshape(
        OPS.diff(x, axis=0), tuple(-1 if k == a else 1 for k in range(y.rank)))
    return OPS.sum(height * width, a)


@composition(Sample(((3, 4), (3, 4))))
def vdot(x1: Value, x2: Value) -> Value:
    """The sum of the products of all elements.

    Args:
        x1: Tensor of numbers.
        x2: Tensor with the same number of elements and dtype.

    Returns:
        A number.
    """
    if x1.size != x2.size:
        raise shape_error("ops.vdot takes two tensors with as many elements each, not", x1.shape,
                          x2.shape)
    return OPS.sum(OPS.reshape(x1, (x1.size,)) * OPS.reshape(x2, (x2.size,)))


@composition(Sample((np.array([[4.0, 1.0], [1.0, 3.0]]),)))
def logdet(x: Value) -> Value:
    """The logarithm of determinants: minus infinity of 0, NaN of negative ones.

    Args:
        x: Matrices `(..., n, n)`.

    Returns:
        A float tensor without the last two axes.
    """
    sign, logarithm = OPS.slogdet(x)
    return OPS.where(sign < 0.0, math.nan, logarithm)


@composition(Sample(((9,),), {"bins": 4, "range": (-2.0, 2.0)}), results=("counts", "edges"))
def histogram(x: Value, bins: Any = 10, range: tuple[float, float] | None = None
              ) -> tuple[Value, Value]:
    """The number of values in each of several intervals. The last one includes its end.

    Args:
        x: Tensor of numbers.
        bins: Number of intervals of equal width, or a list of their ends, in ascending order.
            Default: `10`.
        range: The ends of the first and the last one, if `bins` is a number. `None` means the
            smallest and the largest number, and 0 and 1 for no numbers. Equal ends move apart by
            0.5 each. Default: `None`.

    Returns:
        Counts as int32, and the ends of the intervals, one more.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.histogram(np.array([1.0, 2.0, 2.5]), bins=2)[0]
        array([1, 2], dtype=int32)
    """
    [flat] = as_floats(OPS.reshape(x, (-1,)))
    edges, high = _equal_widths(flat, bins, range) if np.ndim(bins) == 0 else _listed_ends(
        bins, flat)
    place = OPS.searchsorted(edges, flat, "right") - 1
    place = OPS.where(OPS.equal(flat, high), edges.size - 2, place)
    return OPS.segment_sum(OPS.ones(flat.shape, "int32"), place, edges.size - 1), edges


def _equal_widths(x: Value, bins: Any, range: tuple[float, float] | None) -> tuple[Value, Value]:
    """The ends of intervals of equal width, and the last of them."""
    bins = positive("ops.histogram(bins=...)", bins)
    if range is not None and not range[0] <= range[1]:
        raise ConfigError(f"ops.histogram(range={range!r}) must be (smallest, largest)")
    if range is None and not x.size:
        range = 0.0, 1.0
    low, high = (OPS.min(x), OPS.max(x)) if range is None else (
        OPS.full((), float(end), x.dtype) for end in range)
    margin = OPS.cast(OPS.equal(low, high), x.dtype) * 0.5
    low, high = low - margin, high + margin
    return low + OPS.cast(OPS.iota((bins + 1,)), x.dtype) * ((high - low) / float(bins)), high


def _listed_ends(bins: Any, x: Value) -> tuple[Value, Value]:
    """The ends of intervals as a user lists them, and the last of them."""
    ends = np.asarray(bins, np.float64)
    if ends.ndim != 1 or ends.size < 2 or not (np.diff(ends) >= 0).all():
        raise shape_error(f"ops.histogram(bins={bins!r}) must be a list of at least two ends in "
                          "ascending order")
    return constant(ends, x.dtype), constant(ends[-1], x.dtype)
