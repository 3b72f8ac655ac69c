"""Layers that add zeros around sequences and images, or remove their border."""

from __future__ import annotations

from typing import Any

from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.spatial import SpatialLayer
from ztorch.ops.windows import pad_axes


class ZeroPadding1D(SpatialLayer):
    """Adds zeros before and after a sequence.

    Args:
        padding: Number of zeros on each side, or a pair (before, after). Default: `1`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 8, 3)
    """

    axes = 1

    def __init__(self, padding: Any = 1, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        [self.padding] = self.pairs("padding", padding)

    def call(self, x: Value, context: Context) -> Value:
        return self.resized(x, context, (1,), zeroed=True)

    def last(self, x: Value, context: Context) -> Value:
        before, after = self.padding
        return pad_axes(x, (before,), (after,))


class ZeroPadding2D(SpatialLayer):
    """Adds a border of zeros to images.

    Args:
        padding: Width of the border: an integer, one for rows and one for columns, or `((top,
            bottom), (left, right))`. Default: `1`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 6, 8, 3)
    """

    def __init__(self, padding: Any = 1, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.padding = self.pairs("padding", padding)

    def call(self, x: Value, context: Context) -> Value:
        return self.resized(x, context, (1,) * self.axes, zeroed=True)

    def last(self, x: Value, context: Context) -> Value:
        low, high = zip(*self.padding, strict=True)
        return pad_axes(x, low, high)


def cropped(x: Value, pairs: Any) -> Value:
    """x without the first and last elements of the axes between batch and channels."""
    sizes = tuple(n - a - b for n, (a, b) in zip(x.shape[1:-1], pairs, strict=True))
    if min(sizes) < 1:
        raise shape_error(f"cropping {pairs} leaves nothing of inputs", x.shape[1:],
                          fix="crop less")
    return OPS.slice(x, (0, *(a for a, _ in pairs), 0), (1,) * x.rank,
                     (x.shape[0], *sizes, x.shape[-1]))


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
        (None, 2, 3)
    """

    axes = 1

    def __init__(self, cropping: Any = 1, **common: Any):
        super().__init__(**common)
        [self.cropping] = self.pairs("cropping", cropping)

    def call(self, x: Value, context: Context) -> Value:
        return self.resized(x, context, (1,) * self.axes)

    def last(self, x: Value, context: Context) -> Value:
        return cropped(x, (self.cropping,))


class Cropping2D(SpatialLayer):
    """Removes the border of images.

    Args:
        cropping: Width of the border: an integer, one for rows and one for columns, or `((top,
            bottom), (left, right))`. Default: `0`.
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
        >>> Sequential([Input((5, 4, 3)), Cropping2D(((1, 0), (1, 1)))]).output_shape
        (None, 4, 2, 3)
    """

    def __init__(self, cropping: Any = 0, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.cropping = self.pairs("cropping", cropping)

    def call(self, x: Value, context: Context) -> Value:
        return self.resized(x, context, (1,) * self.axes)

    def last(self, x: Value, context: Context) -> Value:
        return cropped(x, self.cropping)
