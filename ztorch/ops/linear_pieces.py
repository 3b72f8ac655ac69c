"""Piecewise linear or quadratic activations. At a border the gradient is that of the flat piece."""

from __future__ import annotations

import numpy as np

from ztorch.graph.op import OPS, Sample, op
from ztorch.graph.value import Value
from ztorch.ops.activation import WIDE_SAMPLE
from ztorch.ops.rectifiers import relu6


@op(WIDE_SAMPLE, numpy=lambda x: np.clip(x + 3, 0, 6) / 6)
def hard_sigmoid(x: Value) -> Value:
    """`relu6(x + 3) / 6`.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return relu6(x + 3.0) * (1.0 / 6.0)


@op(WIDE_SAMPLE, numpy=lambda x: x * np.clip(x + 3, 0, 6) / 6)
def hard_silu(x: Value) -> Value:
    """`x * hard_sigmoid(x)`.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return x * hard_sigmoid(x)


@op(WIDE_SAMPLE, numpy=lambda x: x * np.clip(x + 3, 0, 6) / 6)
def hard_swish(x: Value) -> Value:
    """An alias of `hard_silu`.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return hard_silu(x)


@op(Sample(((3, 5),)), numpy=lambda x: np.clip(x, -1, 1))
def hard_tanh(x: Value) -> Value:
    """x clipped to the range from -1 to 1.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.where(x <= -1.0, -1.0, OPS.where(x >= 1.0, 1.0, x))


@op(Sample(((3, 5),)), Sample(((3, 5),), {"threshold": 1.0}),
    numpy=lambda x, threshold=0.5: np.where(np.abs(x) <= threshold, 0, x))
def hard_shrink(x: Value, threshold: float = 0.5) -> Value:
    """x, or 0 where `|x|` is at most the threshold.

    Args:
        x: Float tensor.
        threshold: Largest absolute value that becomes 0. Default: `0.5`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.where(OPS.abs(x) <= threshold, 0.0, x)


@op(Sample(((3, 5),)), Sample(((3, 5),), {"threshold": 1.0}),
    numpy=lambda x, threshold=0.5: x - np.clip(x, -threshold, threshold))
def soft_shrink(x: Value, threshold: float = 0.5) -> Value:
    """x moved towards zero by the threshold, and 0 within it.

    Args:
        x: Float tensor.
        threshold: Distance of the move. Default: `0.5`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.where(OPS.abs(x) <= threshold, 0.0, x - OPS.clip(x, -threshold, threshold))


@op(Sample(((3, 5),)), Sample(((3, 5),), {"threshold": 0.5, "default_value": -1.0}),
    numpy=lambda x, threshold=0.0, default_value=0.0: np.where(
        x <= threshold, default_value, x))
def threshold(x: Value, threshold: float = 0.0, default_value: float = 0.0) -> Value:
    """x where it is above the threshold, otherwise `default_value`.

    Args:
        x: Float tensor.
        threshold: Inputs up to this value are replaced. Default: `0.0`.
        default_value: The replacement. Default: `0.0`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.where(x <= threshold, default_value, x)


@op(Sample(((3, 5),)),
    numpy=lambda x: np.where(x <= -1, 0, np.where(x < 1, (x + 1) ** 2 / 4, x)))
def sparse_plus(x: Value) -> Value:
    """0 below -1, x above 1, and a parabola in between.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.where(x <= -1.0, 0.0, OPS.where(x < 1.0, OPS.square(x + 1.0) * 0.25, x))


@op(Sample(((3, 5),)), numpy=lambda x: np.clip((x + 1) / 2, 0, 1))
def sparse_sigmoid(x: Value) -> Value:
    """`(x + 1) / 2`, clipped to the range from 0 to 1.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.where(x <= -1.0, 0.0, OPS.where(x >= 1.0, 1.0, (x + 1.0) * 0.5))
