"""A few of many changes of images, drawn by chance."""

from __future__ import annotations

from typing import Any

from ztorch.config import positive
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.augmentation import AugmentationLayer, Factor, RandomTranslation, checked_range
from ztorch.layers.colors import RandomColorDegeneration
from ztorch.layers.context import Context
from ztorch.layers.histograms import Equalization
from ztorch.layers.layer import Layer
from ztorch.layers.pixels import RandomBrightness, RandomContrast
from ztorch.layers.sharpness import RandomSharpness
from ztorch.layers.tones import BITS, AutoContrast, RandomPosterization, Solarization
from ztorch.layers.warping import RandomRotation, RandomShear


class RandAugment(AugmentationLayer):
    """While training, changes all images of a batch in `num_ops` ways, drawn from eleven.

    They are shear, translation, rotation, brightness, color degeneration, contrast, sharpness,
    solarization, posterization, auto contrast and equalization, each with random numbers of its own
    for each image. Equalization counts the tones of each image alone.

    Args:
        value_range: The smallest and the largest pixel value, `(low, high)`. Default: `(0, 255)`.
        num_ops: How many changes follow one another. Default: `2`.
        factor: How strong changes are: a pair, or one number for the range from 0 to it. From 0 to
            1. Default: `0.5`.
        interpolation: `"nearest"` or `"bilinear"`. Default: `"bilinear"`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        data_format: `"channels_last"` or `"channels_first"`: where inputs have their channels.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, 3)`, or `(batch, 3, rows, columns)` with channels first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> import ztorch as zt
        >>> RandAugment((0, 1), num_ops=1)(zt.layers.Input((8, 8, 3))).shape
        (8, 8, 3)
    """

    def __init__(self, value_range: Any = (0, 255), num_ops: int = 2, factor: Factor = 0.5,
                 interpolation: str = "bilinear", seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.value_range = checked_range("RandAugment", value_range)
        self.num_ops = positive("RandAugment(num_ops=...)", num_ops)
        self.factor = factor
        self.interpolation = interpolation
        ends = self.shares("factor", factor)
        seeds = [None if seed is None else seed + k for k in range(1, 10)]
        tones: dict[str, Any] = {"value_range": self.value_range}
        self.changes: list[Layer] = [self.adopt(layer) for layer in (
            RandomShear(ends, ends, interpolation, seed=seeds[0]),
            RandomTranslation(ends, ends, interpolation=interpolation, seed=seeds[1]),
            RandomRotation(ends, interpolation=interpolation, seed=seeds[2]),
            RandomBrightness(ends, seed=seeds[3], **tones),
            RandomColorDegeneration(ends, seed=seeds[4], **tones),
            RandomContrast(ends, seed=seeds[5], **tones),
            RandomSharpness(ends, seed=seeds[6], **tones),
            Solarization(ends, ends, seed=seeds[7], **tones),
            RandomPosterization(max(1, int(BITS * ends[1])), seed=seeds[8], **tones),
            AutoContrast(**tones), Equalization(**tones))]

    def changed(self, x: Value, context: Context) -> Value:
        which = OPS.random_uniform((self.num_ops,), *context.random(self.seed))
        for k in range(self.num_ops):
            place = OPS.floor(which[k:k + 1] * len(self.changes))
            before = x
            for number, layer in enumerate(self.changes):
                chosen = OPS.broadcast_to(OPS.reshape(OPS.equal(place, float(number)),
                                                      (1,) * x.rank), x.shape)
                x = OPS.where(chosen, layer(before, context), x)
        return x
