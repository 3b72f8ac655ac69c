"""Layers that make images and sequences smaller, larger, or frame them."""

from __future__ import annotations

from typing import Any

from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.spatial import SpatialLayer
from ztorch.ops.windows import pad_axes


class BasePooling(SpatialLayer, abstract=True):
    """One number for each window of each channel; windows lie side by side unless strides says
    otherwise."""

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
    """The largest of each window of (steps, channels).

    >>> from ztorch import Sequential
    >>> from ztorch.layers import Input
    >>> Sequential([Input((20, 3)), MaxPooling1D(3)]).output_shape
    (6, 3)
    """

    axes = 1


class MaxPooling2D(BaseMaxPooling, names=("MaxPool2D",)):
    """The largest of each window of (rows, columns, channels).

    >>> from ztorch import Sequential
    >>> from ztorch.layers import Input
    >>> Sequential([Input((7, 7, 3)), MaxPooling2D(padding="same")]).output_shape
    (4, 4, 3)
    """


class AveragePooling1D(BasePooling, names=("AvgPool1D",)):
    """The mean of each window of (steps, channels); padding does not count.

    >>> from ztorch import Sequential
    >>> from ztorch.layers import Input
    >>> Sequential([Input((20, 3)), AveragePooling1D(4, strides=2)]).output_shape
    (9, 3)
    """

    axes, op, needs_floats = 1, "average_pool", True


class AveragePooling2D(BasePooling, names=("AvgPool2D",)):
    """The mean of each window of (rows, columns, channels); padding does not count.

    >>> from ztorch import Sequential
    >>> from ztorch.layers import Input
    >>> Sequential([Input((8, 6, 3)), AveragePooling2D((2, 3))]).output_shape
    (4, 2, 3)
    """

    op, needs_floats = "average_pool", True


class BaseGlobalPooling(SpatialLayer, abstract=True):
    """One number for each channel."""

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
    """The mean of each channel of (steps, channels).

    >>> from ztorch import Sequential
    >>> from ztorch.layers import Input
    >>> Sequential([Input((20, 3)), GlobalAveragePooling1D()]).output_shape
    (3,)
    """

    axes, op, needs_floats = 1, "mean", True


class GlobalAveragePooling2D(BaseGlobalPooling, names=("GlobalAvgPool2D",)):
    """The mean of each channel of (rows, columns, channels).

    >>> from ztorch import Sequential
    >>> from ztorch.layers import Input
    >>> Sequential([Input((7, 7, 3)), GlobalAveragePooling2D(keepdims=True)]).output_shape
    (1, 1, 3)
    """

    op, needs_floats = "mean", True


class GlobalMaxPooling1D(BaseGlobalPooling, names=("GlobalMaxPool1D",)):
    """The largest of each channel of (steps, channels)."""

    axes, op = 1, "max"


class GlobalMaxPooling2D(BaseGlobalPooling, names=("GlobalMaxPool2D",)):
    """The largest of each channel of (rows, columns, channels)."""

    op = "max"


# -- larger ----------------------------------------------------------------------------------------


class UpSampling1D(SpatialLayer):
    """Each step `size` times.

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
    """Each row and column `size` times, or with interpolation="bilinear" what lies between.

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
    """Zeros before and after the steps: as many on both sides, or a pair.

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
    """A frame of zeros: a number, one for rows and one for columns, or ((top, bottom), (left,
    right)).

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
    """Steps without the first and the last ones.

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
    """Images without their frame: a number, one for rows and one for columns, or ((top, bottom),
    (left, right)).

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
