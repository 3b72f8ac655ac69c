"""Layers that change images randomly during training, inside the compiled step.

Each example gets its own random numbers. They depend only on the program's seed, the step and the
layer's position in the model (or its own seed), so runs can be reproduced and resumed bit for bit.
Prediction and evaluation leave images unchanged. Called on images outside of a program, a layer
changes them, unless it gets `training=False`.
"""

from __future__ import annotations

import math
from typing import Any

from ztorch.config import number, whole_seed
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.resizing import fitted, side
from ztorch.layers.spatial import SpatialLayer
from ztorch.ops.windows import pad_axes

Pair = tuple[float, float]
Factor = float | tuple[float, float]


class AugmentationLayer(SpatialLayer, abstract=True):
    """Base class of the layers that change images randomly during training.

    Subclasses implement `transformed`, or `changed` if the change depends on more than a few random
    numbers per image.
    """

    default_training = True  # as in Keras: a call on images of its own changes them
    draws = 1  # random numbers per example that `transformed` takes

    def __init__(self, seed: int | None = None, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.seed = None if seed is None else whole_seed(seed)

    def last(self, x: Value, context: Context) -> Value:
        x = OPS.cast(x, context.dtype)
        return self.changed(x, context) if context.training else self.settled(x)

    def settled(self, x: Value) -> Value:
        """The output in prediction and evaluation."""
        return x

    def changed(self, x: Value, context: Context) -> Value:
        """The output during training."""
        if not self.draws:
            return x
        return self.transformed(x, *self.draw(x, context, self.draws))

    def transformed(self, x: Value, *draws: Value) -> Value:
        """The images, changed according to random numbers from 0 to 1, each `(batch, 1, 1, 1)`."""
        raise NotImplementedError

    def draw(self, x: Value, context: Context, count: int) -> list[Value]:
        """`count` random numbers from 0 to below 1 for each example, each of shape (batch, 1, 1,
        1).

        They are drawn as float32 in every model, so that float64 models see the same images.
        """
        seed, step, stream = context.random(self.seed)
        numbers = OPS.random_uniform((x.shape[0], count), seed, step, stream)
        return [OPS.reshape(OPS.cast(numbers[:, k], x.dtype), (-1, 1, 1, 1)) for k in range(count)]

    def bounds(self, argument: str, factor: Any, low: float, high: float) -> Pair:
        """The ends of a range, from a pair, or from one number for both directions."""
        name = f"{type(self).__name__}({argument}=...)"
        is_pair = isinstance(factor, (list, tuple))
        pair = factor if is_pair else (-abs(number(name, factor)), abs(number(name, factor)))
        ends = [number(name, end) for end in pair]
        if len(ends) != 2 or not all(-high <= end <= high for end in ends) or (
                is_pair and min(ends) < low):
            raise ConfigError(f"{name} must be a number from {low:g} to {high:g} or a pair of "
                              f"them, not {factor!r}")
        return min(ends), max(ends)

    def shares(self, argument: str, share: Any) -> Pair:
        """A pair of fractions; a single number is the upper one, with 0 as the lower one, as in
        Keras."""
        name = f"{type(self).__name__}({argument}=...)"
        pair = tuple(share) if isinstance(share, (list, tuple)) else (0.0, share)
        if len(pair) != 2 or not 0 <= number(name, pair[0]) <= number(name, pair[1]) <= 1:
            raise ConfigError(f"{name} must be a number from 0 to 1 or an ascending pair of them, "
                              f"not {share!r}")
        return float(pair[0]), float(pair[1])

    def values(self, value_range: Any) -> Pair:
        """The smallest and the largest value of a pixel."""
        return checked_range(type(self).__name__, value_range)


def checked_range(layer: str, value_range: Any) -> Pair:
    """An ascending pair of numbers, or a ConfigError that names the layer.

    >>> checked_range("AutoContrast", (0, 1))
    (0.0, 1.0)
    """
    name = f"{layer}(value_range=...)"
    if not isinstance(value_range, (list, tuple)) or len(value_range) != 2:
        raise ConfigError(f"{name} must be a pair such as (0, 255) or (0, 1), not {value_range!r}")
    low, high = (number(name, end) for end in value_range)
    if not low < high:
        raise ConfigError(f"{name} must be an ascending pair, not {value_range!r}")
    return low, high


def between(u: Value, ends: Pair) -> Value:
    """Numbers from 0 to 1, mapped to a range."""
    return u * (ends[1] - ends[0]) + ends[0]


def sign(u: Value) -> Value:
    """-1 or 1, with equal probability, from numbers from 0 to 1."""
    return OPS.where(u > 0.5, OPS.full_like(u, -1.0), 1.0)


class RandomFlip(AugmentationLayer):
    """During training, flips each image with probability one half.

    Args:
        mode: `"horizontal"` swaps left and right, `"vertical"` swaps top and bottom,
            `"horizontal_and_vertical"` does each independently. Default:
            `"horizontal_and_vertical"`.
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
    """During training, a part of each image at a random position; otherwise its middle.

    Images smaller than the crop are enlarged, as in `CenterCrop`. Add a `ZeroPadding2D` before this
    layer to move images within a border.

    Args:
        height: Number of output rows.
        width: Number of output columns.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
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
        (None, 32, 32, 3)
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
            x = OPS.crop(x, _as_int(OPS.floor(u * places)), size, axis)
        return x


class RandomTranslation(AugmentationLayer):
    """During training, moves each image by a random distance.

    Args:
        height_factor: Range of the downward shift, as a fraction of the image height. A pair such
            as `(-0.2, 0.3)`, or one number for both directions; negative numbers shift up.
        width_factor: Range of the shift to the right, as a fraction of the image width, in the same
            form.
        fill_mode: How to fill pixels from outside the image: `"reflect"` mirrors the image,
            `"wrap"` uses its opposite side, `"nearest"` its border, `"constant"` the fill value.
            Default: `"reflect"`.
        interpolation: `"bilinear"` interpolates fractions of a pixel, `"nearest"` rounds them.
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
                x = self._read(wide, axis, n, low - between(u, ends) * n)
        return x

    def _extended(self, x: Value, axis: int, low: int, high: int) -> Value:
        """x with `low` elements added before and `high` after it."""
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
        """n elements of each example from a start, which may be fractional."""
        if self.interpolation == "nearest":
            return OPS.crop(wide, _as_int(OPS.floor(start + 0.5)), n, axis)
        first = OPS.clip(OPS.floor(start), 0.0, wide.shape[axis] - n - 1.0)
        pair = OPS.crop(wide, _as_int(first), n + 1, axis)
        part = start - first
        return _piece(pair, axis, 0, n) * (1.0 - part) + _piece(pair, axis, 1, n) * part


def _as_int(start: Value) -> Value:
    return OPS.reshape(OPS.cast(start, "int32"), (-1,))


def _piece(x: Value, axis: int, start: int, size: int) -> Value:
    """`size` elements along an axis."""
    return OPS.slice(x, tuple(start * (k == axis) for k in range(x.rank)), (1,) * x.rank,
                     tuple(size if k == axis else n for k, n in enumerate(x.shape)))


def _repeated(x: Value, axis: int, times: int) -> Value:
    return OPS.broadcast_to(x, tuple(times if k == axis else n for k, n in enumerate(x.shape)))
