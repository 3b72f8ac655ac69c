"""Layers that change images by chance while training, inside the compiled step.

Each example has its own luck. The numbers depend on the program's seed, the step and the layer's
place in the model (or its own seed) alone, so a run can be repeated, and resumed, to the bit.
Predicting and evaluating let images pass as they are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.config import number, whole_seed
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, constant, shape_error
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.preprocessing import fitted, side
from ztorch.layers.spatial import SpatialLayer
from ztorch.ops.windows import pad_axes

Pair = tuple[float, float]
Factor = float | tuple[float, float]


class AugmentationLayer(SpatialLayer, abstract=True):
    """Base of the layers that change images at random while training."""

    def __init__(self, seed: int | None = None, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.seed = None if seed is None else whole_seed(seed)

    def last(self, x: Value, context: Context) -> Value:
        x = OPS.cast(x, context.dtype)
        return self.changed(x, context) if context.training else self.settled(x)

    def settled(self, x: Value) -> Value:
        """What comes out when chance has no part."""
        return x

    def changed(self, x: Value, context: Context) -> Value:
        """The output while training."""
        raise NotImplementedError

    def draw(self, x: Value, context: Context, count: int) -> list[Value]:
        """`count` numbers from 0 to below 1 for each example, each of shape (batch, 1, 1, 1).

        Drawn as float32 in every model: so one of float64 sees the same images."""
        seed, step, stream = context.random(self.seed)
        numbers = OPS.random_uniform((x.shape[0], count), seed, step, stream)
        return [OPS.reshape(OPS.cast(numbers[:, k], x.dtype), (-1, 1, 1, 1)) for k in range(count)]

    def bounds(self, argument: str, factor: Any, low: float, high: float) -> Pair:
        """The ends of a range: from one number for both directions, or a pair."""
        name = f"{type(self).__name__}({argument}=...)"
        pair = factor if isinstance(factor, (list, tuple)) else (-abs(number(name, factor)),
                                                               abs(number(name, factor)))
        ends = [number(name, end) for end in pair]
        if len(ends) != 2 or not all(-high <= end <= high for end in ends) or (
                isinstance(factor, (list, tuple)) and min(ends) < low):
            raise ConfigError(f"{name} must be a number from {low:g} to {high:g} or a pair of "
                              f"them, not {factor!r}")
        return min(ends), max(ends)

    def values(self, value_range: Any) -> Pair:
        """The least and the greatest value of a pixel."""
        name = f"{type(self).__name__}(value_range=...)"
        if not isinstance(value_range, (list, tuple)) or len(value_range) != 2:
            raise ConfigError(f"{name} must be a pair such as (0, 255) or (0, 1), "
                              f"not {value_range!r}")
        low, high = (number(name, end) for end in value_range)
        if not low < high:
            raise ConfigError(f"{name} must begin below its end, not {value_range!r}")
        return low, high


def _between(u: Value, ends: Pair) -> Value:
    """Numbers from 0 to 1 spread over a range."""
    return u * (ends[1] - ends[0]) + ends[0]


class RandomFlip(AugmentationLayer):
    """While training, flips each image with probability one half.

    Args:
        mode: `"horizontal"` swaps left and right, `"vertical"` swaps top and bottom,
            `"horizontal_and_vertical"` does each independently. Default:
            `"horizontal_and_vertical"`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomFlip("horizontal").mode
        'horizontal'
    """

    def __init__(self, mode: str = "horizontal_and_vertical", seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.mode = self.choice("mode", mode, ("horizontal", "vertical", "horizontal_and_vertical"))

    def changed(self, x: Value, context: Context) -> Value:
        axes = [k for k, way in ((2, "horizontal"), (1, "vertical")) if way in self.mode]
        for axis, u in zip(axes, self.draw(x, context, len(axes)), strict=True):
            x = OPS.where(u < 0.5, OPS.flip(x, axis), x)
        return x


class RandomCrop(AugmentationLayer):
    """While training, a part of each image at a random position; otherwise its middle.

    Images that are smaller than the part are enlarged as in `CenterCrop`. With a `ZeroPadding2D`
    before it, images move within a border.

    Args:
        height: Number of output rows.
        width: Number of output columns.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
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
        >>> from ztorch.layers import Input, ZeroPadding2D
        >>> Sequential([Input((32, 32, 3)), ZeroPadding2D(4), RandomCrop(32, 32)]).output_shape
        (32, 32, 3)
    """

    def __init__(self, height: int, width: int, seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.height = side("RandomCrop(height=...)", height)
        self.width = side("RandomCrop(width=...)", width)

    def settled(self, x: Value) -> Value:
        return fitted(x, self.height, self.width)

    def changed(self, x: Value, context: Context) -> Value:
        sizes = (self.height, self.width)
        if x.shape[1] < self.height or x.shape[2] < self.width:
            return self.settled(x)
        for axis, size, u in zip((1, 2), sizes, self.draw(x, context, 2), strict=True):
            places = x.shape[axis] - size + 1
            x = OPS.crop(x, _whole(OPS.floor(u * places)), size, axis)
        return x


class RandomTranslation(AugmentationLayer):
    """While training, moves each image by a random distance.

    Args:
        height_factor: Range of the move downwards, in heights of the image. A pair such as `(-0.2,
            0.3)`, or one number for both directions; negative moves up.
        width_factor: Range of the move to the right, in widths of the image, in the same form.
        fill_mode: What moves in: `"reflect"` a reflection of the image, `"wrap"` its other side,
            `"nearest"` its border, `"constant"` the fill value. Default: `"reflect"`.
        interpolation: `"bilinear"` interpolates fractions of a pixel, `"nearest"` rounds them.
            Default: `"bilinear"`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        fill_value: Value for `fill_mode="constant"`. Default: `0.0`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomTranslation(0.1, (-0.2, 0.3)).width_factor
        (-0.2, 0.3)
    """

    def __init__(self, height_factor: Factor, width_factor: Factor, fill_mode: str = "reflect",
                 interpolation: str = "bilinear", seed: int | None = None, fill_value: float = 0.0,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.height_factor, self.width_factor = height_factor, width_factor
        self._ends = (self.bounds("height_factor", height_factor, -1, 1),
                      self.bounds("width_factor", width_factor, -1, 1))
        self.fill_mode = self.choice("fill_mode", fill_mode,
                                     ("reflect", "wrap", "constant", "nearest"))
        self.interpolation = self.choice("interpolation", interpolation, ("nearest", "bilinear"))
        self.fill_value = number("RandomTranslation(fill_value=...)", fill_value)

    def changed(self, x: Value, context: Context) -> Value:
        for axis, ends, u in zip((1, 2), self._ends, self.draw(x, context, 2), strict=True):
            n = x.shape[axis]
            low, high = (math.ceil(max(end, 0.0) * n) for end in (ends[1], -ends[0]))
            if low + high:
                wide = self._extended(x, axis, low, high)
                x = self._read(wide, axis, n, low - _between(u, ends) * n)
        return x

    def _extended(self, x: Value, axis: int, low: int, high: int) -> Value:
        """x with `low` elements more before and `high` after it."""
        n = x.shape[axis]
        if self.fill_mode == "constant":
            before, after = ((k * (axis == 1), k * (axis == 2)) for k in (low, high))
            return pad_axes(x, before, after, self.fill_value)
        if self.fill_mode == "nearest":
            first = _repeated(_piece(x, axis, 0, 1), axis, low)
            last = _repeated(_piece(x, axis, n - 1, 1), axis, high)
        else:
            other = OPS.flip(x, axis) if self.fill_mode == "reflect" else x
            first, last = _piece(other, axis, n - low, low), _piece(other, axis, 0, high)
        return OPS.concat(*(p for p in (first, x, last) if p.shape[axis]), axis=axis)

    def _read(self, wide: Value, axis: int, n: int, start: Value) -> Value:
        """n elements of each example from its start, which may lie between two of them."""
        if self.interpolation == "nearest":
            return OPS.crop(wide, _whole(OPS.floor(start + 0.5)), n, axis)
        first = OPS.clip(OPS.floor(start), 0.0, wide.shape[axis] - n - 1.0)
        pair = OPS.crop(wide, _whole(first), n + 1, axis)
        part = start - first
        return _piece(pair, axis, 0, n) * (1.0 - part) + _piece(pair, axis, 1, n) * part


def _whole(start: Value) -> Value:
    return OPS.reshape(OPS.cast(start, "int32"), (-1,))


def _piece(x: Value, axis: int, start: int, size: int) -> Value:
    """`size` elements along an axis."""
    return OPS.slice(x, tuple(start * (k == axis) for k in range(x.rank)), (1,) * x.rank,
                     tuple(size if k == axis else n for k, n in enumerate(x.shape)))


def _repeated(x: Value, axis: int, times: int) -> Value:
    return OPS.broadcast_to(x, tuple(times if k == axis else n for k, n in enumerate(x.shape)))


class RandomContrast(AugmentationLayer):
    """While training, scales the difference of each channel from its mean by a random factor.

    Args:
        factor: Range of the factor: from `1 - lower` to `1 + upper` for a pair `(lower, upper)`.
            One number stands for both. From 0 to 1.
        value_range: The smallest and the largest pixel value, `(low, high)`. Results are clipped to
            it. Default: `(0, 255)`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomContrast(0.2, value_range=(0, 1)).factor
        0.2
    """

    def __init__(self, factor: Factor, value_range: Any = (0, 255), seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor = factor
        pair = factor if isinstance(factor, (list, tuple)) else (factor, factor)
        if len(pair) != 2 or not all(0 <= number("RandomContrast(factor=...)", f) <= 1
                                      for f in pair):
            raise ConfigError("RandomContrast(factor=...) must be a number from 0 to 1 or a pair "
                              f"of them, not {factor!r}")
        self._ends = (1.0 - pair[0], 1.0 + pair[1])
        self.value_range = self.values(value_range)

    def changed(self, x: Value, context: Context) -> Value:
        [u] = self.draw(x, context, 1)
        mean = OPS.mean(x, (1, 2), True)
        return OPS.clip((x - mean) * _between(u, self._ends) + mean, *self.value_range)


class RandomBrightness(AugmentationLayer):
    """While training, adds a random number to each image.

    Args:
        factor: Range of the number, in units of the size of `value_range`: a pair, or one number
            for both directions. From -1 to 1.
        value_range: The smallest and the largest pixel value, `(low, high)`. Results are clipped to
            it. Default: `(0, 255)`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomBrightness((-0.1, 0.3), value_range=(0, 1)).value_range
        (0.0, 1.0)
    """

    def __init__(self, factor: Factor, value_range: Any = (0, 255), seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor = factor
        self._ends = self.bounds("factor", factor, -1, 1)
        self.value_range = self.values(value_range)

    def changed(self, x: Value, context: Context) -> Value:
        [u] = self.draw(x, context, 1)
        low, high = self.value_range
        return OPS.clip(x + _between(u, self._ends) * (high - low), low, high)


class RandomErasing(AugmentationLayer):
    """While training, covers a random rectangle of each image.

    Args:
        factor: Probability that an image gets a rectangle, from 0 to 1. A pair draws the
            probability between its numbers; one number is drawn from 0 up to it, as in Keras.
            Default: `1.0`.
        scale: Range of the share of the image that a rectangle covers. Height and width are the
            square roots of two independent draws, times those of the image. Default: `(0.02,
            0.33)`.
        fill_value: Value of the rectangle: one number, or one for each channel. `None` fills it
            with normal noise of deviation `value_range[1]`. Default: `None`.
        value_range: The smallest and the largest pixel value, `(low, high)`. Results are clipped to
            it. Default: `(0, 255)`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomErasing(0.5, fill_value=0.0).scale
        (0.02, 0.33)
    """

    def __init__(self, factor: Factor = 1.0, scale: Factor = (0.02, 0.33), fill_value: Any = None,
                 value_range: Any = (0, 255), seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor, self.scale = factor, scale
        self._chances = self._shares("factor", factor)
        self._areas = self._shares("scale", scale)
        name = "RandomErasing(fill_value=...)"
        self.fill_value = (None if fill_value is None else
                           tuple(number(name, v) for v in fill_value)
                           if isinstance(fill_value, (list, tuple)) else number(name, fill_value))
        self.value_range = self.values(value_range)

    def _shares(self, argument: str, share: Any) -> Pair:
        """A pair of shares; one number is the upper one, and the lower one 0, as in Keras."""
        name = f"RandomErasing({argument}=...)"
        pair = tuple(share) if isinstance(share, (list, tuple)) else (0.0, share)
        if len(pair) != 2 or not 0 <= number(name, pair[0]) <= number(name, pair[1]) <= 1:
            raise ConfigError(f"{name} must be a number from 0 to 1 or a rising pair of them, not "
                              f"{share!r}")
        return float(pair[0]), float(pair[1])

    def changed(self, x: Value, context: Context) -> Value:
        chance, luck, tall, down, wide, right = self.draw(x, context, 6)
        covered = luck < _between(chance, self._chances)
        for axis, share, place in ((1, tall, down), (2, wide, right)):
            n = x.shape[axis]
            length = OPS.sqrt(_between(share, self._areas)) * n
            start = place * (n - length)
            at = OPS.iota(tuple(n if k == axis else 1 for k in range(4)), axis, "int32")
            at = OPS.cast(at, x.dtype)
            inside = OPS.bitwise_and(at >= start, at < start + length)
            covered = OPS.bitwise_and(covered, inside)
        return OPS.where(OPS.broadcast_to(covered, x.shape), self._fill(x, context), x)

    def _fill(self, x: Value, context: Context) -> Value:
        if self.fill_value is None:
            # with a seed of its own, apart from the numbers that chose the rectangle
            noise_seed = None if self.seed is None else self.seed + (1 << 30)
            noise = OPS.random_normal(x.shape, *context.random(noise_seed), "float32")
            return OPS.clip(OPS.cast(noise, x.dtype) * self.value_range[1], *self.value_range)
        values = self.fill_value if isinstance(self.fill_value, tuple) else (
            self.fill_value,) * x.shape[-1]
        if len(values) != x.shape[-1]:
            raise shape_error(f"RandomErasing has {len(values)} fill values for the channels of",
                              x.shape[1:], fix="give one for each channel, or one for all")
        return OPS.broadcast_to(constant(np.array(values), x.dtype), x.shape)
