"""Global pooling: one number per channel of a sequence or an image."""

from __future__ import annotations

from typing import Any

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.pooling import lowest
from ztorch.layers.real_positions import spread
from ztorch.layers.spatial import SpatialLayer


class BaseGlobalPooling(SpatialLayer, abstract=True):
    """Base class of global pooling: one number per channel."""

    op = ""

    def __init__(self, data_format: str | None = None, keepdims: bool = False, **common: Any):
        super().__init__(data_format, **common)
        self.keepdims = keepdims

    def call(self, x: Value, context: Context) -> Value:
        return self.pooled(x, None, context)

    def pooled(self, x: Value, mask: Value | None, context: Context) -> Value:
        """The output. Only sequences have a mask, `(batch, steps)`."""
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
        """One number per channel, from the elements that count."""
        if self.op == "max":
            return OPS.max(OPS.where(mask, x, lowest(x.dtype)), axis, self.keepdims)
        total = OPS.sum(OPS.where(mask, x, 0.0), axis, self.keepdims)
        return total / OPS.maximum(OPS.sum(OPS.cast(mask, x.dtype), axis, self.keepdims), 1.0)


class GlobalAveragePooling1D(BaseGlobalPooling, names=("GlobalAvgPool1D",)):
    """The mean of each channel of a sequence, without masked steps.

    Args:
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 3)
    """

    axes, op, needs_floats = 1, "mean", True

    def call(self, x: Value, context: Context, *, mask: Value | None = None) -> Value:
        return self.pooled(x, None if self.channels_first else mask, context)


class GlobalAveragePooling2D(BaseGlobalPooling, names=("GlobalAvgPool2D",)):
    """The mean of each channel of an image.

    Args:
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 1, 1, 3)
    """

    op, needs_floats = "mean", True


class GlobalMaxPooling1D(BaseGlobalPooling, names=("GlobalMaxPool1D",)):
    """The largest element of each channel of a sequence.

    Args:
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 3)
    """

    axes, op = 1, "max"


class GlobalMaxPooling2D(BaseGlobalPooling, names=("GlobalMaxPool2D",)):
    """The largest element of each channel of an image.

    Args:
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 3)
    """

    op = "max"
