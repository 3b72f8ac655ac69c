"""Layers that enlarge sequences and images by integer factors."""

from __future__ import annotations

from typing import Any

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.spatial import SpatialLayer
from ztorch.ops.images import INTERPOLATIONS, resized

_OF_NEIGHBORS = ("nearest", "bilinear")  # they read no pixel but the nearest in each direction


class UpSampling1D(SpatialLayer):
    """Repeats each step of a sequence.

    Args:
        size: Number of repetitions. Default: `2`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`.

    Output shape:
        `(batch, steps * size, channels)`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((5, 3)), UpSampling1D(2)]).output_shape
        (None, 10, 3)
    """

    axes = 1

    def __init__(self, size: int = 2, **common: Any):
        super().__init__(**common)
        [self.size] = self.each("size", size)

    def call(self, x: Value, context: Context) -> Value:
        return self.resized(x, context, (self.size,))

    def last(self, x: Value, context: Context) -> Value:
        return OPS.upsample(x, self.size)


class UpSampling2D(SpatialLayer):
    """Enlarges images by integer factors.

    Args:
        size: Factor of rows and columns: an integer, or one for each. Default: `2`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        interpolation: `"nearest"` repeats pixels; `"bilinear"`, `"bicubic"`, `"lanczos3"` and
            `"lanczos5"` interpolate between their centers. Default: `"nearest"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The input shape with rows and columns multiplied by `size`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((5, 4, 3)), UpSampling2D((2, 3))]).output_shape
        (None, 10, 12, 3)
    """

    def __init__(self, size: Any = 2, data_format: str | None = None,
                 interpolation: str = "nearest", **common: Any):
        super().__init__(data_format, **common)
        self.size = self.each("size", size)
        self.interpolation = self.choice("interpolation", interpolation, INTERPOLATIONS)

    def call(self, x: Value, context: Context) -> Value:
        if self.interpolation not in _OF_NEIGHBORS:  # rows of an open axis must not be padded
            return super().call(x, context)
        if self.interpolation == "bilinear":  # it reads the element after the last one
            first = 2 if self.channels_first else 1
            for axis in range(first, min(first + self.axes, x.rank)):
                x = context.padding.last_repeated(x, axis)
        return self.resized(x, context, self.size)

    def last(self, x: Value, context: Context) -> Value:
        if self.interpolation in _OF_NEIGHBORS:
            return OPS.upsample(x, self.size, self.interpolation)
        rows, columns = (n * times for n, times in zip(x.shape[1:3], self.size, strict=True))
        return resized(OPS.cast(x, context.dtype), rows, columns, self.interpolation)
