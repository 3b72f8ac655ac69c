"""Smooth activations and gates, composed of other ops and stable far from zero.

In this and other files of activations, gradients at a kink follow PyTorch and TensorFlow (relu'(0)
is 0). NaN compares false with everything, so the last branch of a choice keeps x, which propagates
NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.batching import pointwise
from ztorch.graph.op import OPS, Sample, normal_axes, op, shape_error
from ztorch.graph.value import Op, Value
from ztorch.ir import meanings
from ztorch.ops.formulas import as_floats

WIDE_SAMPLE = Sample(((4, 5),), low=-6.0, high=6.0)


def _sigmoid_infer(x: Value) -> tuple[tuple[int, ...], DType]:
    if not x.dtype.is_float:
        raise shape_error(f"ops.sigmoid does not take {x.dtype}",
                          fix="use ops.cast to change the dtype")
    return x.shape, x.dtype


def _sigmoid_numpy(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


_SIGMOID = Op(
    "sigmoid", "map", _sigmoid_infer, _sigmoid_numpy, cost=22,
    # exp overflows to infinity for very negative x, and 1 / infinity is the right answer.
    body=lambda e, index: e.b.div(1.0, e.b.add(e.b.exp(e.b.neg(e.read(0, index))), 1.0)),
    # Written with y alone: the derivative of the formula would be 0 * infinity for such x.
    grad=lambda o, g, y, x: (g * y * (1.0 - y),), batch=pointwise)


@op(WIDE_SAMPLE, primitive=_SIGMOID, numpy=_sigmoid_numpy)
def sigmoid(x: Value) -> Value:
    """The logistic function: `1 / (1 + e ** -x)`.

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.
    """
    return _SIGMOID(*as_floats(x))


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _gelu_numpy(x: Any, approximate: bool = False) -> Any:
    if approximate:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + meanings.erf(x / math.sqrt(2)))


@op(WIDE_SAMPLE, Sample(((4, 5),), {"approximate": True}), numpy=_gelu_numpy)
def gelu(x: Value, approximate: bool = False) -> Value:
    """x times the cumulative normal distribution of x.

    Args:
        x: Float tensor.
        approximate: Whether to use the formula with `tanh`, which is faster and less exact.
            Default: `False`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    if approximate:
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (OPS.tanh(inner) + 1.0)
    return x * 0.5 * (OPS.erf(x * math.sqrt(0.5)) + 1.0)


@op(WIDE_SAMPLE, numpy=lambda x: x * _sigmoid_numpy(x))
def silu(x: Value) -> Value:
    """`x * sigmoid(x)`.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return x * sigmoid(x)


@op(WIDE_SAMPLE, numpy=lambda x: x * _sigmoid_numpy(x))
def swish(x: Value) -> Value:
    """An alias of `silu`.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return silu(x)


@op(WIDE_SAMPLE, numpy=_softplus)
def softplus(x: Value) -> Value:
    """`log(e ** x + 1)`, without overflow.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.maximum(x, 0.0) + OPS.log1p(OPS.exp(-OPS.abs(x)))


@op(WIDE_SAMPLE, numpy=lambda x: -_softplus(-x))
def log_sigmoid(x: Value) -> Value:
    """`log(sigmoid(x))`, accurate where sigmoid is almost 0 or 1.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return -softplus(-x)


@op(WIDE_SAMPLE, numpy=lambda x: x * np.tanh(_softplus(x)))
def mish(x: Value) -> Value:
    """`x * tanh(softplus(x))`.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return x * OPS.tanh(softplus(x))


@op(WIDE_SAMPLE, numpy=lambda x: x / (1 + np.abs(x)))
def softsign(x: Value) -> Value:
    """`x / (1 + |x|)`.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return x / (OPS.abs(x) + 1.0)


@op(WIDE_SAMPLE, Sample(((4, 5),), {"b": 1.0}), numpy=lambda x, b=4.0: (x + np.sqrt(x * x + b)) / 2)
def squareplus(x: Value, b: float = 4.0) -> Value:
    """`(x + sqrt(x * x + b)) / 2`.

    Args:
        x: Float tensor.
        b: How far the curve is above `relu`, which it is for 0. 0 or more. Default: `4.0`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    size = OPS.abs(x)
    if not b:
        return (x + size) * 0.5
    total = OPS.hypot(x, math.sqrt(b)) + size  # without a difference, or a square that overflows
    return OPS.where(x < 0.0, 0.5 * b / total, total * 0.5)


@op(WIDE_SAMPLE, numpy=lambda x: x - np.tanh(x))
def tanh_shrink(x: Value) -> Value:
    """`x - tanh(x)`.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return x - OPS.tanh(x)


@op(Sample(((4, 6),)), Sample(((4, 6, 2),), {"axis": 1}),
    numpy=lambda x, axis=-1: np.multiply(
        np.split(x, 2, axis)[0], _sigmoid_numpy(np.split(x, 2, axis)[1])))
def glu(x: Value, axis: int = -1) -> Value:
    """The gated linear unit: the first half along an axis, times the sigmoid of the second half.

    Args:
        x: Float tensor with an even size along the axis.
        axis: Axis to split in half. Default: `-1`.

    Returns:
        A tensor with half the size along the axis.
    """
    [a] = normal_axes(axis, x.rank)
    half, odd = divmod(x.shape[a], 2)
    if odd:
        raise shape_error(f"ops.glu needs an even number of elements on axis {axis}, got", x.shape)
    size = (*x.shape[:a], half, *x.shape[a + 1:])
    step = (1,) * x.rank
    middle = tuple(half if k == a else 0 for k in range(x.rank))
    return OPS.slice(x, (0,) * x.rank, step, size) * sigmoid(OPS.slice(x, middle, step, size))


@op(Sample(((3, 5),)), numpy=np.exp)
def exponential(x: Value) -> Value:
    """`e ** x`: Keras' name of `exp`.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.exp(x)


@op(Sample(((3, 5),)), numpy=lambda x: x)
def linear(x: Value) -> Value:
    """x unchanged.

    Args:
        x: Tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return x
