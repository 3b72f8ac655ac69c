"""Ops that normalize rows along an axis: softmax and its relatives, and standardize.

None of them overflows, since the largest element of a row is subtracted first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, normal_axes, op
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import widened

Axes = int | tuple[int, ...]


def _rows(x: Any, axis: Any) -> tuple[Any, Any]:
    """x below its largest, and the sum of its exponentials."""
    below = x - np.max(x, axis, keepdims=True)
    return below, np.sum(np.exp(below), axis, keepdims=True)


_ROWS = (Sample(((3, 5),)), Sample(((3, 5, 2),), {"axis": 1}), Sample(((2, 3, 4),),
         {"axis": (1, 2)}), Sample(((2, 33),), {}, -50.0, 50.0))


def _below_largest(x: Value, axis: Axes) -> Value:
    """x, of at least 32 bits, minus its largest element along the axis. The shift cancels in every
    result, so it needs no gradient."""
    wide = widened(x)
    return wide - OPS.stop_gradient(OPS.max(wide, axis, True)) if x.size else wide


@op(*_ROWS, numpy=lambda x, axis=-1: np.exp(_rows(x, axis)[0]) / _rows(x, axis)[1])
def softmax(x: Value, axis: Axes = -1) -> Value:
    """Exponentials of x that sum to 1 along axes; NaN where all elements are -infinity.

    Args:
        x: Tensor of numbers. 16-bit floats are computed in float32.
        axis: Axis, or a tuple of axes; negative ones count from the last. Default: `-1`.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> from ztorch.graph.evaluate import evaluate
        >>> from ztorch.graph.op import constant
        >>> evaluate([softmax(constant([[0.0, 0.0]], "float32"))], {})
        [array([[0.5, 0.5]], dtype=float32)]
    """
    [x] = as_floats(x)
    e = OPS.exp(_below_largest(x, axis))
    return OPS.cast(e * (1.0 / OPS.sum(e, axis, True)), x.dtype)  # one division per row


@op(*_ROWS, numpy=lambda x, axis=-1: _rows(x, axis)[0] - np.log(_rows(x, axis)[1]))
def log_softmax(x: Value, axis: Axes = -1) -> Value:
    """`log(softmax(x))`, exact where softmax underflows.

    Args:
        x: Tensor of numbers. 16-bit floats are computed in float32.
        axis: Axis, or a tuple of axes; negative ones count from the last. Default: `-1`.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.
    """
    [x] = as_floats(x)
    below = _below_largest(x, axis)
    return OPS.cast(below - OPS.log(OPS.sum(OPS.exp(below), axis, True)), x.dtype)


def _sparsemax_numpy(x: Any, axis: int = -1) -> Any:
    """The threshold by bisection: the excess above it sums to 1."""
    high = np.max(x, axis, keepdims=True)
    low = high - 1.0
    for _ in range(80):
        middle = (low + high) / 2
        over = np.sum(np.maximum(x - middle, 0), axis, keepdims=True) > 1
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return np.maximum(x - low, 0)


@op(Sample(((3, 5),)), Sample(((3, 5, 2),), {"axis": 1}), Sample(((2, 33),), {}, -50.0, 50.0),
    numpy=_sparsemax_numpy)
def sparsemax(x: Value, axis: int = -1) -> Value:
    """The nearest distribution to x: like a softmax, but with zeros.

    Results are 0 or more and sum to 1 along the axis. (Those of Keras 3.15 do not sum to 1 where
    more than one is above 0.)

    Args:
        x: Tensor of numbers. 16-bit floats are computed in float32.
        axis: Axis of one distribution. Default: `-1`.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.sparsemax(np.array([0.5, 0.0, -1.0]))
        array([0.75, 0.25, 0.  ])
    """
    [x] = as_floats(x)
    below = _below_largest(x, axis)
    if not x.size:
        return x
    ordered = OPS.sort(OPS.stop_gradient(below), axis, descending=True)
    rank = OPS.cast(OPS.iota(x.shape, axis), ordered.dtype) + 1.0
    support = OPS.greater(rank * ordered + 1.0, OPS.cumsum(ordered, axis))  # a prefix of each row
    least = OPS.min(OPS.where(support, ordered, 0.0), axis, True)
    inside = OPS.logical_not(OPS.less(below, least))  # NaN is inside, so that it spreads
    rest = (OPS.sum(OPS.where(inside, below, 0.0), axis, True) - 1.0) / OPS.sum(
        OPS.cast(inside, below.dtype), axis, True)
    return OPS.cast(OPS.where(inside, below - rest, 0.0), x.dtype)


@op(Sample(((3, 5),)), Sample(((3, 5, 2),), {"axis": 1, "keepdims": True}),
    Sample(((2, 33),), {"axis": -1}, -50.0, 50.0),
    numpy=lambda x, axis=None, keepdims=False: np.log(np.sum(np.exp(x), axis, keepdims=keepdims)))
def logsumexp(x: Value, axis: Axes | None = None, keepdims: bool = False) -> Value:
    """`log(sum(e ** x))` along axes, without overflow; -infinity where all elements are, and for no
    elements.

    Args:
        x: Tensor of numbers. 16-bit floats are computed in float32.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.

    Returns:
        A tensor of the dtype of `x` without these axes; float64 for integers.
    """
    [x] = as_floats(x)
    if not x.size:
        return OPS.log(OPS.sum(x, axis, keepdims))
    wide = widened(x)
    largest = OPS.stop_gradient(OPS.max(wide, axis, True))
    shift = OPS.where(OPS.abs(largest) < math.inf, largest, 0.0)  # infinity - infinity is NaN
    y = OPS.cast(OPS.log(OPS.sum(OPS.exp(wide - shift), axis, True)) + shift, x.dtype)
    if keepdims:
        return y
    axes = normal_axes(axis, x.rank)
    return OPS.reshape(y, tuple(n for k, n in enumerate(x.shape) if k not in axes))


@op(Sample(((3, 5),)), Sample(((2, 3, 4),), {"axis": (1, 2), "epsilon": 1e-5}),
    numpy=lambda x, axis=-1, epsilon=1e-3: (
        (x - np.mean(x, axis, keepdims=True))
        / np.sqrt(np.var(x, axis, keepdims=True) + epsilon)))
def standardize(x: Value, axis: Axes = -1, epsilon: float = 1e-3) -> Value:
    """x with mean 0 and variance 1 along axes, as in layer and group normalization.

    The rounding error of the mean, which matters where the mean is large, is measured in the pass
    that sums the squares, and subtracted.

    Args:
        x: Float tensor. 16-bit floats are computed in float32.
        axis: Axis, or a tuple of axes; negative ones count from the last. Default: `-1`.
        epsilon: Added to the variance, to avoid division by zero. Default: `0.001`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.standardize(np.array([9999.0, 10001.0], np.float32), epsilon=0.0)
        array([-1.,  1.], dtype=float32)
    """
    wide = widened(x)
    deviations = wide - OPS.stop_gradient(OPS.mean(wide, axis, True))
    error = OPS.mean(deviations, axis, True)
    variance = OPS.maximum(OPS.mean(deviations * deviations, axis, True) - error * error, 0.0)
    return OPS.cast((deviations - error) * OPS.rsqrt(variance + epsilon), x.dtype)
