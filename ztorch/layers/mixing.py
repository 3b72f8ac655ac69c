"""Augmentation layers that mix each image of a batch with another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.config import number
from ztorch.graph.op import OPS, constant, shape_error
from ztorch.graph.value import Value
from ztorch.layers.augmentation import AugmentationLayer, Factor, Pair, between
from ztorch.layers.context import Context
from ztorch.layers.symbol import leaves

TRIES = 8  # tries for one gamma sample: each fails at most once in twenty
DRAWS = 3 * TRIES + 1  # uniform numbers for one gamma sample


def gamma(alpha: Value, uniforms: Value) -> Value:
    """Samples of the gamma distribution with shape alpha, by Marsaglia and Tsang: a cube of a
    normal number, accepted or rejected by a uniform one. Uniform numbers are (count, DRAWS), alpha
    (count,).
    """
    d = OPS.expand_dims(alpha + 1.0 - 1 / 3, -1)  # the method works for alpha + 1
    radius, turn, u = (uniforms[:, k * TRIES:(k + 1) * TRIES] for k in range(3))
    x = OPS.sqrt(-2.0 * OPS.log(1.0 - radius)) * OPS.cos(2 * math.pi * turn)
    cube = (1.0 + x / (3.0 * OPS.sqrt(d))) ** 3
    positive = OPS.maximum(cube, 1e-30)
    bound = 0.5 * x * x + d * (1.0 - positive + OPS.log(positive))
    accepted = OPS.logical_and(OPS.log(OPS.maximum(u, 1e-30)) < bound, cube > 0.0)
    place = OPS.argmax(OPS.cast(accepted, "int32"), -1)  # the first accepted try
    hits = OPS.equal(OPS.expand_dims(place, -1), constant(np.arange(TRIES)[None], "int32"))
    number = OPS.sum(OPS.where(hits, d * positive, 0.0), -1)
    return number * OPS.maximum(uniforms[:, -1], 1e-30) ** (1.0 / alpha)


class MixingLayer(AugmentationLayer, abstract=True):
    """Base class of layers that mix each image with another one, and labels in the same way.

    Called on images, they return images. Called on a dict with `images` and `labels`, such as a
    batch for `fit`, they mix both in the same way.
    """

    takes_many = True

    def call(self, x: Any, context: Context) -> Any:
        parts = x if isinstance(x, dict) else {"images": x}
        if "images" not in parts or not set(parts) <= {"images", "labels"}:
            raise shape_error("takes images, or a dict of images and labels, not of "
                              f"{', '.join(map(str, parts))}")
        for part, tensor in parts.items():
            if not isinstance(tensor, Value):
                raise shape_error(f"{part} are one tensor, not a {type(tensor).__name__} of "
                                  f"{len(leaves(tensor))}", fix="join them first, such as "
                                  "Concatenate(axis=0)([a, b]), or call it on each")
        images = parts["images"]
        self.channels(images.shape[1:])
        images = OPS.cast(images, context.dtype)
        if not context.training:
            mixed, share, other = images, None, None
        else:
            other, mixed, share = self.mixed(images, context)
        if not isinstance(x, dict):
            return mixed
        labels = parts.get("labels")
        if labels is None:
            return {"images": mixed}
        if share is not None:
            assert other is not None
            if labels.rank != 2:
                raise shape_error(f"{type(self).__name__} mixes labels, one number per class, not",
                                  labels.shape, fix="pass to_categorical(labels)")
            share = OPS.reshape(share, (-1, 1))
            own = OPS.cast(labels, images.dtype)
            labels = share * own + (1.0 - share) * OPS.take(own, other, 0)
        return {"images": mixed, "labels": labels}

    def mixed(self, x: Value, context: Context) -> tuple[Value, Value, Value]:
        """The partner of each row, the mixed images, and the weight of the row itself in each."""
        raise NotImplementedError

    def uniforms(self, x: Value, context: Context) -> tuple[Value, Value]:
        """Four random numbers per row, and those of its weight."""
        u = OPS.cast(OPS.random_uniform((x.shape[0], 4 + 2 * DRAWS), *context.random(self.seed)),
                     x.dtype)
        return u[:, :4], u[:, 4:]


def order(u: Value) -> Value:
    """The rows, ordered by random numbers."""
    return OPS.cast(OPS.argsort(u), "int32")


def beta(alpha: Value, uniforms: Value) -> Value:
    """A sample of the beta distribution with parameters alpha and alpha, per row."""
    one, two = (gamma(alpha, uniforms[:, k * DRAWS:(k + 1) * DRAWS]) for k in range(2))
    return (one + 1e-30) / (one + two + 2e-30)


class MixUp(MixingLayer):
    """During training, replaces each image by a weighted mean of it and another of the batch.

    Args:
        alpha: Parameter of the beta distribution of the weight; small values keep one image
            dominant. Default: `0.2`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first; or a dict of such `images` and of `labels`, `(batch, classes)`.

    Output shape:
        The same as the input shape.

    Examples:
        >>> import numpy as np
        >>> batch = {"images": np.ones((4, 8, 8, 3), "f"), "labels": np.eye(4, dtype="f")}
        >>> mixed = MixUp(seed=1)(batch, training=True)
        >>> mixed["labels"].numpy().sum(-1).round(5).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(self, alpha: float = 0.2, data_format: str | None = None, seed: int | None = None,
                 **common: Any):
        super().__init__(seed, data_format, **common)
        self.alpha = number("MixUp(alpha=...)", alpha, above=0)

    def mixed(self, x: Value, context: Context) -> tuple[Value, Value, Value]:
        u, draws = self.uniforms(x, context)
        other = order(u[:, 0])
        share = beta(OPS.full((x.shape[0],), self.alpha, x.dtype), draws)
        own = OPS.reshape(share, (-1, 1, 1, 1))
        return other, own * x + (1.0 - own) * OPS.take(x, other, 0), share


class CutMix(MixingLayer):
    """During training, replaces a box of each image by that of another image of the batch.

    Args:
        factor: Range of the alpha of the beta distribution of the area outside the box: a pair, or
            one number for the range from 0 to it. From 0 to 1. Default: `1.0`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first; or a dict of such `images` and of `labels`, `(batch, classes)`.

    Output shape:
        The same as the input shape.

    Examples:
        >>> CutMix((0.5, 1.0), seed=1).factor
        (0.5, 1.0)
    """

    def __init__(self, factor: Factor = 1.0, seed: int | None = None,
                 data_format: str | None = None, **common: Any):
        super().__init__(seed, data_format, **common)
        self.factor = factor
        self._alphas: Pair = self.shares("factor", factor)

    def mixed(self, x: Value, context: Context) -> tuple[Value, Value, Value]:
        axes = (2, 3) if self.channels_first else (1, 2)
        u, draws = self.uniforms(x, context)
        alpha = OPS.broadcast_to(between(u[:1, 1], self._alphas) + 1e-6, (x.shape[0],))
        side = OPS.sqrt(1.0 - beta(alpha, draws))
        inside, area = None, None
        for axis, column_of_start in zip(axes, (2, 3), strict=True):
            size = x.shape[axis]
            length = side * size
            start = u[:, column_of_start] * (size - length)
            column = (-1, 1, 1, 1)
            grid = [1, 1, 1, 1]
            grid[axis] = size
            place = OPS.reshape(constant(np.arange(size), x.dtype), tuple(grid))
            within = OPS.logical_and(place >= OPS.reshape(start, column),
                                     place < OPS.reshape(start + length, column))
            inside = within if inside is None else OPS.logical_and(inside, within)
            area = length / size if area is None else area * (length / size)
        assert inside is not None and area is not None
        other = order(u[:, 0])
        mixed = OPS.where(OPS.broadcast_to(inside, x.shape), OPS.take(x, other, 0), x)
        return other, mixed, 1.0 - area
