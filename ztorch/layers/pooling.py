"""Layers that make images and sequences smaller, larger, or frame them."""

from __future__ import annotations

from typing import Any

from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.spatial import SpatialLayer
from ztorch.ops.windows import pad_axes


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
        self.channels(x.shape[1:])
        first = 2 if self.channels_first else 1
        axes = tuple(range(first, first + self.axes))
        return getattr(OPS, self.op)(x, axis=axes, keepdims=self.keepdims)


class GlobalAveragePooling1D(BaseGlobalPooling, names=("GlobalAvgPool1D",)):
    """The mean of each channel of a sequence.

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


# -- larger ----------------------------------------------------------------------------------------


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
        (10, 3)
    """

    axes = 1

    def __init__(self, size: int = 2, **common: Any):
        super().__init__(**common)
        [self.size] = self.each("size", size)

    def last(self, x: Value, context: Context) -> Value:
        return OPS.upsample(x, self.size)


class UpSampling2D(SpatialLayer):
    """Enlarges images by whole factors.

    Args:
        size: Factor of rows and columns: an integer, or one for each. Default: `2`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        interpolation: `"nearest"` repeats pixels, `"bilinear"` interpolates between their centres.
            Default: `"nearest"`.
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
        (10, 12, 3)
    """

    def __init__(self, size: Any = 2, data_format: str | None = None,
                 interpolation: str = "nearest", **common: Any):
        super().__init__(data_format, **common)
        self.size = self.each("size", size)
        self.interpolation = self.choice("interpolation", interpolation, ("nearest", "bilinear"))

    def last(self, x: Value, context: Context) -> Value:
        return OPS.upsample(x, self.size, self.interpolation)


# -- frames ----------------------------------------------------------------------------------------


class ZeroPadding1D(SpatialLayer):
    """Adds zeros before and after a sequence.

    Args:
        padding: Number of zeros on each side, or a pair (before, after). Default: `1`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`, or `(batch, channels, steps)` with channels first.

    Output shape:
        The input shape with `before + after` more steps.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((5, 3)), ZeroPadding1D((1, 2))]).output_shape
        (8, 3)
    """

    axes = 1

    def __init__(self, padding: Any = 1, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        [self.padding] = self.pairs("padding", padding)

    def last(self, x: Value, context: Context) -> Value:
        before, after = self.padding
        return pad_axes(x, (before,), (after,))


class ZeroPadding2D(SpatialLayer):
    """Adds a border of zeros to images.

    Args:
        padding: Width of the border: an integer, one for rows and one for columns, or `((top,
            bottom), (left, right))`. Default: `1`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The input shape with more rows and columns.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((5, 4, 3)), ZeroPadding2D(((1, 0), (2, 2)))]).output_shape
        (6, 8, 3)
    """

    def __init__(self, padding: Any = 1, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.padding = self.pairs("padding", padding)

    def last(self, x: Value, context: Context) -> Value:
        low, high = zip(*self.padding, strict=True)
        return pad_axes(x, low, high)


def _cropped(x: Value, pairs: Any) -> Value:
    """x without the first and last elements of the axes between batch and channels."""
    kept = tuple(n - a - b for n, (a, b) in zip(x.shape[1:-1], pairs, strict=True))
    if min(kept) < 1:
        raise shape_error(f"cropping {pairs} leaves nothing of inputs", x.shape[1:],
                          fix="crop less")
    return OPS.slice(x, (0, *(a for a, _ in pairs), 0), (1,) * x.rank,
                     (x.shape[0], *kept, x.shape[-1]))


class Cropping1D(SpatialLayer):
    """Removes the first and the last steps of a sequence.

    Args:
        cropping: Number of steps on each side, or a pair (before, after). Default: `1`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`.

    Output shape:
        `(batch, steps - before - after, channels)`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((5, 3)), Cropping1D((1, 2))]).output_shape
        (2, 3)
    """

    axes = 1

    def __init__(self, cropping: Any = 1, **common: Any):
        super().__init__(**common)
        [self.cropping] = self.pairs("cropping", cropping)

    def last(self, x: Value, context: Context) -> Value:
        return _cropped(x, (self.cropping,))


class Cropping2D(SpatialLayer):
    """Removes the border of images.

    Args:
        cropping: Width of the border: an integer, one for rows and one for columns, or `((top,
            bottom), (left, right))`. Default: `0`.
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
        >>> Sequential([Input((5, 4, 3)), Cropping2D(((1, 0), (1, 1)))]).output_shape
        (4, 2, 3)
    """

    def __init__(self, cropping: Any = 0, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.cropping = self.pairs("cropping", cropping)

    def last(self, x: Value, context: Context) -> Value:
        return _cropped(x, self.cropping)
