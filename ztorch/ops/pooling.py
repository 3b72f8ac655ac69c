"""Pooling over windows, and upsampling; channels last."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, constant, op, shape_error
from ztorch.graph.value import Value
from ztorch.ir.opcodes import identity
from ztorch.ops.blending import blend
from ztorch.ops.formulas import as_floats
from ztorch.ops.pool_gradients import POOLED, windows_last
from ztorch.ops.reduction import widened
from ztorch.ops.windows import Shape, Sizes, for_each, pad_axes, paddings


def _pool_numpy(x: Any, size: Sizes, stride: Sizes | None, padding: Any, take: Any) -> Any:
    count = x.ndim - 2
    size = for_each("", size, count)
    stride = size if stride is None else for_each("", stride, count)
    low, high = paddings(padding, x.shape[1:-1], size, stride)
    ends = [(n + a + b - k) // s + 1 for n, a, b, k, s in zip(
        x.shape[1:-1], low, high, size, stride, strict=True)]
    y = np.empty((len(x), *ends, x.shape[-1]), x.dtype)
    for at in np.ndindex(*ends):  # windows cut at the borders, so padding is never seen
        window = tuple(slice(max(i * s - a, 0), i * s - a + k)
                     for i, s, a, k in zip(at, stride, low, size, strict=True))
        windows = np.stack([take(image[window], axis=tuple(range(count))) for image in x])
        np.moveaxis(y, 0, -2)[at] = windows
    return y


def _windows_of(x: Value, size: Sizes, stride: Sizes | None, padding: Any,
                value: Any) -> tuple[Value, Shape, list[Shape], tuple[Value, dict[str, Shape]]]:
    """(batch, *positions, *places, channels), which axes places are, and for each axis how many
    places of each position are not padding; the padded tensor, and how its windows lie."""
    if x.rank < 3:
        raise shape_error("pooling needs (batch, *axes, channels), not", x.shape)
    axes = tuple(range(1, x.rank - 1))
    size = for_each("pool size", size, len(axes))
    stride = size if stride is None else for_each("stride", stride, len(axes))
    low, high = paddings(padding, x.shape[1:-1], size, stride)
    if any(max(a, b) >= k for a, b, k in zip(low, high, size, strict=True)):
        raise shape_error(f"padding {padding} leaves windows of nothing but padding; got", size)
    if any(a + n + b < k for a, n, b, k in zip(low, x.shape[1:-1], high, size, strict=True)):
        raise shape_error("pooling windows are larger than the inputs:", size, x.shape,
                          fix="use a smaller pool_size, or padding='same'")
    padded, how = pad_axes(x, low, high, value), {"axes": axes, "size": size, "stride": stride}
    windows, places = windows_last(padded, **how)
    inside = [tuple(min(i * s - a + k, n) - max(i * s - a, 0) for i in range(windows.shape[axis]))
              for axis, n, a, k, s in zip(axes, x.shape[1:], low, size, stride, strict=False)]
    return windows, places, inside, (padded, how)


@op(Sample(((2, 6, 3),), {"size": 2}),
    Sample(((1, 5, 4, 2),), {"size": (3, 2), "stride": (2, 1), "padding": "same"}),
    Sample(((1, 5, 4, 2),), {"size": 2, "padding": ((1, 0), (0, 1))}),
    numpy=lambda x, size, stride=None, padding="valid": _pool_numpy(x, size, stride, padding,
                                                                    np.max))
def max_pool(x: Value, size: Sizes, stride: Sizes | None = None, padding: Any = "valid") -> Value:
    """The largest element of each window over the axes between batch and channels.

    Equally large elements of a window share the gradient, as with `max`.

    Args:
        x: Tensor `(batch, *axes, channels)` of numbers.
        size: Size of the window: an integer, or one for each axis.
        stride: Step of the window. `None` means `size`, so that windows do not overlap. Default:
            `None`.
        padding: `"valid"` for no padding, `"same"` for `ceil(length / stride)` outputs, or a pair
            (before, after) for each axis. Default: `"valid"`.

    Returns:
        A tensor `(batch, *new axes, channels)`.

    Examples:
        >>> from ztorch.graph.op import leaf
        >>> max_pool(leaf("input", "x", (1, 7, 7, 3), "float32"), 2, padding="same").shape
        (1, 4, 4, 3)
    """
    if not (x.dtype.is_float or x.dtype.is_int):
        raise shape_error(f"ops.max_pool takes numbers, not {x.dtype}", fix="cast it first")
    windows, places, _, (padded, how) = _windows_of(
        x, size, stride, padding, identity("max", x.dtype))
    y = OPS.max(windows, axis=places)
    overlap = any(k > s for k, s in zip(how["size"], how["stride"], strict=True))
    return POOLED(OPS.stop_gradient(y), padded, **how) if overlap else y


@op(Sample(((2, 6, 3),), {"size": 2}), Sample(((1, 6, 6, 3),), {"size": 3, "stride": 1}),
    Sample(((1, 5, 4, 2),), {"size": (3, 2), "stride": (2, 1), "padding": "same"}),
    numpy=lambda x, size, stride=None, padding="valid": _pool_numpy(x, size, stride, padding,
                                                                    np.mean))
def average_pool(x: Value, size: Sizes, stride: Sizes | None = None,
                 padding: Any = "valid") -> Value:
    """The mean of each window over the axes between batch and channels. Padding does not count.

    Args:
        x: Tensor `(batch, *axes, channels)` of numbers. Integers become float64.
        size: Size of the window: an integer, or one for each axis.
        stride: Step of the window. `None` means `size`, so that windows do not overlap. Default:
            `None`.
        padding: `"valid"` for no padding, `"same"` for `ceil(length / stride)` outputs, or a pair
            (before, after) for each axis. Default: `"valid"`.

    Returns:
        A tensor `(batch, *new axes, channels)`.

    Examples:
        >>> from ztorch.graph.op import leaf
        >>> average_pool(leaf("input", "x", (1, 7, 3), "float32"), 2).shape
        (1, 3, 3)
    """
    [x] = as_floats(x)
    windows, places, inside, _ = _windows_of(x, size, stride, padding, 0)
    counts = np.ones((1,) * (x.rank - 1))
    for axis, along in enumerate(inside):
        counts = counts * np.reshape(along, [-1 if a == axis else 1 for a in range(x.rank - 1)])
    total = OPS.sum(widened(windows), axis=places)
    if np.min(counts) == np.max(counts):
        return OPS.cast(total * (1.0 / float(np.max(counts))), x.dtype)
    return OPS.cast(total * constant(1.0 / counts, total.dtype), x.dtype)


# -- upsampling ------------------------------------------------------------------------------------


def _upsample_numpy(x: Any, size: Sizes, interpolation: str = "nearest") -> Any:
    for axis, times in enumerate(for_each("", size, x.ndim - 2), 1):
        if interpolation == "nearest":
            x = np.repeat(x, times, axis)
            continue
        n = x.shape[axis]
        at = np.clip((np.arange(n * times) + 0.5) / times - 0.5, 0, n - 1)
        low = np.floor(at).astype(int)
        part = (at - low).reshape(-1, *[1] * (x.ndim - axis - 1)).astype(x.dtype)
        x = np.take(x, low, axis) * (1 - part) + np.take(x, np.minimum(low + 1, n - 1), axis) * part
    return x


@op(Sample(((2, 3, 2),), {"size": 3}), Sample(((1, 3, 4, 2),), {"size": (2, 3)}),
    Sample(((1, 3, 4, 2),), {"size": (2, 3), "interpolation": "bilinear"}), numpy=_upsample_numpy)
def upsample(x: Value, size: Sizes, interpolation: str = "nearest") -> Value:
    """The axes between batch and channels, enlarged by whole factors.

    Args:
        x: Tensor `(batch, *axes, channels)`; `"bilinear"` makes float64 of integers.
        size: Factor: an integer, or one for each axis.
        interpolation: `"nearest"` repeats elements, `"bilinear"` interpolates between their
            centers. Default: `"nearest"`.

    Returns:
        A tensor `(batch, *new axes, channels)`.

    Examples:
        >>> from ztorch.graph.op import leaf
        >>> upsample(leaf("input", "x", (1, 7, 5, 3), "float32"), (2, 3)).shape
        (1, 14, 15, 3)
    """
    if x.rank < 3:
        raise shape_error("upsampling needs (batch, *axes, channels), not", x.shape)
    if interpolation not in ("nearest", "bilinear"):
        raise shape_error(f"interpolation {interpolation!r} is neither 'nearest' nor 'bilinear'")
    along, [x] = (_repeat, [x]) if interpolation == "nearest" else (_interpolated, as_floats(x))
    for axis, times in enumerate(for_each("size", size, x.rank - 2), 1):
        if times > 1:
            x = along(x, axis, times)
    return x


def _repeat(x: Value, axis: int, times: int) -> Value:
    before, n, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1:]
    many = OPS.broadcast_to(OPS.reshape(x, (*before, n, 1, *after)), (*before, n, times, *after))
    return OPS.reshape(many, (*before, n * times, *after))


def _interpolated(x: Value, axis: int, times: int) -> Value:
    """Each new element blends two neighbors."""
    identity = np.eye(x.shape[axis])[None]
    return blend(x, _upsample_numpy(identity, (times,), "bilinear")[0], axis)
