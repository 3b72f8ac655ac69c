"""Layers that resize and crop images, the same in every mode."""

from __future__ import annotations

from typing import Any

from ztorch.config import number, positive
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.spatial import SpatialLayer
from ztorch.ops.images import INTERPOLATIONS, centered, resized, same_shape, widened_to

_LONGEST_SIDE = 1 << 16  # pixels; a larger number is a slip, such as a size in bytes


def side(label: str, n: Any) -> int:
    """A number of pixels, or a ConfigError that starts with the label."""
    if positive(label, n) > _LONGEST_SIDE:
        raise ConfigError(f"{label} is {n!r}; images have sides of at most {_LONGEST_SIDE}")
    return n.__index__()


def fitted(x: Value, height: int, width: int) -> Value:
    """The center of images in this size. Of smaller images, the largest part with this aspect ratio
    is enlarged."""
    if x.shape[1] >= height and x.shape[2] >= width:
        return centered(x, height, width)
    return resized(centered(x, *same_shape(x, height, width)), height, width)


class CenterCrop(SpatialLayer):
    """Crops the center of images. Smaller images are first enlarged, with their aspect ratio
    preserved.

    Args:
        height: Number of output rows.
        width: Number of output columns.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        `(batch, height, width, channels)`, or with channels first `(batch, channels, height,
        width)`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((32, 40, 3)), CenterCrop(28, 28)]).output_shape
        (None, 28, 28, 3)
    """

    def __init__(self, height: int, width: int, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.height = side("CenterCrop(height=...)", height)
        self.width = side("CenterCrop(width=...)", width)

    def last(self, x: Value, context: Context) -> Value:
        return fitted(OPS.cast(x, context.dtype), self.height, self.width)


class Resizing(SpatialLayer):
    """Resizes images. Results are floats of the model, and are not rounded.

    Args:
        height: Number of output rows.
        width: Number of output columns.
        interpolation: `"nearest"`, `"bilinear"`, `"bicubic"`, `"lanczos3"` or `"lanczos5"`.
            Default: `"bilinear"`.
        crop_to_aspect_ratio: Whether to first crop images to the new aspect ratio. Default:
            `False`.
        pad_to_aspect_ratio: Whether to first pad images to the new aspect ratio. Default: `False`.
        fill_mode: Only `"constant"`: pads with `fill_value`. Default: `"constant"`.
        fill_value: Value of the padding. Default: `0.0`.
        antialias: Whether shrinking averages all pixels that an output pixel covers.
            Default: `False`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        `(batch, height, width, channels)`, or with channels first `(batch, channels, height,
        width)`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((32, 40, 3)), Resizing(24, 24)]).output_shape
        (None, 24, 24, 3)
    """

    def __init__(self, height: int, width: int, interpolation: str = "bilinear",
                 crop_to_aspect_ratio: bool = False, pad_to_aspect_ratio: bool = False,
                 fill_mode: str = "constant", fill_value: float = 0.0, antialias: bool = False,
                 data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.height = side("Resizing(height=...)", height)
        self.width = side("Resizing(width=...)", width)
        self.interpolation = self.choice("interpolation", interpolation, INTERPOLATIONS)
        if crop_to_aspect_ratio and pad_to_aspect_ratio:
            raise ConfigError("Resizing either crops to the aspect ratio or pads to it; choose one")
        self.crop_to_aspect_ratio = crop_to_aspect_ratio
        self.pad_to_aspect_ratio = pad_to_aspect_ratio
        self.fill_mode = self.choice("fill_mode", fill_mode, ("constant",))
        self.fill_value = number("Resizing(fill_value=...)", fill_value)
        self.antialias = antialias

    def last(self, x: Value, context: Context) -> Value:
        x = OPS.cast(x, context.dtype)
        if self.crop_to_aspect_ratio:
            x = centered(x, *same_shape(x, self.height, self.width))
        elif self.pad_to_aspect_ratio:
            x = widened_to(x, self.height, self.width, self.fill_value)
        return resized(x, self.height, self.width, self.interpolation, self.antialias)
