"""The augmentation layer that distorts images elastically."""

from __future__ import annotations

from typing import Any

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.augmentation import Factor, between
from ztorch.layers.context import Context
from ztorch.layers.sharpness import LEAST_SIGMA, blurred
from ztorch.layers.warping import WarpingLayer
from ztorch.ops.image_positions import pixels

REACH, SPREAD = 0.1, 0.05  # of shifts and of the blur that smooths them, relative to the image size


class RandomElasticTransform(WarpingLayer):
    """During training, shifts the pixels of some images randomly and smoothly.

    Args:
        factor: Probability that an image is changed, from 0 to 1. A pair is a range from which the
            probability is drawn; a number stands for the range from 0 to it, as in Keras. Default:
            `1.0`.
        scale: Strength and smoothness of the shifts: a pair, or one number for the range from 0 to
            it, from which each batch draws one. From 0 to 1. Default: `1.0`.
        interpolation: `"bilinear"` interpolates between pixels, `"nearest"` takes the nearest.
            Default: `"bilinear"`.
        fill_mode: How to fill pixels from outside the image: `"reflect"` mirrors the image,
            `"wrap"` uses its opposite side, `"nearest"` its border, `"constant"` the fill value.
            Default:
            `"reflect"`.
        fill_value: Value for `fill_mode="constant"`. Default: `0.0`.
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
        >>> RandomElasticTransform(0.5, scale=0.3).scale
        0.3
    """

    def __init__(self, factor: Factor = 1.0, scale: Factor = 1.0, interpolation: str = "bilinear",
                 fill_mode: str = "reflect", fill_value: float = 0.0, value_range: Any = (0, 255),
                 seed: int | None = None, data_format: str | None = None, **common: Any):
        super().__init__(fill_mode, interpolation, seed, fill_value, data_format, **common)
        self.factor, self.scale = factor, scale
        self._chances = self.shares("factor", factor)
        self._scales = self.shares("scale", scale)
        self.value_range = self.values(value_range)

    def changed(self, x: Value, context: Context) -> Value:
        chance, luck, strength = self.draw(x, context, 3)
        batch, rows, columns, _ = x.shape
        strength = between(strength[:1], self._scales)  # one for all images
        reach = strength * (max(rows, columns) * REACH)
        sigma = strength * (min(rows, columns) * SPREAD)
        # The window fits the widest blur, up to three deviations.
        size = int(6 * min(rows, columns) * SPREAD * self._scales[1]) | 1
        own = None if self.seed is None else (self.seed + 1) % (1 << 31)
        shifts = OPS.cast(OPS.random_normal((batch, rows, columns, 2),
                                            *context.random(own)), x.dtype) * sigma
        for axis in (1, 2):
            shifts = blurred(shifts, axis, size, sigma + LEAST_SIGMA)
        row, column = pixels(x)
        y = self.read(x, row + shifts[..., 1:] * reach, column + shifts[..., :1] * reach)
        y = OPS.where(luck < between(chance, self._chances), y, x)
        return OPS.clip(y, *self.value_range)
