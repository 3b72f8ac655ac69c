"""Layers that apply a few randomly chosen changes to images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.config import number, positive
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.augmentation import (
    AugmentationLayer,
    Factor,
    Pair,
    RandomTranslation,
    checked_range,
)
from ztorch.layers.colors import RandomColorDegeneration
from ztorch.layers.context import Context
from ztorch.layers.histograms import Equalization
from ztorch.layers.layer import Layer
from ztorch.layers.mixing import DRAWS, beta, gamma
from ztorch.layers.pixels import RandomBrightness, RandomContrast
from ztorch.layers.sharpness import RandomSharpness
from ztorch.layers.tones import BITS, AutoContrast, RandomPosterization, Solarization
from ztorch.layers.warping import RandomRotation, RandomShear

# The transformations in common robustness benchmarks.
OF_TESTS = (RandomBrightness, RandomColorDegeneration, RandomContrast, RandomSharpness)


class RandAugment(AugmentationLayer):
    """During training, applies `num_ops` of eleven changes to all images of a batch.

    The changes are shear, translation, rotation, brightness, color degeneration, contrast,
    sharpness, solarization, posterization, auto contrast and equalization, each with separate
    random numbers per image. Equalization uses the histogram of each image alone.

    Args:
        value_range: The smallest and the largest pixel value, `(low, high)`. Default: `(0, 255)`.
        num_ops: Number of changes in sequence. Default: `2`.
        factor: Strength of changes: a pair, or one number for the range from 0 to it. From 0 to 1.
            Default: `0.5`.
        interpolation: `"nearest"` or `"bilinear"`. Default: `"bilinear"`.
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
        >>> import ztorch as zt
        >>> RandAugment((0, 1), num_ops=1)(zt.layers.Input((8, 8, 3))).shape
        (None, 8, 8, 3)
    """

    def __init__(self, value_range: Any = (0, 255), num_ops: int = 2, factor: Factor = 0.5,
                 interpolation: str = "bilinear", seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.value_range = checked_range("RandAugment", value_range)
        self.num_ops = positive("RandAugment(num_ops=...)", num_ops)
        self.factor = factor
        self.interpolation = interpolation
        self.changes = [self.adopt(layer) for layer in _changes(
            self.shares("factor", factor), self.value_range, interpolation, seed)]

    def changed(self, x: Value, context: Context) -> Value:
        choices = OPS.random_uniform((self.num_ops,), *context.random(self.seed))
        for k in range(self.num_ops):
            place = OPS.floor(choices[k:k + 1] * len(self.changes))
            x = _one_of(self.changes, OPS.reshape(place, (1,) * x.rank), x, context)
        return x


class AugMix(AugmentationLayer):
    """During training, mixes each image with results of random chains of changes.

    All images of a batch share the chains, but not their random numbers. A step of a chain is one
    of the eleven changes of `RandAugment`, or none.

    Args:
        value_range: The smallest and the largest pixel value, `(low, high)`. Default: `(0, 255)`.
        num_chains: Number of chains. Default: `3`.
        chain_depth: Largest number of changes in a chain. Default: `3`.
        factor: Strength of changes: a pair, or one number for the range from 0 to it. From 0 to 1.
            Default: `0.3`.
        alpha: Parameter of the distributions of the weights of chains and of the original image;
            small values make one of them dominant. Default: `1.0`.
        all_ops: `False` excludes brightness, color degeneration, contrast and sharpness, which
            robustness benchmarks use. Default: `True`.
        interpolation: `"nearest"` or `"bilinear"`. Default: `"bilinear"`.
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
        >>> import ztorch as zt
        >>> AugMix((0, 1), chain_depth=1)(zt.layers.Input((8, 8, 3))).shape
        (None, 8, 8, 3)
    """

    def __init__(self, value_range: Any = (0, 255), num_chains: int = 3, chain_depth: int = 3,
                 factor: Factor = 0.3, alpha: float = 1.0, all_ops: bool = True,
                 interpolation: str = "bilinear", seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.value_range = checked_range("AugMix", value_range)
        self.num_chains = positive("AugMix(num_chains=...)", num_chains)
        self.chain_depth = positive("AugMix(chain_depth=...)", chain_depth)
        self.factor = factor
        self.alpha = number("AugMix(alpha=...)", alpha, above=0)
        self.all_ops = bool(all_ops)
        self.interpolation = interpolation
        ends = self.shares("factor", factor)
        self.steps = [[self.adopt(layer) for layer in _changes(
            ends, self.value_range, interpolation, None if seed is None else seed + 10 * step)
            if all_ops or not isinstance(layer, OF_TESTS)] for step in range(self.chain_depth)]

    def changed(self, x: Value, context: Context) -> Value:
        chains, depth, rows = self.num_chains, self.chain_depth, x.shape[0]
        steps, shares = chains * depth, chains * DRAWS
        u = OPS.random_uniform((steps + shares + 2 * DRAWS,), *context.random(self.seed))
        choices, of_shares, of_own = OPS.split(OPS.cast(u, x.dtype), (steps, steps + shares))
        mixed = OPS.concat(*[x] * chains, axis=0)
        for step, changes in enumerate(self.steps):
            place = OPS.floor(choices[step * chains:(step + 1) * chains] * (len(changes) + 1))
            place = OPS.reshape(OPS.repeat(place, rows, axis=0), (-1, 1, 1, 1))
            mixed = _one_of(changes, place, mixed, context)
        alpha = OPS.full((chains,), self.alpha, x.dtype)
        weights = gamma(alpha, OPS.reshape(of_shares, (chains, DRAWS))) + 1e-30
        weights = OPS.reshape(weights / OPS.sum(weights), (-1, 1, 1, 1, 1))
        mixed = OPS.sum(weights * OPS.reshape(mixed, (chains, *x.shape)), 0)
        own = OPS.reshape(beta(alpha[:1], OPS.reshape(of_own, (1, -1))), (1, 1, 1, 1))
        return OPS.clip(own * x + (1.0 - own) * mixed, *self.value_range)


def _changes(ends: Pair, value_range: Pair, interpolation: str, seed: int | None) -> list[Layer]:
    """The eleven changes. Nine of them draw numbers, from consecutive seeds."""
    seeds = [None if seed is None else seed + k for k in range(1, 10)]
    tones: dict[str, Any] = {"value_range": value_range}
    return [
        RandomShear(ends, ends, interpolation, seed=seeds[0]),
        RandomTranslation(ends, ends, interpolation=interpolation, seed=seeds[1]),
        RandomRotation(ends, interpolation=interpolation, seed=seeds[2]),
        RandomBrightness(ends, seed=seeds[3], **tones),
        RandomColorDegeneration(ends, seed=seeds[4], **tones),
        RandomContrast(ends, seed=seeds[5], **tones),
        RandomSharpness(ends, seed=seeds[6], **tones),
        Solarization(ends, ends, seed=seeds[7], **tones),
        RandomPosterization(max(1, int(BITS * ends[1])), seed=seeds[8], **tones),
        AutoContrast(**tones), Equalization(**tones)]


def _one_of(changes: Sequence[Layer], place: Value, x: Value, context: Context) -> Value:
    """The images after the change at a given index; unchanged if the index has no change."""
    y = x
    for index, layer in enumerate(changes):
        chosen = OPS.broadcast_to(OPS.equal(place, float(index)), x.shape)
        y = OPS.where(chosen, layer(x, context), y)
    return y
