"""Augmentation layers that change colors: hue, saturation, shades of gray."""

from __future__ import annotations

from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.layers.augmentation import AugmentationLayer, Factor, between, sign
from ztorch.layers.context import Context
from ztorch.layers.pixels import RandomBrightness, RandomContrast
from ztorch.ops.image_colors import from_hue, gray, hue_and_saturation


class ColorLayer(AugmentationLayer, abstract=True):
    """Base class of the layers that take images with the channels red, green and blue."""

    def last(self, x: Value, context: Context) -> Value:
        if x.shape[-1] != 3:
            raise shape_error("needs the channels red, green and blue, but inputs are", x.shape[1:],
                              fix="leave the layer out for images without colors")
        return super().last(x, context)


class RandomHue(ColorLayer):
    """During training, moves the hue of each image around the circle of colors.

    Args:
        factor: Range of the shift, in half turns: a pair, or one number for the range from 0 to it.
            From 0 to 1. The direction is random.
        value_range: The smallest and the largest pixel value, `(low, high)`. Default: `(0, 255)`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, 3)`, or `(batch, 3, rows, columns)` with channels first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomHue((0.1, 0.4), value_range=(0, 1)).factor
        (0.1, 0.4)
    """

    draws = 2

    def __init__(self, factor: Factor, value_range: Any = (0, 255), data_format: str | None = None,
                 seed: int | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor = factor
        self._ends = self.shares("factor", factor)
        self.value_range = self.values(value_range)

    def transformed(self, x: Value, *draws: Value) -> Value:
        invert, u = draws
        low, high = self.value_range
        hue, saturation, value = hue_and_saturation((x - low) / (high - low))
        move = between(u, self._ends) * sign(invert) * 0.5
        y = OPS.clip(from_hue(hue + move, saturation, value), 0.0, 1.0)
        return y * (high - low) + low


class RandomSaturation(ColorLayer):
    """During training, makes the colors of each image stronger or weaker.

    A factor f multiplies the saturation by `f / (1 - f)`: 0 gives a gray image, 0.5 leaves it
    unchanged, 1 gives the purest colors. Saturation is clipped at 1.

    Args:
        factor: Range of the factor: a pair, or one number for the range from minus it to it, as in
            Keras. From -1 to 1; below 0 images are gray.
        value_range: The smallest and the largest pixel value, `(low, high)`. Default: `(0, 255)`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, 3)`, or `(batch, 3, rows, columns)` with channels first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomSaturation((0.4, 0.6)).factor
        (0.4, 0.6)
    """

    def __init__(self, factor: Factor, value_range: Any = (0, 255), data_format: str | None = None,
                 seed: int | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor = factor
        self._ends = self.bounds("factor", factor, -1, 1)
        self.value_range = self.values(value_range)

    def transformed(self, x: Value, *draws: Value) -> Value:
        low = self.value_range[0]
        hue, saturation, value = hue_and_saturation(x - low)
        factor = between(draws[0], self._ends)
        factor = factor / (1.0 - factor + 1e-7)  # as in Keras, so that 1 is allowed
        return from_hue(hue, OPS.clip(saturation * factor, 0.0, 1.0), value) + low


class RandomColorDegeneration(ColorLayer):
    """During training, blends each image with its gray version.

    Args:
        factor: Range of the fraction of gray: a pair, or one number for the range from minus it to
            it, as in Keras. From -1 to 1; below 0 colors become stronger.
        value_range: The smallest and the largest pixel value, `(low, high)`. Results are clipped to
            it. Default: `(0, 255)`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, 3)`, or `(batch, 3, rows, columns)` with channels first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomColorDegeneration(0.5).value_range
        (0.0, 255.0)
    """

    def __init__(self, factor: Factor, value_range: Any = (0, 255), data_format: str | None = None,
                 seed: int | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor = factor
        self._ends = self.bounds("factor", factor, -1, 1)
        self.value_range = self.values(value_range)

    def transformed(self, x: Value, *draws: Value) -> Value:
        return OPS.clip(x + between(draws[0], self._ends) * (gray(x) - x), *self.value_range)


class RandomGrayscale(ColorLayer):
    """During training, turns some images gray.

    Args:
        factor: Probability that an image becomes gray, from 0 to 1. Default: `0.5`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, 3)`, or `(batch, 3, rows, columns)` with channels first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomGrayscale(0.2).factor
        0.2
    """

    def __init__(self, factor: float = 0.5, data_format: str | None = None,
                 seed: int | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor = self.shares("factor", factor)[1]

    def transformed(self, x: Value, *draws: Value) -> Value:
        return OPS.where(draws[0] < self.factor, OPS.broadcast_to(gray(x), x.shape), x)


class RandomColorJitter(ColorLayer):
    """During training, changes brightness, contrast, saturation and hue of each image, in this
    order.

    Args:
        value_range: The smallest and the largest pixel value, `(low, high)`. Default: `(0, 255)`.
        brightness_factor: The factor of `RandomBrightness`. `None` omits it. Default: `None`.
        contrast_factor: The factor of `RandomContrast`. `None` omits it. Default: `None`.
        saturation_factor: The factor of `RandomSaturation`. `None` omits it. Default: `None`.
        hue_factor: The factor of `RandomHue`. `None` omits it. Default: `None`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, 3)`, or `(batch, 3, rows, columns)` with channels first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> RandomColorJitter((0, 1), brightness_factor=0.2, hue_factor=0.1).draws
        3
    """

    def __init__(self, value_range: Any = (0, 255), brightness_factor: Factor | None = None,
                 contrast_factor: Factor | None = None, saturation_factor: Factor | None = None,
                 hue_factor: Factor | None = None, seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.value_range = self.values(value_range)
        self.brightness_factor, self.contrast_factor = brightness_factor, contrast_factor
        self.saturation_factor, self.hue_factor = saturation_factor, hue_factor
        kinds = {"brightness_factor": RandomBrightness, "contrast_factor": RandomContrast,
                 "saturation_factor": RandomSaturation, "hue_factor": RandomHue}
        self._parts: list[AugmentationLayer] = []
        for argument, kind in kinds.items():
            factor = getattr(self, argument)
            if factor is not None:
                try:
                    self._parts.append(kind(factor, value_range=value_range))
                except ConfigError as error:
                    raise ConfigError(f"RandomColorJitter({argument}=...): {error}") from None
        self.draws = sum(part.draws for part in self._parts)

    def transformed(self, x: Value, *draws: Value) -> Value:
        for part in self._parts:
            x = part.transformed(x, *draws[:part.draws])
            draws = draws[part.draws:]
        return x
