"""Augmentation layers that blur and sharpen images."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.layers.augmentation import AugmentationLayer, Factor, between
from ztorch.ops.windows import pad_axes

LEAST_SIGMA = 1e-6  # pixels, added to each draw to avoid division by zero


class RandomSharpness(AugmentationLayer):
    """During training, blurs or sharpens each image.

    Args:
        factor: Range of the sharpness: 0 blurs, 0.5 leaves images unchanged, 1 sharpens. A pair, or
            one number for the range from 0 to it.
        value_range: The smallest and the largest pixel value, `(low, high)`. Results are clipped to
            it. Default: `(0, 255)`.
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
        >>> RandomSharpness((0.3, 0.9)).factor
        (0.3, 0.9)
    """

    def __init__(self, factor: Factor, value_range: Any = (0, 255), data_format: str | None = None,
                 seed: int | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor = factor
        self._ends = self.shares("factor", factor)
        self.value_range = self.values(value_range)

    def transformed(self, x: Value, *draws: Value) -> Value:
        kernel = np.full((3, 3, 1, x.shape[-1]), 1 / 13)
        kernel[1, 1] = 5 / 13
        smooth = OPS.conv(x, constant(kernel, x.dtype), 1, "same", groups=x.shape[-1])
        blur = 1.0 - 2.0 * between(draws[0], self._ends)
        return OPS.clip(x + blur * (smooth - x), *self.value_range)


class RandomGaussianBlur(AugmentationLayer):
    """During training, applies a Gaussian blur of random width to some images.

    Args:
        factor: Probability that an image is blurred, from 0 to 1. A pair is a range from which the
            probability is drawn; a number stands for the range from 0 to it, as in Keras. Default:
            `1.0`.
        kernel_size: Size of the window in pixels: an odd integer, or one for each axis. Default:
            `3`.
        sigma: Range of the standard deviation in pixels, drawn separately for each axis: a pair, or
            one number for the range from 0 to it. From 0 to 1. Default: `1.0`.
        value_range: The smallest and the largest pixel value, `(low, high)`. Results are clipped to
            it. Default: `(0, 255)`.
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
        >>> RandomGaussianBlur(0.5, kernel_size=5).kernel_size
        (5, 5)
    """

    draws = 4

    def __init__(self, factor: Factor = 1.0, kernel_size: Any = 3, sigma: Factor = 1.0,
                 value_range: Any = (0, 255), data_format: str | None = None,
                 seed: int | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor, self.sigma = factor, sigma
        self._chances = self.shares("factor", factor)
        self._widths = self.shares("sigma", sigma)
        self.kernel_size = self.each("kernel_size", kernel_size)
        if any(size % 2 == 0 for size in self.kernel_size):
            raise ConfigError("RandomGaussianBlur(kernel_size=...) must be odd, not "
                              f"{kernel_size!r}")
        self.value_range = self.values(value_range)

    def transformed(self, x: Value, *draws: Value) -> Value:
        chance, luck, *widths = draws
        y = x
        for axis, size, u in zip((1, 2), self.kernel_size, widths, strict=True):
            y = blurred(y, axis, size, between(u, self._widths) + LEAST_SIGMA)
        y = OPS.where(luck < between(chance, self._chances), y, x)
        return OPS.clip(y, *self.value_range)


def blurred(x: Value, axis: int, size: int, sigma: Value) -> Value:
    """x blurred along an axis with a window of this size, with zeros outside the image."""
    reach = size // 2
    shares = [OPS.exp(OPS.square(k / sigma) * -0.5) for k in range(-reach, reach + 1)]
    around = (reach * (axis == 1), reach * (axis == 2))
    wide = pad_axes(x, around, around, 0.0)
    n = x.shape[axis]
    parts = [wide[(slice(None),) * axis + (slice(k, k + n),)] * share
             for k, share in enumerate(shares)]
    return _sum(parts) / _sum(shares)


def _sum(values: list[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
