"""Augmentation layers that change tones, independent of the meaning of channels."""

from __future__ import annotations

from typing import Any

from ztorch.config import positive
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.augmentation import AugmentationLayer, Factor, Pair, between, checked_range
from ztorch.layers.context import Context
from ztorch.layers.spatial import SpatialLayer

BYTES = (0.0, 255.0)  # the range of pixels in which Keras computes tones
BITS = 8  # of a byte


def rescaled(x: Value, old: Pair, new: Pair) -> Value:
    """Pixels mapped from one range to another."""
    return (x - old[0]) / (old[1] - old[0]) * (new[1] - new[0]) + new[0]


class RandomInvert(AugmentationLayer):
    """During training, turns some images into their negatives: `value_range[1] - x`.

    Args:
        factor: Probability that an image is inverted, from 0 to 1. A pair is a range from which the
            probability is drawn; a number stands for the range from 0 to it, as in Keras. Default:
            `1.0`.
        value_range: The smallest and the largest pixel value, `(low, high)`. Default: `(0, 255)`.
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
        >>> RandomInvert(0.5, value_range=(0, 1)).factor
        0.5
    """

    draws = 2

    def __init__(self, factor: Factor = 1.0, value_range: Any = (0, 255), seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor = factor
        self._chances = self.shares("factor", factor)
        self.value_range = self.values(value_range)

    def transformed(self, x: Value, *draws: Value) -> Value:
        chance, luck = draws
        return OPS.where(luck < between(chance, self._chances), self.value_range[1] - x, x)


class RandomPosterization(AugmentationLayer):
    """During training, keeps only the highest bits of each pixel.

    Args:
        factor: Number of bits, from 1 to 8. A pair is a range without its end; a number stands for
            the range from 1 to below it, as in Keras.
        value_range: The smallest and the largest pixel value, `(low, high)`, scaled to 8 bits.
            Default: `(0, 255)`.
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
        >>> RandomPosterization((2, 5)).factor
        (2, 5)
    """

    def __init__(self, factor: Any, value_range: Any = (0, 255), data_format: str | None = None,
                 seed: int | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor = factor
        name = "RandomPosterization(factor=...)"
        ends = sorted(positive(name, bits) for bits in (
            factor if isinstance(factor, (list, tuple)) else (1, factor)))
        if len(ends) != 2 or ends[1] > BITS:
            raise ConfigError(f"{name} must be an integer from 1 to {BITS} or a pair of them, not "
                              f"{factor!r}")
        self._bits = ends
        self.value_range = self.values(value_range)

    def transformed(self, x: Value, *draws: Value) -> Value:
        low, high = self._bits
        bits = OPS.cast(OPS.floor(draws[0] * (high - low)), "int32") + low
        lost = OPS.broadcast_to(BITS - bits, x.shape)
        levels = OPS.cast(rescaled(x, self.value_range, BYTES), "int32")
        high_bits = OPS.shift_left(OPS.shift_right(levels, lost), lost)
        return rescaled(OPS.cast(high_bits, x.dtype), BYTES, self.value_range)


class Solarization(AugmentationLayer):
    """During training, adds a random number to each image and inverts the pixels above a threshold.

    Args:
        addition_factor: Range of the offset, as a fraction of the range of values: a pair, or one
            number for the range from 0 to it. From 0 to 1. Default: `0.0`.
        threshold_factor: Range of the threshold, in the same form; 0 inverts all pixels. Default:
            `0.0`.
        value_range: The smallest and the largest pixel value, `(low, high)`. Default: `(0, 255)`.
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
        >>> Solarization(threshold_factor=(0.3, 0.8)).threshold_factor
        (0.3, 0.8)
    """

    draws = 2

    def __init__(self, addition_factor: Factor = 0.0, threshold_factor: Factor = 0.0,
                 value_range: Any = (0, 255), seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.addition_factor, self.threshold_factor = addition_factor, threshold_factor
        self._additions = self.shares("addition_factor", addition_factor)
        self._thresholds = self.shares("threshold_factor", threshold_factor)
        self.value_range = self.values(value_range)

    def transformed(self, x: Value, *draws: Value) -> Value:
        addition, threshold = (between(u, ends) * BYTES[1] for u, ends in zip(
            draws, (self._additions, self._thresholds), strict=True))
        x = OPS.clip(rescaled(x, self.value_range, BYTES) + addition, *BYTES)
        return rescaled(OPS.where(x < threshold, x, BYTES[1] - x), BYTES, self.value_range)


class AutoContrast(SpatialLayer):
    """Stretches each channel of each image to the full range of values.

    It does so in training and in inference. A constant channel stays unchanged.

    Args:
        value_range: The smallest and the largest pixel value, `(low, high)`. Default: `(0, 255)`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> import ztorch as zt
        >>> AutoContrast((0, 1))(zt.tensor([[[[0.25], [0.75], [0.5]]]])).flatten().tolist()
        [0.0, 1.0, 0.5]
    """

    def __init__(self, value_range: Any = (0, 255), data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.value_range = checked_range("AutoContrast", value_range)

    def last(self, x: Value, context: Context) -> Value:
        x = OPS.cast(x, context.dtype)
        low, high = OPS.min(x, (1, 2), True), OPS.max(x, (1, 2), True)
        flat = low >= high
        start, end = self.value_range
        stretched = (x - low) / OPS.where(flat, 1.0, high - low) * (end - start) + start
        return OPS.where(flat, x, OPS.clip(stretched, start, end))
