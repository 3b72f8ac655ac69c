"""Activations that keep positive inputs: relu, elu and their relatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, op
from ztorch.graph.value import Value

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _relu_numpy(x: Any, negative_slope: float = 0.0, max_value: float | None = None,
                threshold: float = 0.0) -> Any:
    y = np.where(x <= threshold, negative_slope * (x - threshold), x)
    return y if max_value is None else np.minimum(y, max_value)


@op(Sample(((3, 5),)), Sample(((4, 7),), {"negative_slope": 0.1, "max_value": 1.5}),
    Sample(((4, 7),), {"threshold": 0.5}), numpy=_relu_numpy)
def relu(x: Value, negative_slope: float = 0.0, max_value: float | None = None,
         threshold: float = 0.0) -> Value:
    """x where it is above the threshold, otherwise 0 or a slope; at most `max_value`.

    Args:
        x: Float tensor.
        negative_slope: Slope below the threshold. Default: `0.0`.
        max_value: Largest result. `None` means no limit. Default: `None`.
        threshold: Inputs up to this value are negative ones. Default: `0.0`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    low: Any = 0.0
    if negative_slope:
        low = (x - threshold if threshold else x) * negative_slope
    y = OPS.where(x <= threshold, low, x)
    return y if max_value is None else OPS.where(y >= max_value, max_value, y)


@op(Sample(((4, 5),), low=-3.0, high=9.0), numpy=lambda x: np.clip(x, 0, 6))
def relu6(x: Value) -> Value:
    """`relu` with results of at most 6.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return relu(x, max_value=6.0)


@op(Sample(((3, 5),)), Sample(((3, 5),), {"negative_slope": 0.01}),
    numpy=lambda x, negative_slope=0.2: np.where(x > 0, x, negative_slope * x))
def leaky_relu(x: Value, negative_slope: float = 0.2) -> Value:
    """x above zero, `negative_slope * x` below.

    Args:
        x: Float tensor.
        negative_slope: Slope below zero. Default: `0.2`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.where(x > 0.0, x, x * negative_slope)


def _elu_numpy(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _below(x: Value) -> Value:
    """x where it is not above zero, else 0: keeps exp small where its branch is not taken, for
    an infinity there would turn the gradient into NaN."""
    return OPS.where(x > 0.0, 0.0, x)


@op(Sample(((3, 5),)), Sample(((3, 5),), {"alpha": 0.5}), numpy=_elu_numpy)
def elu(x: Value, alpha: float = 1.0) -> Value:
    """x above zero, `alpha * (e ** x - 1)` below.

    Args:
        x: Float tensor.
        alpha: Limit of the result for very negative inputs, with its sign changed. Default: `1.0`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.where(x > 0.0, x, OPS.expm1(_below(x)) * alpha)


@op(Sample(((3, 5),)), numpy=lambda x: _SELU_SCALE * _elu_numpy(x, _SELU_ALPHA))
def selu(x: Value) -> Value:
    """`elu` with the scales that keep mean 0 and variance 1 from layer to layer.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return elu(x, _SELU_ALPHA) * _SELU_SCALE


@op(Sample(((3, 5),)), Sample(((3, 5),), {"alpha": 0.5}),
    numpy=lambda x, alpha=1.0: np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0) / alpha))
def celu(x: Value, alpha: float = 1.0) -> Value:
    """`elu` with `x / alpha` in the exponent, so that its slope is continuous for every alpha.

    Args:
        x: Float tensor.
        alpha: Limit of the result for very negative inputs, with its sign changed. Default: `1.0`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.where(x > 0.0, x, OPS.expm1(_below(x) * (1.0 / alpha)) * alpha)
