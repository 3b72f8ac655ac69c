"""Adaptive pooling: a given number of outputs, whatever the size of the input."""

from __future__ import annotations

from typing import Any

from ztorch.errors import Unsupported
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.spatial import SpatialLayer

MOST_WINDOWS = 1024  # of different sizes: each is a part of the graph of its own

class BaseAdaptivePooling(SpatialLayer, abstract=True):
    """Base of the adaptive pooling layers.

    Output k of n reads the elements from `floor(k * size / n)` to below `ceil((k + 1) * size / n)`.
    """

    op = ""  # that makes one number of those of a window

    def __init__(self, output_size: Any, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.output_size = self.each("output_size", output_size)

    def last(self, x: Value, context: Context) -> Value:
        for axis, count in enumerate(self.output_size, 1):
            x = self._pooled(x, axis, count)
        return x

    def _pooled(self, x: Value, axis: int, count: int) -> Value:
        """x with `count` elements along an axis."""
        size, reduce = x.shape[axis], getattr(OPS, self.op)
        if size % count == 0:
            shape = (*x.shape[:axis], count, size // count, *x.shape[axis + 1:])
            return reduce(OPS.reshape(x, shape), axis + 1)
        if count > MOST_WINDOWS:
            raise Unsupported(f"{type(self).__name__}(output_size={count}) of {size} elements: "
                              f"windows of different sizes are at most {MOST_WINDOWS}; choose a "
                              f"divisor of {size}")
        parts = []
        for k in range(count):
            window = slice(k * size // count, -(-(k + 1) * size // count))
            parts.append(reduce(x[(slice(None),) * axis + (window,)], axis, keepdims=True))
        return OPS.concat(*parts, axis=axis)


class AdaptiveAveragePooling1D(BaseAdaptivePooling):
    """The mean of each of a given number of windows of a sequence, for each channel.

    Args:
        output_size: Number of outputs. A positive integer.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`, or `(batch, channels, steps)` with channels first.

    Output shape:
        `(batch, output_size, channels)`, or with the channels first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((20, 3)), AdaptiveAveragePooling1D(5)]).output_shape
        (5, 3)
    """

    axes, op, needs_floats = 1, "mean", True


class AdaptiveAveragePooling2D(BaseAdaptivePooling):
    """The mean of each of a given number of windows of an image, for each channel.

    Args:
        output_size: Numbers of output rows and columns: an integer for both, or a pair.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        `(batch, *output_size, channels)`, or with the channels first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((10, 9, 3)), AdaptiveAveragePooling2D((5, 2))]).output_shape
        (5, 2, 3)
    """

    axes, op, needs_floats = 2, "mean", True


class AdaptiveAveragePooling3D(BaseAdaptivePooling):
    """The mean of each of a given number of windows of a volume, for each channel.

    Args:
        output_size: Numbers of outputs along depth, rows and columns: an integer for all, or three.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        `(batch, *output_size, channels)`, or with the channels first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((4, 10, 9, 3)), AdaptiveAveragePooling3D((2, 5, 2))]).output_shape
        (2, 5, 2, 3)
    """

    axes, op, needs_floats = 3, "mean", True


class AdaptiveMaxPooling1D(BaseAdaptivePooling):
    """The largest element of each of a given number of windows of a sequence, for each channel.

    Args:
        output_size: Number of outputs. A positive integer.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`, or `(batch, channels, steps)` with channels first.

    Output shape:
        `(batch, output_size, channels)`, or with the channels first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((20, 3)), AdaptiveMaxPooling1D(5)]).output_shape
        (5, 3)
    """

    axes, op = 1, "max"


class AdaptiveMaxPooling2D(BaseAdaptivePooling):
    """The largest element of each of a given number of windows of an image, for each channel.

    Args:
        output_size: Numbers of output rows and columns: an integer for both, or a pair.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        `(batch, *output_size, channels)`, or with the channels first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((10, 9, 3)), AdaptiveMaxPooling2D((5, 2))]).output_shape
        (5, 2, 3)
    """

    axes, op = 2, "max"


class AdaptiveMaxPooling3D(BaseAdaptivePooling):
    """The largest element of each of a given number of windows of a volume, for each channel.

    Args:
        output_size: Numbers of outputs along depth, rows and columns: an integer for all, or three.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        `(batch, *output_size, channels)`, or with the channels first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((4, 10, 9, 3)), AdaptiveMaxPooling3D((2, 5, 2))]).output_shape
        (2, 5, 2, 3)
    """

    axes, op = 3, "max"
