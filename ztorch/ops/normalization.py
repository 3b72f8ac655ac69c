"""Normalizations as functions, with the layers' formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, normal_axes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import Axes, widened


def _spread_over(name: str, argument: str, p: Value, x: Value, axis: Axes) -> Value:
    """Parameters of the normalized axes, reshaped to broadcast with x."""
    axes = normal_axes(axis, x.rank)
    shape = tuple(n for k, n in enumerate(x.shape) if k in axes)
    if p.shape != shape:
        raise shape_error(f"ops.{name}: {argument} does not fit axis {axis} of x:", p.shape,
                          x.shape, fix=f"it must have shape {shape}")
    return OPS.reshape(p, tuple(n if k in axes else 1 for k, n in enumerate(x.shape)))


def _scaled(name: str, y: Value, x: Value, axis: Axes, scale: Value | None,
            offset: Value | None) -> Value:
    if scale is not None:
        y = y * OPS.cast(_spread_over(name, "scale", scale, x, axis), y.dtype)
    if offset is not None:
        y = y + OPS.cast(_spread_over(name, "offset", offset, x, axis), y.dtype)
    return OPS.cast(y, x.dtype)


def _shaped(p: Any, x: Any, axis: Any) -> Any:
    axes = [a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis)]
    return np.reshape(p, [n if k in axes else 1 for k, n in enumerate(x.shape)])


def _layer_norm_numpy(x: Any, scale: Any = None, offset: Any = None, axis: Any = -1,
                      epsilon: float = 1e-3) -> Any:
    centered = x - np.mean(x, axis, keepdims=True)
    y = centered / np.sqrt(np.var(x, axis, keepdims=True) + epsilon)
    y = y if scale is None else y * _shaped(scale, x, axis)
    return y if offset is None else y + _shaped(offset, x, axis)


@op(Sample(((3, 5),)), Sample(((3, 5), (5,), (5,))), Sample(((2, 3, 4), (3, 4)), {"axis": (1, 2)}),
    numpy=_layer_norm_numpy)
def layer_norm(x: Value, scale: Value | None = None, offset: Value | None = None, axis: Axes = -1,
               epsilon: float = 1e-3) -> Value:
    """`(x - mean) / sqrt(variance + epsilon) * scale + offset`, with statistics along axes.

    Args:
        x: Tensor of numbers. 16-bit floats are computed in float32.
        scale: Factor of each element along the axes, in their shape. `None` omits it. Default:
            `None`.
        offset: Added to each element along the axes, in their shape. `None` omits it. Default:
            `None`.
        axis: Axis, or a tuple of axes, of the mean and the variance. Default: `-1`.
        epsilon: Added to the variance, to avoid division by zero. Default: `0.001`.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.layer_norm(np.array([[1.0, 3.0]]), np.array([2.0, 2.0]), epsilon=0.0)
        array([[-2.,  2.]])
    """
    [x] = as_floats(x)
    y = OPS.standardize(widened(x), axis, epsilon)
    return _scaled("layer_norm", y, x, axis, scale, offset)


@op(Sample(((3, 5),)), Sample(((2, 3, 4), (3, 4)), {"axis": (1, 2), "epsilon": 1e-3}),
    numpy=lambda x, scale=1.0, axis=-1, epsilon=1e-6: x / np.sqrt(
        np.mean(x * x, axis, keepdims=True) + epsilon) * (
            scale if np.ndim(scale) == 0 else _shaped(scale, x, axis)))
def rms_norm(x: Value, scale: Value | None = None, axis: Axes = -1,
             epsilon: float = 1e-6) -> Value:
    """`x / sqrt(mean(x * x) + epsilon) * scale`, with the mean along axes.

    Args:
        x: Tensor of numbers. 16-bit floats are computed in float32.
        scale: Factor of each element along the axes, in their shape. `None` omits it. Default:
            `None`.
        axis: Axis, or a tuple of axes, of the mean. Default: `-1`.
        epsilon: Added to the mean square, to avoid division by zero. Default: `1e-06`.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.rms_norm(np.array([[3.0, -3.0]]), epsilon=0.0)
        array([[ 1., -1.]])
    """
    [x] = as_floats(x)
    wide = widened(x)
    y = wide * OPS.rsqrt(OPS.mean(wide * wide, axis, True) + epsilon)
    return _scaled("rms_norm", y, x, axis, scale, None)


def _batch_norm_numpy(x: Any, mean: Any, variance: Any, scale: Any = 1.0, offset: Any = 0.0,
                      axis: int = -1, epsilon: float = 1e-3) -> Any:
    mean, variance, scale, offset = (
        p if np.ndim(p) == 0 else _shaped(p, x, axis) for p in (mean, variance, scale, offset))
    return (x - mean) / np.sqrt(variance + epsilon) * scale + offset


@op(Sample(((3, 5), (5,), np.linspace(0.2, 2.0, 5))),
    Sample(((2, 3, 4), (3,), np.linspace(0.2, 2.0, 3), (3,), (3,)), {"axis": 1}),
    numpy=_batch_norm_numpy)
def batch_norm(x: Value, mean: Value, variance: Value, scale: Value | None = None,
               offset: Value | None = None, axis: int = -1, epsilon: float = 1e-3) -> Value:
    """`(x - mean) / sqrt(variance + epsilon) * scale + offset`, with given statistics.

    Args:
        x: Tensor of numbers. 16-bit floats are computed in float32.
        mean: Mean of each feature, `(features,)`: of the batch, or a moving one.
        variance: Variance of each feature, `(features,)`.
        scale: Factor of each feature, `(features,)`. `None` omits it. Default: `None`.
        offset: Added to each feature, `(features,)`. `None` omits it. Default: `None`.
        axis: Axis of the features. Default: `-1`.
        epsilon: Added to the variance, to avoid division by zero. Default: `0.001`.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> x = np.array([[1.0, 10.0], [3.0, 30.0]])
        >>> zt.ops.batch_norm(x, zt.ops.mean(x, 0), zt.ops.var(x, 0), epsilon=0.0)
        array([[-1., -1.],
               [ 1.,  1.]])
    """
    [x] = as_floats(x)
    wide = widened(x)
    spread = [OPS.cast(_spread_over("batch_norm", argument, p, x, axis), wide.dtype)
              for argument, p in (("mean", mean), ("variance", variance))]
    factor = OPS.rsqrt(spread[1] + epsilon)
    if scale is not None:  # it is smaller than x, so multiply the two factors first
        factor = factor * OPS.cast(_spread_over("batch_norm", "scale", scale, x, axis), wide.dtype)
    return _scaled("batch_norm", (wide - spread[0]) * factor, x, axis, None, offset)
