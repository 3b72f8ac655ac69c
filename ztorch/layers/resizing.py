"""Layers that resize and crop images, the same in every mode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.config import number, positive
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.spatial import SpatialLayer
from ztorch.ops.windows import pad_axes

_LONGEST_SIDE = 1 << 16


def side(label: str, n: Any) -> int:
    """A number of pixels, or a ConfigError that begins with the label."""
    if positive(label, n) > _LONGEST_SIDE:
        raise ConfigError(f"{label} is {n!r}; images have sides of at most {_LONGEST_SIDE}")
    return n.__index__()


def weights_between(length: int, wanted: int, antialias: bool = False) -> np.ndarray:
    """The matrix that interpolates `length` elements to `wanted` ones. Its rows sum to 1.

    Interpolation is linear between the centres of elements. With antialias, a new element is a
    weighted mean of all elements that it covers.

    >>> weights_between(4, 2).tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    """
    step = length / wanted
    middles = (np.arange(wanted) + 0.5) * step
    apart = np.abs(np.arange(length) + 0.5 - middles[:, None])
    weights = np.maximum(0.0, 1.0 - apart / (max(step, 1.0) if antialias else 1.0))
    return weights / weights.sum(1, keepdims=True)


def resized(x: Value, height: int, width: int, interpolation: str = "bilinear",
            antialias: bool = False) -> Value:
    """Images (channels last), resized."""
    for axis, wanted in ((1, height), (2, width)):
        n = x.shape[axis]
        if n == wanted:
            continue
        before, after = x.shape[:axis], x.shape[axis + 1:]
        if interpolation == "nearest":
            nearest = ((np.arange(wanted) + 0.5) * (n / wanted)).astype(np.int32)
            x = OPS.take(x, constant(nearest), axis)
            continue
        matrix = constant(weights_between(n, wanted, antialias), x.dtype)
        flat = OPS.reshape(x, (math.prod(before), n, math.prod(after)))
        x = OPS.reshape(OPS.matmul(matrix, flat), (*before, wanted, *after))
    return x


def centred(x: Value, height: int, width: int) -> Value:
    """The middle of images (channels last), in this size."""
    top, left = (x.shape[1] - height) // 2, (x.shape[2] - width) // 2
    return OPS.slice(x, (0, top, left, 0), (1,) * 4, (x.shape[0], height, width, x.shape[3]))


def _same_shape(x: Value, height: int, width: int) -> tuple[int, int]:
    """The largest size within x with the proportions of height and width."""
    rows, columns = x.shape[1], x.shape[2]
    return (max(min(rows, columns * height // width), 1),
            max(min(columns, rows * width // height), 1))


def fitted(x: Value, height: int, width: int) -> Value:
    """The middle of images in this size. Of smaller images, the largest part of these proportions
    is enlarged."""
    if x.shape[1] >= height and x.shape[2] >= width:
        return centred(x, height, width)
    return resized(centred(x, *_same_shape(x, height, width)), height, width)


class CenterCrop(SpatialLayer):
    """The middle of images. Smaller images are enlarged first, with their proportions kept.

    Args:
        height: Number of output rows.
        width: Number of output columns.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
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
        (28, 28, 3)
    """

    def __init__(self, height: int, width: int, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.height = side("CenterCrop(height=...)", height)
        self.width = side("CenterCrop(width=...)", width)

    def last(self, x: Value, context: Context) -> Value:
        return fitted(OPS.cast(x, context.dtype), self.height, self.width)


class Resizing(SpatialLayer):
    """Resizes images. Results are floats of the model and are not rounded.

    Args:
        height: Number of output rows.
        width: Number of output columns.
        interpolation: `"bilinear"` or `"nearest"`. Default: `"bilinear"`.
        crop_to_aspect_ratio: Whether to crop images to the new proportions first. Default: `False`.
        pad_to_aspect_ratio: Whether to pad images to the new proportions first. Default: `False`.
        fill_mode: Only `"constant"`: padding is `fill_value`. Default: `"constant"`.
        fill_value: Value of the padding. Default: `0.0`.
        antialias: Whether pixels of a smaller image are means of all pixels that they cover.
            Default: `False`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
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
        (24, 24, 3)
    """

    def __init__(self, height: int, width: int, interpolation: str = "bilinear",
                 crop_to_aspect_ratio: bool = False, pad_to_aspect_ratio: bool = False,
                 fill_mode: str = "constant", fill_value: float = 0.0, antialias: bool = False,
                 data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.height = side("Resizing(height=...)", height)
        self.width = side("Resizing(width=...)", width)
        self.interpolation = self.choice("interpolation", interpolation, ("bilinear", "nearest"))
        if crop_to_aspect_ratio and pad_to_aspect_ratio:
            raise ConfigError("Resizing either crops to the aspect ratio or pads to it; choose one")
        self.crop_to_aspect_ratio = crop_to_aspect_ratio
        self.pad_to_aspect_ratio = pad_to_aspect_ratio
        self.fill_mode = self.choice("fill_mode", fill_mode, ("constant",))
        self.fill_value = number("Resizing(fill_value=...)", fill_value)
        self.antialias = antialias

    def last(self, x: Value, context: Context) -> Value:
        x = OPS.cast(x, context.dtype)
        rows, columns = x.shape[1], x.shape[2]
        if self.crop_to_aspect_ratio:
            x = centred(x, *_same_shape(x, self.height, self.width))
        elif self.pad_to_aspect_ratio:
            wide = (max(rows, columns * self.height // self.width),
                    max(columns, rows * self.width // self.height))
            low = ((wide[0] - rows) // 2, (wide[1] - columns) // 2)
            high = (wide[0] - rows - low[0], wide[1] - columns - low[1])
            x = pad_axes(x, low, high, self.fill_value)
        return resized(x, self.height, self.width, self.interpolation, self.antialias)
