"""Activations of one number each (and gates): made of other ops, and safe far from zero.

Gradients at a kink follow PyTorch and TensorFlow (relu'(0) is 0). Comparisons are written so that
NaN passes: it compares false with everything, so the last branch must be the one that keeps x.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.op import OPS, Op, Sample, normal_axes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ir import meanings

_WIDE = Sample(((4, 5),), low=-6.0, high=6.0)
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


# -- sigmoid: the one that is a node, for its gradient needs nothing but its result ----------------


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
    # Written with y alone: the derivative of the formula itself would be 0 * infinity out there.
    grad=lambda o, g, y, x: (g * y * (1.0 - y),))


@op(_WIDE, primitive=_SIGMOID, numpy=_sigmoid_numpy)
def sigmoid(x: Value) -> Value:
    """1 / (1 + e ** -x)."""
    return _SIGMOID(x)


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


# -- the rectifiers --------------------------------------------------------------------------------


def _relu_numpy(x: Any, negative_slope: float = 0.0, max_value: float | None = None,
                threshold: float = 0.0) -> Any:
    y = np.where(x <= threshold, negative_slope * (x - threshold), x)
    return y if max_value is None else np.minimum(y, max_value)


@op(Sample(((3, 5),)), Sample(((4, 7),), {"negative_slope": 0.1, "max_value": 1.5}),
    Sample(((4, 7),), {"threshold": 0.5}), numpy=_relu_numpy)
def relu(x: Value, negative_slope: float = 0.0, max_value: float | None = None,
         threshold: float = 0.0) -> Value:
    """x where it is above the threshold, else 0 (or a slope); held below max_value."""
    low: Any = 0.0
    if negative_slope:
        low = (x - threshold if threshold else x) * negative_slope
    y = OPS.where(x <= threshold, low, x)
    return y if max_value is None else OPS.where(y >= max_value, max_value, y)


@op(Sample(((4, 5),), low=-3.0, high=9.0), numpy=lambda x: np.clip(x, 0, 6))
def relu6(x: Value) -> Value:
    """relu held below 6."""
    return relu(x, max_value=6.0)


@op(Sample(((3, 5),)), Sample(((3, 5),), {"negative_slope": 0.01}),
    numpy=lambda x, negative_slope=0.2: np.where(x > 0, x, negative_slope * x))
def leaky_relu(x: Value, negative_slope: float = 0.2) -> Value:
    """x above zero, negative_slope * x below."""
    return OPS.where(x > 0.0, x, x * negative_slope)


def _elu_numpy(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _below(x: Value) -> Value:
    """x where it is not above zero, else 0: keeps exp small where its branch is not taken, for
    an infinity there would turn the gradient into NaN."""
    return OPS.where(x > 0.0, 0.0, x)


@op(Sample(((3, 5),)), Sample(((3, 5),), {"alpha": 0.5}), numpy=_elu_numpy)
def elu(x: Value, alpha: float = 1.0) -> Value:
    """x above zero, alpha * (e ** x - 1) below."""
    return OPS.where(x > 0.0, x, OPS.expm1(_below(x)) * alpha)


@op(Sample(((3, 5),)), numpy=lambda x: _SELU_SCALE * _elu_numpy(x, _SELU_ALPHA))
def selu(x: Value) -> Value:
    """elu with the scales that keep mean 0 and variance 1 from layer to layer."""
    return elu(x, _SELU_ALPHA) * _SELU_SCALE


@op(Sample(((3, 5),)), Sample(((3, 5),), {"alpha": 0.5}),
    numpy=lambda x, alpha=1.0: np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0) / alpha))
def celu(x: Value, alpha: float = 1.0) -> Value:
    """elu whose slope is continuous for every alpha."""
    return OPS.where(x > 0.0, x, OPS.expm1(_below(x) * (1.0 / alpha)) * alpha)


# -- smooth gates ----------------------------------------------------------------------------------


def _gelu_numpy(x: Any, approximate: bool = False) -> Any:
    if approximate:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + meanings.erf(x / math.sqrt(2)))


@op(_WIDE, Sample(((4, 5),), {"approximate": True}), numpy=_gelu_numpy)
def gelu(x: Value, approximate: bool = False) -> Value:
    """x times the normal distribution function of x; the tanh formula if approximate."""
    if approximate:
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (OPS.tanh(inner) + 1.0)
    return x * 0.5 * (OPS.erf(x * math.sqrt(0.5)) + 1.0)


@op(_WIDE, numpy=lambda x: x * _sigmoid_numpy(x))
def silu(x: Value) -> Value:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


@op(_WIDE, numpy=lambda x: x * _sigmoid_numpy(x))
def swish(x: Value) -> Value:
    """Another name of silu."""
    return silu(x)


@op(_WIDE, numpy=_softplus)
def softplus(x: Value) -> Value:
    """log(e ** x + 1)."""
    return OPS.maximum(x, 0.0) + OPS.log1p(OPS.exp(-OPS.abs(x)))


@op(_WIDE, numpy=lambda x: -_softplus(-x))
def log_sigmoid(x: Value) -> Value:
    """log(sigmoid(x)), exact where sigmoid is almost 0 or 1."""
    return -softplus(-x)


@op(_WIDE, numpy=lambda x: x * np.tanh(_softplus(x)))
def mish(x: Value) -> Value:
    """x * tanh(softplus(x))."""
    return x * OPS.tanh(softplus(x))


@op(_WIDE, numpy=lambda x: x / (1 + np.abs(x)))
def softsign(x: Value) -> Value:
    """x / (1 + |x|)."""
    return x / (OPS.abs(x) + 1.0)


@op(_WIDE, Sample(((4, 5),), {"b": 1.0}), numpy=lambda x, b=4.0: (x + np.sqrt(x * x + b)) / 2)
def squareplus(x: Value, b: float = 4.0) -> Value:
    """(x + sqrt(x * x + b)) / 2."""
    return (x + OPS.sqrt(x * x + b)) * 0.5


@op(_WIDE, numpy=lambda x: x - np.tanh(x))
def tanh_shrink(x: Value) -> Value:
    """x - tanh(x)."""
    return x - OPS.tanh(x)


@op(Sample(((4, 6),)), Sample(((4, 6, 2),), {"axis": 1}),
    numpy=lambda x, axis=-1: np.multiply(
        np.split(x, 2, axis)[0], _sigmoid_numpy(np.split(x, 2, axis)[1])))
def glu(x: Value, axis: int = -1) -> Value:
    """The first half along an axis, gated by the sigmoid of the second."""
    [a] = normal_axes(axis, x.rank)
    half, odd = divmod(x.shape[a], 2)
    if odd:
        raise shape_error(f"ops.glu needs an even number of elements on axis {axis}, got", x.shape)
    size = (*x.shape[:a], half, *x.shape[a + 1:])
    one = (1,) * x.rank
    second = tuple(half if k == a else 0 for k in range(x.rank))
    return OPS.slice(x, (0,) * x.rank, one, size) * sigmoid(OPS.slice(x, second, one, size))


# -- piecewise linear and their kin ----------------------------------------------------------------


@op(_WIDE, numpy=lambda x: np.clip(x + 3, 0, 6) / 6)
def hard_sigmoid(x: Value) -> Value:
    """relu6(x + 3) / 6."""
    return relu6(x + 3.0) * (1.0 / 6.0)


@op(_WIDE, numpy=lambda x: x * np.clip(x + 3, 0, 6) / 6)
def hard_silu(x: Value) -> Value:
    """x * hard_sigmoid(x)."""
    return x * hard_sigmoid(x)


@op(_WIDE, numpy=lambda x: x * np.clip(x + 3, 0, 6) / 6)
def hard_swish(x: Value) -> Value:
    """Another name of hard_silu."""
    return hard_silu(x)


@op(Sample(((3, 5),)), numpy=lambda x: np.clip(x, -1, 1))
def hard_tanh(x: Value) -> Value:
    """x held between -1 and 1."""
    return OPS.clip(x, -1.0, 1.0)


@op(Sample(((3, 5),)), Sample(((3, 5),), {"threshold": 1.0}),
    numpy=lambda x, threshold=0.5: np.where(np.abs(x) <= threshold, 0, x))
def hard_shrink(x: Value, threshold: float = 0.5) -> Value:
    """x, but 0 where |x| is at most the threshold."""
    return OPS.where(OPS.abs(x) <= threshold, 0.0, x)


@op(Sample(((3, 5),)), Sample(((3, 5),), {"threshold": 1.0}),
    numpy=lambda x, threshold=0.5: x - np.clip(x, -threshold, threshold))
def soft_shrink(x: Value, threshold: float = 0.5) -> Value:
    """x moved towards zero by the threshold, and 0 within it."""
    return x - OPS.clip(x, -threshold, threshold)


@op(Sample(((3, 5),)), Sample(((3, 5),), {"threshold": 0.5, "default_value": -1.0}),
    numpy=lambda x, threshold=0.0, default_value=0.0: np.where(
        x <= threshold, default_value, x))
def threshold(x: Value, threshold: float = 0.0, default_value: float = 0.0) -> Value:
    """x where it is above the threshold, else default_value."""
    return OPS.where(x <= threshold, default_value, x)


@op(Sample(((3, 5),)),
    numpy=lambda x: np.where(x <= -1, 0, np.where(x < 1, (x + 1) ** 2 / 4, x)))
def sparse_plus(x: Value) -> Value:
    """0 up to -1, x from 1 on, a parabola between."""
    return OPS.where(x <= -1.0, 0.0, OPS.where(x < 1.0, OPS.square(x + 1.0) * 0.25, x))


@op(Sample(((3, 5),)), numpy=lambda x: np.clip((x + 1) / 2, 0, 1))
def sparse_sigmoid(x: Value) -> Value:
    """(x + 1) / 2 held between 0 and 1."""
    return OPS.clip((x + 1.0) * 0.5, 0.0, 1.0)


@op(Sample(((3, 5),)), numpy=np.exp)
def exponential(x: Value) -> Value:
    """Keras' name of exp."""
    return OPS.exp(x)


@op(Sample(((3, 5),)), numpy=lambda x: x)
def linear(x: Value) -> Value:
    """x itself."""
    return x
