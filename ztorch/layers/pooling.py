"""Layers that make images and sequences smaller, larger, or frame them."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.opcodes import identity
from ztorch.layers.context import Context
from ztorch.layers.real_positions import spread
from ztorch.layers.spatial import SpatialLayer
from ztorch.layers.windows import Window, framed


class BasePooling(SpatialLayer, abstract=True):
    """Base of the pooling layers: one number for each window of each channel."""

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
        fill = identity("max", x.dtype) if self.op == "max_pool" else 0
        seen, results = framed(x, first, windows, fill, context)
        unpadded = copy.copy(self)
        unpadded.padding = "valid"
        y = SpatialLayer.call(unpadded, seen, context)
        if self.op != "max_pool" and self.padding == "same":  # what lies beyond does not count
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
        padding: `"valid"` for none, or `"same"` for `ceil(steps / strides)` outputs. Default:
            `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
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
        (6, 3)
    """

    axes = 1


class MaxPooling2D(BaseMaxPooling, names=("MaxPool2D",)):
    """The largest element of each window of an image.

    Args:
        pool_size: Size of the window: an integer, or one for each axis. Default: `2`.
        strides: Step of the window. `None` means `pool_size`, so that windows do not overlap.
            Default: `None`.
        padding: `"valid"` for none, or `"same"` for `ceil(length / strides)` outputs along each
            axis. Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
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
        (4, 4, 3)
    """


class AveragePooling1D(BasePooling, names=("AvgPool1D",)):
    """The mean of each window of a sequence. Padding does not count.

    Args:
        pool_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window. `None` means `pool_size`, so that windows do not overlap.
            Default: `None`.
        padding: `"valid"` for none, or `"same"` for `ceil(steps / strides)` outputs. Default:
            `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
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
        (9, 3)
    """

    axes, op, needs_floats = 1, "average_pool", True


class AveragePooling2D(BasePooling, names=("AvgPool2D",)):
    """The mean of each window of an image. Padding does not count.

    Args:
        pool_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window. `None` means `pool_size`, so that windows do not overlap.
            Default: `None`.
        padding: `"valid"` for none, or `"same"` for `ceil(length / strides)` outputs along each
            axis. Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
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
        (4, 2, 3)
    """

    op, needs_floats = "average_pool", True


class BaseGlobalPooling(SpatialLayer, abstract=True):
    """Base of the global pooling layers: one number for each channel."""

    op = ""

    def __init__(self, data_format: str | None = None, keepdims: bool = False, **common: Any):
        super().__init__(data_format, **common)
        self.keepdims = keepdims

    def call(self, x: Value, context: Context) -> Value:
        return self.pooled(x, None, context)

    def pooled(self, x: Value, mask: Value | None, context: Context) -> Value:
        """The output. A mask `(batch, steps)` is for sequences."""
        self.channels(x.shape[1:])
        first = 2 if self.channels_first else 1
        axes = tuple(range(first, first + self.axes))
        counts = None if mask is None else spread(mask, x.rank, first)
        for axis in axes:
            part = context.padding.along(x, axis)
            if part is not None and part is not mask:
                part = spread(part, x.rank, axis)
                counts = part if counts is None else OPS.bitwise_and(counts, part)
        if counts is None:
            return getattr(OPS, self.op)(x, axis=axes, keepdims=self.keepdims)
        counts = OPS.broadcast_to(counts, tuple(
            n if k == 0 or k in axes else 1 for k, n in enumerate(x.shape)))
        return context.padding.declare(self.masked(x, counts, axes), {})

    def masked(self, x: Value, mask: Value, axis: tuple[int, ...]) -> Value:
        """One number for each channel, from the elements that count."""
        if self.op == "max":
            lowest = -math.inf if x.dtype.is_float else int(np.iinfo(x.dtype.numpy).min)
            return OPS.max(OPS.where(mask, x, lowest), axis, self.keepdims)
        total = OPS.sum(OPS.where(mask, x, 0.0), axis, self.keepdims)
        return total / OPS.maximum(OPS.sum(OPS.cast(mask, x.dtype), axis, self.keepdims), 1.0)


class GlobalAveragePooling1D(BaseGlobalPooling, names=("GlobalAvgPool1D",)):
    """The mean of each channel of a sequence. Steps that are masked do not count.

    Args:
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`, or `(batch, channels, steps)` with channels first.

    Output shape:
        `(batch, channels)`; with `keepdims`, the steps have size 1.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((20, 3)), GlobalAveragePooling1D()]).output_shape
        (3,)
    """

    axes, op, needs_floats = 1, "mean", True

    def call(self, x: Value, context: Context, *, mask: Value | None = None) -> Value:
        return self.pooled(x, None if self.channels_first else mask, context)


class GlobalAveragePooling2D(BaseGlobalPooling, names=("GlobalAvgPool2D",)):
    """The mean of each channel of an image.

    Args:
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        `(batch, channels)`; with `keepdims`, rows and columns have size 1.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((7, 7, 3)), GlobalAveragePooling2D(keepdims=True)]).output_shape
        (1, 1, 3)
    """

    op, needs_floats = "mean", True


class GlobalMaxPooling1D(BaseGlobalPooling, names=("GlobalMaxPool1D",)):
    """The largest element of each channel of a sequence.

    Args:
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`, or `(batch, channels, steps)` with channels first.

    Output shape:
        `(batch, channels)`; with `keepdims`, the steps have size 1.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((20, 3)), GlobalMaxPooling1D()]).output_shape
        (3,)
    """

    axes, op = 1, "max"


class GlobalMaxPooling2D(BaseGlobalPooling, names=("GlobalMaxPool2D",)):
    """The largest element of each channel of an image.

    Args:
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        `(batch, channels)`; with `keepdims`, rows and columns have size 1.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((7, 7, 3)), GlobalMaxPooling2D()]).output_shape
        (3,)
    """

    op = "max"
