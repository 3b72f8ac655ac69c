"""Adaptive pooling: a given number of outputs, whatever the size of the input."""

from __future__ import annotations

from typing import Any

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.spatial import SpatialLayer


class BaseAdaptivePooling(SpatialLayer, abstract=True):
    """Base class of the adaptive pooling layers.

    Output k of n reads the elements from `floor(k * size / n)` to below `ceil((k + 1) * size / n)`.
    """

    op = ""  # the name of the op

    def __init__(self, output_size: Any, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.output_size = self.each("output_size", output_size)

    def last(self, x: Value, context: Context) -> Value:
        return getattr(OPS, self.op)(x, self.output_size)


class AdaptiveAveragePooling1D(BaseAdaptivePooling):
    """The mean of each of a given number of windows of a sequence, for each channel.

    Args:
        output_size: Number of outputs. A positive integer.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 5, 3)
    """

    axes, op, needs_floats = 1, "adaptive_average_pool", True


class AdaptiveAveragePooling2D(BaseAdaptivePooling):
    """The mean of each of a given number of windows of an image, for each channel.

    Args:
        output_size: Numbers of output rows and columns: an integer for both, or a pair.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 5, 2, 3)
    """

    axes, op, needs_floats = 2, "adaptive_average_pool", True


class AdaptiveAveragePooling3D(BaseAdaptivePooling):
    """The mean of each of a given number of windows of a volume, for each channel.

    Args:
        output_size: Numbers of outputs along depth, rows and columns: an integer for all, or three.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 2, 5, 2, 3)
    """

    axes, op, needs_floats = 3, "adaptive_average_pool", True


class AdaptiveMaxPooling1D(BaseAdaptivePooling):
    """The largest element of each of a given number of windows of a sequence, for each channel.

    Args:
        output_size: Number of outputs. A positive integer.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 5, 3)
    """

    axes, op = 1, "adaptive_max_pool"


class AdaptiveMaxPooling2D(BaseAdaptivePooling):
    """The largest element of each of a given number of windows of an image, for each channel.

    Args:
        output_size: Numbers of output rows and columns: an integer for both, or a pair.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 5, 2, 3)
    """

    axes, op = 2, "adaptive_max_pool"


class AdaptiveMaxPooling3D(BaseAdaptivePooling):
    """The largest element of each of a given number of windows of a volume, for each channel.

    Args:
        output_size: Numbers of outputs along depth, rows and columns: an integer for all, or three.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 2, 5, 2, 3)
    """

    axes, op = 3, "adaptive_max_pool"
