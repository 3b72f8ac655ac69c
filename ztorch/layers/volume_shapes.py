"""Layers that resize volumes: padding, cropping, upsampling and global pooling."""

from __future__ import annotations

from typing import Any

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.global_pooling import BaseGlobalPooling
from ztorch.layers.padding import cropped
from ztorch.layers.spatial import SpatialLayer
from ztorch.ops.windows import pad_axes


class ZeroPadding3D(SpatialLayer):
    """Adds a border of zeros to volumes.

    Args:
        padding: Width of the border: an integer, one for each axis, or a pair (before, after) for
            each axis. Default: `1`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        The input shape with a larger depth, more rows and columns.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 6, 6, 2)), ZeroPadding3D((1, 0, 2))]).output_shape
        (None, 10, 6, 10, 2)
    """

    axes = 3

    def __init__(self, padding: Any = 1, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.padding = self.pairs("padding", padding)

    def call(self, x: Value, context: Context) -> Value:
        return self.resized(x, context, (1,) * self.axes, zeroed=True)

    def last(self, x: Value, context: Context) -> Value:
        low, high = zip(*self.padding, strict=True)
        return pad_axes(x, low, high)


class Cropping3D(SpatialLayer):
    """Removes the border of volumes.

    Args:
        cropping: Width of the border: an integer, one for each axis, or a pair (before, after) for
            each axis. Default: `1`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        The input shape with a smaller depth, fewer rows and columns.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 6, 6, 2)), Cropping3D()]).output_shape
        (None, 6, 4, 4, 2)
    """

    axes = 3

    def __init__(self, cropping: Any = 1, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.cropping = self.pairs("cropping", cropping)

    def call(self, x: Value, context: Context) -> Value:
        return self.resized(x, context, (1,) * self.axes)

    def last(self, x: Value, context: Context) -> Value:
        return cropped(x, self.cropping)


class UpSampling3D(SpatialLayer):
    """Repeats the elements of volumes along each axis.

    Args:
        size: Number of repetitions: an integer, or one for each axis. Default: `2`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        The input shape with depth, rows and columns multiplied by `size`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 6, 6, 2)), UpSampling3D((1, 2, 3))]).output_shape
        (None, 8, 12, 18, 2)
    """

    axes = 3

    def __init__(self, size: Any = 2, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.size = self.each("size", size)

    def last(self, x: Value, context: Context) -> Value:
        for axis, times in enumerate(self.size, 1):
            x = OPS.repeat(x, times, axis)
        return x


class GlobalAveragePooling3D(BaseGlobalPooling, names=("GlobalAvgPool3D",)):
    """The mean of each channel of a volume.

    Args:
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        `(batch, channels)`; with `keepdims`, the other axes have size 1.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 6, 6, 2)), GlobalAveragePooling3D()]).output_shape
        (None, 2)
    """

    axes, op, needs_floats = 3, "mean", True


class GlobalMaxPooling3D(BaseGlobalPooling, names=("GlobalMaxPool3D",)):
    """The largest element of each channel of a volume.

    Args:
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        `(batch, channels)`; with `keepdims`, the other axes have size 1.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 6, 6, 2)), GlobalMaxPooling3D()]).output_shape
        (None, 2)
    """

    axes, op = 3, "max"
