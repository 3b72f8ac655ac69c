"""Augmentation layers that rotate, scale and distort images.

For each output pixel they compute a position in the input image, and sample the image there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.config import number
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.augmentation import AugmentationLayer, Factor, between, sign
from ztorch.layers.context import Context
from ztorch.ops.image_positions import pixels, read_at

FILL_MODES = ("reflect", "wrap", "constant", "nearest")
INTERPOLATIONS = ("nearest", "bilinear")


class WarpingLayer(AugmentationLayer, abstract=True):
    """Base class of layers that compute where each output pixel samples the image."""

    def __init__(self, fill_mode: str, interpolation: str, seed: int | None, fill_value: float,
                 data_format: str | None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.fill_mode = self.choice("fill_mode", fill_mode, FILL_MODES)
        self.interpolation = self.choice("interpolation", interpolation, INTERPOLATIONS)
        self.fill_value = number(f"{type(self).__name__}(fill_value=...)", fill_value)

    def read(self, x: Value, row: Value, column: Value) -> Value:
        """The image at fractional positions, or positions outside of it.

        Args:
            x: Images `(batch, rows, columns, channels)`.
            row: Position of each output pixel, `(batch, rows, columns, 1)`, 0 for the first row.
            column: The same along the columns.
        """
        return read_at(x, row, column, self.interpolation, self.fill_mode, self.fill_value)


class RandomRotation(WarpingLayer):
    """During training, rotates each image around its center by a random angle.

    Args:
        factor: Range of the angle, in full turns: a pair such as `(-0.1, 0.2)`, or one number for
            both directions. Positive angles turn counter-clockwise. From -1 to 1.
        fill_mode: How to fill pixels from outside the image: `"reflect"` mirrors the image,
            `"wrap"` uses its opposite side, `"nearest"` its border, `"constant"` the fill value.
            Default:
            `"reflect"`.
        interpolation: `"bilinear"` interpolates between pixels, `"nearest"` takes the nearest.
            Default: `"bilinear"`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        fill_value: Value for `fill_mode="constant"`. Default: `0.0`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomRotation(0.1, fill_mode="nearest").factor
        0.1
    """

    def __init__(self, factor: Factor, fill_mode: str = "reflect", interpolation: str = "bilinear",
                 seed: int | None = None, fill_value: float = 0.0, data_format: str | None = None,
                 **common: Any):
        super().__init__(fill_mode, interpolation, seed, fill_value, data_format, **common)
        self.factor = factor
        self._turns = self.bounds("factor", factor, -1, 1)

    def changed(self, x: Value, context: Context) -> Value:
        [u] = self.draw(x, context, 1)
        angle = between(u, self._turns) * (2 * math.pi)
        cos, sin = OPS.cos(angle), OPS.sin(angle)
        middle = ((x.shape[1] - 1) / 2, (x.shape[2] - 1) / 2)
        row, column = (p - m for p, m in zip(pixels(x), middle, strict=True))
        return self.read(x, column * sin + row * cos + middle[0],
                         column * cos - row * sin + middle[1])


class RandomZoom(WarpingLayer):
    """During training, enlarges or shrinks each image around its center by a random factor.

    Args:
        height_factor: Range of the zoom of the height: a pair such as `(-0.2, 0.3)`, or one number
            for both directions. 0.2 shows 20 % more of the image, which shrinks it; -0.2 enlarges
            it. Above -1, up to 1.
        width_factor: The same for the width. `None` preserves the aspect ratio. Default: `None`.
        fill_mode: How to fill pixels from outside the image: `"reflect"` mirrors the image,
            `"wrap"` uses its opposite side, `"nearest"` its border, `"constant"` the fill value.
            Default:
            `"reflect"`.
        interpolation: `"bilinear"` interpolates between pixels, `"nearest"` takes the nearest.
            Default: `"bilinear"`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        fill_value: Value for `fill_mode="constant"`. Default: `0.0`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomZoom((-0.2, 0.1)).height_factor
        (-0.2, 0.1)
    """

    def __init__(self, height_factor: Factor, width_factor: Factor | None = None,
                 fill_mode: str = "reflect", interpolation: str = "bilinear",
                 seed: int | None = None, fill_value: float = 0.0, data_format: str | None = None,
                 **common: Any):
        super().__init__(fill_mode, interpolation, seed, fill_value, data_format, **common)
        self.height_factor, self.width_factor = height_factor, width_factor
        factors = {"height_factor": height_factor}
        if width_factor is not None:
            factors["width_factor"] = width_factor
        self._ends = [self.bounds(name, factor, -1, 1) for name, factor in factors.items()]
        for name, (low, _), factor in zip(factors, self._ends, factors.values(), strict=True):
            if low == -1.0 and isinstance(factor, (list, tuple)):
                raise ConfigError(f"RandomZoom({name}={factor!r}): -1 shows nothing of the image; "
                                  "use numbers above -1")

    def changed(self, x: Value, context: Context) -> Value:
        zooms = [1.0 + between(u, ends) for u, ends in zip(
            self.draw(x, context, len(self._ends)), self._ends, strict=True)]
        places = []
        for at, size, zoom in zip(pixels(x), x.shape[1:3], (zooms[0], zooms[-1]), strict=True):
            middle = (size - 1) / 2
            places.append((at - middle) * zoom + middle)
        return self.read(x, *places)


class RandomShear(WarpingLayer):
    """During training, shears each image by a random factor.

    Args:
        x_factor: Range of the shift of each row, in columns per row above it: a pair such as `(0.1,
            0.3)`, or one number for the range from minus it to it. From -1 to 1. Half of the images
            are sheared in the other direction. Default: `0.0`.
        y_factor: The same for columns, in rows. Default: `0.0`.
        interpolation: `"bilinear"` interpolates between pixels, `"nearest"` takes the nearest.
            Default: `"bilinear"`.
        fill_mode: How to fill pixels from outside the image: `"reflect"` mirrors the image,
            `"wrap"` uses its opposite side, `"nearest"` its border, `"constant"` the fill value.
            Default:
            `"reflect"`.
        fill_value: Value for `fill_mode="constant"`. Default: `0.0`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomShear(x_factor=(0.1, 0.3)).x_factor
        (0.1, 0.3)
    """

    def __init__(self, x_factor: Factor = 0.0, y_factor: Factor = 0.0,
                 interpolation: str = "bilinear", fill_mode: str = "reflect",
                 fill_value: float = 0.0, data_format: str | None = None, seed: int | None = None,
                 **common: Any):
        super().__init__(fill_mode, interpolation, seed, fill_value, data_format, **common)
        self.x_factor, self.y_factor = x_factor, y_factor
        self._ends = (self.bounds("x_factor", x_factor, -1, 1),
                      self.bounds("y_factor", y_factor, -1, 1))

    def changed(self, x: Value, context: Context) -> Value:
        invert, *draws = self.draw(x, context, 3)
        across, down = (between(u, ends) * sign(invert)
                        for u, ends in zip(draws, self._ends, strict=True))
        row, column = pixels(x)
        return self.read(x, row + column * down, column + row * across)


class RandomPerspective(WarpingLayer):
    """During training, moves the corners of each image randomly, which changes the perspective.

    Args:
        factor: Probability that an image is changed, from 0 to 1. A pair is a range from which the
            probability is drawn; a number stands for the range from 0 to it, as in Keras. Default:
            `1.0`.
        scale: Largest shift of a corner, as a fraction of twice its distance from the first pixel.
            From 0 to 1. Default: `1.0`.
        interpolation: `"bilinear"` interpolates between pixels, `"nearest"` takes the nearest.
            Default: `"bilinear"`.
        fill_value: Value outside of the image. Default: `0.0`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomPerspective(0.5, scale=0.3).scale
        0.3
    """

    def __init__(self, factor: Factor = 1.0, scale: float = 1.0, interpolation: str = "bilinear",
                 fill_value: float = 0.0, seed: int | None = None, data_format: str | None = None,
                 **common: Any):
        super().__init__("constant", interpolation, seed, fill_value, data_format, **common)
        self.factor = factor
        self._chances = self.shares("factor", factor)
        self.scale = self.shares("scale", scale)[1]

    def changed(self, x: Value, context: Context) -> Value:
        chance, luck, *moves = self.draw(x, context, 10)
        size = np.array([x.shape[2] - 1.0, x.shape[1] - 1.0])
        corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]) * size
        moved = [corner * (1.0 + between(u, (-self.scale / 2, self.scale / 2)))
                 for corner, u in zip(corners.reshape(-1), moves, strict=True)]
        a = _perspective(moved, corners.reshape(-1))
        row, column = pixels(x)
        depth = a[6] * column + a[7] * row + 1.0
        y = self.read(x, (a[3] * column + a[4] * row + a[5]) / depth,
                      (a[0] * column + a[1] * row + a[2]) / depth)
        return OPS.where(luck < between(chance, self._chances), y, x)


def _perspective(points: list[Value], images: np.ndarray) -> list[Value]:
    """The eight coefficients of the perspective map that takes four points (x, y) to their images,
    each `(batch, 1, 1, 1)`."""
    zero, one = OPS.zeros_like(points[0]), OPS.ones_like(points[0])
    rows = []
    for k in range(4):
        x, y = points[2 * k:2 * k + 2]
        to_x, to_y = (float(v) for v in images[2 * k:2 * k + 2])
        rows.append(OPS.concat(x, y, one, zero, zero, zero, x * -to_x, y * -to_x, axis=2))
        rows.append(OPS.concat(zero, zero, zero, x, y, one, x * -to_y, y * -to_y, axis=2))
    matrix = OPS.reshape(OPS.concat(*rows, axis=1), (-1, 8, 8))
    target = OPS.concat(*(one * float(v) for v in images), axis=1)
    solution = OPS.solve(matrix, OPS.reshape(target, (-1, 8, 1)))
    return [OPS.reshape(solution[:, k], (-1, 1, 1, 1)) for k in range(8)]
