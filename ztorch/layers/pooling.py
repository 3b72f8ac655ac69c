"""Pooling in windows: one number per window and channel."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.spatial import SpatialLayer
from ztorch.layers.windows import Window, framed


def lowest(d: DType) -> float:
    """The smallest number of a dtype."""
    return -math.inf if d.is_float else int(np.iinfo(d.numpy).min)


class BasePooling(SpatialLayer, abstract=True):
    """Base class of pooling: one number per window and channel."""

    op = ""

    def __init__(self, pool_size: Any, strides: Any = None, padding: str = "valid",
                 data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.pool_size = self.each("pool_size", pool_size)
        self.strides = self.pool_size if strides is None else self.each("strides", strides)
        self.padding = self.choice("padding", padding, ("valid", "same"))

    def last(self, x: Value, context: Context) -> Value:
        return getattr(OPS, self.op)(x, self.pool_size, self.strides, self.padding)

    def call(self, x: Value, context: Context) -> Value:
        padding, first = context.padding, 2 if self.channels_first else 1
        padded = padding.of(x)
        if not any(first <= axis < first + self.axes for axis in padded):
            return super().call(x, context)
        windows = [Window(k, s, self.padding)
                   for k, s in zip(self.pool_size, self.strides, strict=True)]
        fill = lowest(x.dtype) if self.op == "max_pool" else 0
        window_input, results = framed(x, first, windows, fill, context)
        unpadded = copy.copy(self)
        unpadded.padding = "valid"
        y = SpatialLayer.call(unpadded, window_input, context)
        if self.op != "max_pool" and self.padding == "same":  # padding does not count
            ones = padding.declare(OPS.ones_like(x), padded)
            counted, _ = framed(ones, first, windows, 0, context)
            share = SpatialLayer.call(unpadded, counted, context)
            y = y / OPS.where(share > 0.0, share, 1.0)
        return padding.declare(y, results)


class BaseMaxPooling(BasePooling, abstract=True):
    op = "max_pool"

    def __init__(self, pool_size: Any = 2, strides: Any = None, padding: str = "valid",
                 data_format: str | None = None, **common: Any):
        super().__init__(pool_size, strides, padding, data_format, **common)


class MaxPooling1D(BaseMaxPooling, names=("MaxPool1D",)):
    """The largest element of each window of a sequence.

    Args:
        pool_size: Size of the window: an integer, or one for each axis. Default: `2`.
        strides: Step of the window. `None` means `pool_size`, so that windows do not overlap.
            Default: `None`.
        padding: `"valid"` for no padding, or `"same"` for `ceil(steps / strides)` outputs. Default:
            `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`, or `(batch, channels, steps)` with channels first.

    Output shape:
        The input shape with fewer steps.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((20, 3)), MaxPooling1D(3)]).output_shape
        (None, 6, 3)
    """

    axes = 1


class MaxPooling2D(BaseMaxPooling, names=("MaxPool2D",)):
    """The largest element of each window of an image.

    Args:
        pool_size: Size of the window: an integer, or one for each axis. Default: `2`.
        strides: Step of the window. `None` means `pool_size`, so that windows do not overlap.
            Default: `None`.
        padding: `"valid"` for no padding, or `"same"` for `ceil(length / strides)` outputs along
            each axis. Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The input shape with fewer rows and columns.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((7, 7, 3)), MaxPooling2D(padding="same")]).output_shape
        (None, 4, 4, 3)
    """


class AveragePooling1D(BasePooling, names=("AvgPool1D",)):
    """The mean of each window of a sequence. Padding does not count.

    Args:
        pool_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window. `None` means `pool_size`, so that windows do not overlap.
            Default: `None`.
        padding: `"valid"` for no padding, or `"same"` for `ceil(steps / strides)` outputs. Default:
            `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`, or `(batch, channels, steps)` with channels first.

    Output shape:
        The input shape with fewer steps.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((20, 3)), AveragePooling1D(4, strides=2)]).output_shape
        (None, 9, 3)
    """

    axes, op, needs_floats = 1, "average_pool", True


class AveragePooling2D(BasePooling, names=("AvgPool2D",)):
    """The mean of each window of an image. Padding does not count.

    Args:
        pool_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window. `None` means `pool_size`, so that windows do not overlap.
            Default: `None`.
        padding: `"valid"` for no padding, or `"same"` for `ceil(length / strides)` outputs along
            each axis. Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The input shape with fewer rows and columns.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 6, 3)), AveragePooling2D((2, 3))]).output_shape
        (None, 4, 2, 3)
    """

    op, needs_floats = "average_pool", True
