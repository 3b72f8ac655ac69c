"""Augmentation layers that change the values of pixels, not their positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.config import number
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, constant, shape_error
from ztorch.graph.value import Value
from ztorch.layers.augmentation import AugmentationLayer, Factor, between
from ztorch.layers.context import Context


class RandomContrast(AugmentationLayer):
    """During training, scales the deviation of each channel from its mean by a random factor.

    Args:
        factor: Range of the factor: from `1 - lower` to `1 + upper` for a pair `(lower, upper)`.
            One number is used for both. From 0 to 1.
        value_range: The smallest and the largest pixel value, `(low, high)`. Results are clipped to
            it. Default: `(0, 255)`.
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

    def transformed(self, x: Value, *draws: Value) -> Value:
        mean = OPS.mean(x, (1, 2), True)
        return OPS.clip((x - mean) * between(draws[0], self._ends) + mean, *self.value_range)


class RandomBrightness(AugmentationLayer):
    """During training, adds a random number to each image.

    Args:
        factor: Range of the number, relative to the size of `value_range`: a pair, or one number
            for both directions. From -1 to 1.
        value_range: The smallest and the largest pixel value, `(low, high)`. Results are clipped to
            it. Default: `(0, 255)`.
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
        >>> RandomBrightness((-0.1, 0.3), value_range=(0, 1)).value_range
        (0.0, 1.0)
    """

    def __init__(self, factor: Factor, value_range: Any = (0, 255), seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor = factor
        self._ends = self.bounds("factor", factor, -1, 1)
        self.value_range = self.values(value_range)

    def transformed(self, x: Value, *draws: Value) -> Value:
        low, high = self.value_range
        return OPS.clip(x + between(draws[0], self._ends) * (high - low), low, high)


class RandomErasing(AugmentationLayer):
    """During training, covers a random rectangle of each image.

    Args:
        factor: Probability that an image gets a rectangle, from 0 to 1. A pair is a range from
            which the probability is drawn; a number stands for the range from 0 to it, as in Keras.
            Default: `1.0`.
        scale: Range of the fraction of the image that a rectangle covers. Height and width are the
            square roots of two independent draws, times those of the image. Default: `(0.02,
            0.33)`.
        fill_value: Value of the rectangle: one number, or one per channel. `None` fills it with
            normal noise of standard deviation `value_range[1]`. Default: `None`.
        value_range: The smallest and the largest pixel value, `(low, high)`. Results are clipped to
            it. Default: `(0, 255)`.
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
        >>> RandomErasing(0.5, fill_value=0.0).scale
        (0.02, 0.33)
    """

    def __init__(self, factor: Factor = 1.0, scale: Factor = (0.02, 0.33), fill_value: Any = None,
                 value_range: Any = (0, 255), seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor, self.scale = factor, scale
        self._chances = self.shares("factor", factor)
        self._areas = self.shares("scale", scale)
        name = "RandomErasing(fill_value=...)"
        self.fill_value = (None if fill_value is None else
                           tuple(number(name, v) for v in fill_value)
                           if isinstance(fill_value, (list, tuple)) else number(name, fill_value))
        self.value_range = self.values(value_range)

    def changed(self, x: Value, context: Context) -> Value:
        chance, luck, tall, down, wide, right = self.draw(x, context, 6)
        covered = luck < between(chance, self._chances)
        for axis, share, place in ((1, tall, down), (2, wide, right)):
            n = x.shape[axis]
            length = OPS.sqrt(between(share, self._areas)) * n
            start = place * (n - length)
            at = OPS.iota(tuple(n if k == axis else 1 for k in range(4)), axis, "int32")
            at = OPS.cast(at, x.dtype)
            inside = OPS.bitwise_and(at >= start, at < start + length)
            covered = OPS.bitwise_and(covered, inside)
        return OPS.where(OPS.broadcast_to(covered, x.shape), self._fill(x, context), x)

    def _fill(self, x: Value, context: Context) -> Value:
        if self.fill_value is None:
            # a different seed from the one that places the rectangle
            noise_seed = None if self.seed is None else self.seed + (1 << 30)
            noise = OPS.random_normal(x.shape, *context.random(noise_seed), "float32")
            return OPS.clip(OPS.cast(noise, x.dtype) * self.value_range[1], *self.value_range)
        values = self.fill_value if isinstance(self.fill_value, tuple) else (
            self.fill_value,) * x.shape[-1]
        if len(values) != x.shape[-1]:
            raise shape_error(f"RandomErasing has {len(values)} fill values for the channels of",
                              x.shape[1:], fix="pass one per channel, or one for all")
        return OPS.broadcast_to(constant(np.array(values), x.dtype), x.shape)
