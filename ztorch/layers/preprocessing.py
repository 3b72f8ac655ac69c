"""Layers that bring data to the size and scale a model works with, the same in every mode."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch.config import number, positive
from ztorch.dtypes import need_no_mask
from ztorch.errors import ConfigError, DataError
from ztorch.graph.op import OPS, constant, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.axes import checked_axes, example_axes
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.spatial import SpatialLayer
from ztorch.ops.windows import pad_axes

_LEAST_DEVIATION = 1e-7  # Keras' epsilon
_LONGEST_SIDE = 1 << 16


class Normalization(Layer):
    """Computes `(x - mean) / sqrt(variance)`, with the statistics of a data set.

    Give `mean` and `variance`, or let `adapt(data)` measure them before the model is compiled.

    Args:
        axis: Axis or axes with statistics of their own, counted with the batch as axis 0. `None`
            means one mean and one variance for everything. Default: `-1`.
        mean: The mean: a number, or a list of numbers. `None` leaves it to `adapt`. Default:
            `None`.
        variance: The variance, in the same form. Default: `None`.
        invert: Whether to compute `x * sqrt(variance) + mean` instead. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> layer = Normalization()
        >>> layer.adapt(np.array([[0.0, 10.0], [2.0, 30.0]]))
        >>> [w.value.tolist() for w in layer.weights]
        [[1.0, 20.0], [1.0, 100.0]]
    """

    def __init__(self, axis: int | tuple[int, ...] | None = -1, mean: Any = None,
                 variance: Any = None, invert: bool = False, **common: Any):
        super().__init__(**common)
        self.axis = None if axis is None else checked_axes("Normalization(axis=...)", axis)
        if (mean is None) != (variance is None):
            raise ConfigError("Normalization takes mean and variance together, or neither and a "
                              "call of adapt(data)")
        self.mean = None if mean is None else _numbers("mean", mean)
        self.variance = None if variance is None else _numbers("variance", variance)
        if self.variance is not None and np.min(self.variance) < 0:
            raise ConfigError("Normalization(variance=...) holds a number below zero")
        self.invert = invert

    def build(self, input_shape: Shape) -> None:
        self.example = input_shape
        self.kept = () if self.axis is None else example_axes(self.axis, len(input_shape) + 1)
        sizes = tuple(input_shape[a - 1] for a in self.kept)
        if self.mean is None:
            self.add_weight("mean", sizes, "zeros", trainable=False)
            self.add_weight("variance", sizes, "ones", trainable=False)
            return
        for statistic in map(np.array, (self.mean, self.variance)):
            try:
                np.broadcast_to(statistic, sizes)
            except ValueError:
                raise shape_error("the mean and variance given to Normalization do not fit inputs:",
                                  statistic.shape, input_shape,
                                  fix=f"give numbers, or lists of shape {sizes}") from None

    def adapt(self, data: Any) -> None:
        """Measures the mean and the variance of data. Programs that are already compiled keep
        theirs.

        Args:
            data: An array, or an iterable of batches: `x`, or tuples that begin with `x`.

        Raises:
            ConfigError: The layer was made with a mean and a variance.
            DataError: Rows have another shape than the layer's, or hold numbers that are not
                finite.
        """
        if self.mean is not None:
            raise ConfigError(f"layer {self.name!r} was given its mean and variance; make it "
                              "without them to adapt it")
        count, mean, spread = 0, np.zeros(()), np.zeros(())
        for batch in _batches(data):
            if not self.built:
                self.build(batch.shape[1:])
                self.built = True
            if batch.shape[1:] != self.example:
                raise DataError(f"layer {self.name!r} takes rows of shape {self.example}, not "
                                f"{batch.shape[1:]}")
            rest = tuple(k for k in range(batch.ndim) if k not in self.kept)
            n = math.prod(batch.shape[k] for k in rest)
            batch_mean = batch.mean(rest)
            # Two sets' sums of squares around their means join into one (Chan, Golub, LeVeque).
            shift = batch_mean - mean
            spread = spread + batch.var(rest) * n + shift ** 2 * (count * n / (count + n))
            mean = mean + shift * (n / (count + n))
            count += n
        if not count:
            raise DataError(f"adapt() of layer {self.name!r} got no rows")
        if not np.isfinite(spread).all():
            raise DataError(f"adapt() of layer {self.name!r} found numbers that are not finite; "
                            "clean the data first")
        for weight, value in zip(self.own_weights, (mean, spread / count), strict=True):
            weight.value = value

    def call(self, x: Value, context: Context) -> Value:
        if x.shape[1:] != self.example:
            raise shape_error("this layer was built for inputs of shape", self.example,
                              fix=f"make another for inputs of shape {x.shape[1:]}")
        along = tuple(n if k in self.kept else 1 for k, n in enumerate(x.shape))
        mean, variance = self._statistics(context)
        mean, deviation = OPS.reshape(mean, along), OPS.reshape(
            OPS.maximum(OPS.sqrt(variance), _LEAST_DEVIATION), along)
        x = OPS.cast(x, context.dtype)
        return x * deviation + mean if self.invert else (x - mean) / deviation

    def _statistics(self, context: Context) -> tuple[Value, Value]:
        if self.mean is None:
            mean, variance = map(context.read, self.own_weights)
            return mean, variance
        sizes = tuple(self.example[a - 1] for a in self.kept)
        mean, variance = (constant(np.broadcast_to(np.array(x), sizes).copy(), context.dtype)
                          for x in (self.mean, self.variance))
        return mean, variance


def _numbers(argument: str, numbers: Any) -> Any:
    """Numbers as a config can hold them: one, or lists of them."""
    try:
        array = np.asarray(numbers, np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if not np.isfinite(array).all():
        raise ConfigError(f"Normalization({argument}=...) must be finite numbers, not {numbers!r}")
    return array.tolist()


def _batches(data: Any) -> Iterator[np.ndarray]:
    """The rows of an array in pieces, so that widening them takes little memory, or of batches."""
    if hasattr(data, "__array__") or not hasattr(data, "__iter__"):
        need_no_mask("data", data)
        array = np.asarray(data)
        pieces = (array[k:k + 4096] for k in range(0, len(array) if array.ndim else 0, 4096))
    else:
        pieces = (_rows_of(batch) for batch in data)
    for piece in pieces:
        if piece.dtype.kind not in "fiub" or piece.ndim < 1:
            raise DataError(f"adapt() takes an array of numbers or batches of them, not "
                            f"{piece.dtype} of shape {piece.shape}")
        if len(piece):
            yield piece.astype(np.float64)


def _rows_of(batch: Any) -> np.ndarray:
    x = batch[0] if isinstance(batch, tuple) else batch
    need_no_mask("x", x)
    return np.asarray(x)


# -- sizes of images -------------------------------------------------------------------------------


def side(label: str, n: Any) -> int:
    """How many rows or columns of pixels, or a ConfigError that names it."""
    if positive(label, n) > _LONGEST_SIDE:
        raise ConfigError(f"{label} is {n!r}; images have sides of at most {_LONGEST_SIDE}")
    return n.__index__()


def weights_between(length: int, wanted: int, antialias: bool = False) -> np.ndarray:
    """How much of each of `length` elements each of the `wanted` ones takes, in rows that sum to 1:
    linear between the middles of elements, over all elements that one covers with antialias.

    >>> weights_between(4, 2).tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    """
    step = length / wanted
    middles = (np.arange(wanted) + 0.5) * step
    apart = np.abs(np.arange(length) + 0.5 - middles[:, None])
    weights = np.maximum(0.0, 1.0 - apart / (max(step, 1.0) if antialias else 1.0))
    return weights / weights.sum(1, keepdims=True)


def resized(x: Value, height: int, width: int, interpolation: str = "bilinear",
            antialias: bool = False) -> Value:
    """Images (channels last) in another size."""
    for axis, wanted in ((1, height), (2, width)):
        n = x.shape[axis]
        if n == wanted:
            continue
        before, after = x.shape[:axis], x.shape[axis + 1:]
        if interpolation == "nearest":
            nearest = ((np.arange(wanted) + 0.5) * (n / wanted)).astype(np.int32)
            x = OPS.take(x, constant(nearest), axis)
            continue
        matrix = constant(weights_between(n, wanted, antialias), x.dtype)
        flat = OPS.reshape(x, (math.prod(before), n, math.prod(after)))
        x = OPS.reshape(OPS.matmul(matrix, flat), (*before, wanted, *after))
    return x


def centred(x: Value, height: int, width: int) -> Value:
    """The middle of images (channels last), of this size."""
    top, left = (x.shape[1] - height) // 2, (x.shape[2] - width) // 2
    return OPS.slice(x, (0, top, left, 0), (1,) * 4, (x.shape[0], height, width, x.shape[3]))


def _same_shape(x: Value, height: int, width: int) -> tuple[int, int]:
    """The largest size within x with the proportions of height and width."""
    rows, columns = x.shape[1], x.shape[2]
    return (max(min(rows, columns * height // width), 1),
            max(min(columns, rows * width // height), 1))


def fitted(x: Value, height: int, width: int) -> Value:
    """The middle of images if they are large enough, else as much of it as has those proportions,
    enlarged."""
    if x.shape[1] >= height and x.shape[2] >= width:
        return centred(x, height, width)
    return resized(centred(x, *_same_shape(x, height, width)), height, width)


class CenterCrop(SpatialLayer):
    """The middle of images. Smaller images are enlarged first, with their proportions kept.

    Args:
        height: Number of output rows.
        width: Number of output columns.
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
        >>> from ztorch.layers import Input
        >>> Sequential([Input((32, 40, 3)), CenterCrop(28, 28)]).output_shape
        (28, 28, 3)
    """

    def __init__(self, height: int, width: int, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.height = side("CenterCrop(height=...)", height)
        self.width = side("CenterCrop(width=...)", width)

    def last(self, x: Value, context: Context) -> Value:
        return fitted(OPS.cast(x, context.dtype), self.height, self.width)


class Resizing(SpatialLayer):
    """Resizes images. Results are floats of the model and are not rounded.

    Args:
        height: Number of output rows.
        width: Number of output columns.
        interpolation: `"bilinear"` or `"nearest"`. Default: `"bilinear"`.
        crop_to_aspect_ratio: Whether to crop images to the new proportions first. Default: `False`.
        pad_to_aspect_ratio: Whether to pad images to the new proportions first. Default: `False`.
        fill_mode: Only `"constant"`: padding is `fill_value`. Default: `"constant"`.
        fill_value: Value of the padding. Default: `0.0`.
        antialias: Whether pixels of a smaller image are means of all pixels that they cover.
            Default: `False`.
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
        >>> from ztorch.layers import Input
        >>> Sequential([Input((32, 40, 3)), Resizing(24, 24)]).output_shape
        (24, 24, 3)
    """

    def __init__(self, height: int, width: int, interpolation: str = "bilinear",
                 crop_to_aspect_ratio: bool = False, pad_to_aspect_ratio: bool = False,
                 fill_mode: str = "constant", fill_value: float = 0.0, antialias: bool = False,
                 data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.height = side("Resizing(height=...)", height)
        self.width = side("Resizing(width=...)", width)
        self.interpolation = self.choice("interpolation", interpolation, ("bilinear", "nearest"))
        if crop_to_aspect_ratio and pad_to_aspect_ratio:
            raise ConfigError("Resizing either crops to the aspect ratio or pads to it; choose one")
        self.crop_to_aspect_ratio = crop_to_aspect_ratio
        self.pad_to_aspect_ratio = pad_to_aspect_ratio
        self.fill_mode = self.choice("fill_mode", fill_mode, ("constant",))
        self.fill_value = number("Resizing(fill_value=...)", fill_value)
        self.antialias = antialias

    def last(self, x: Value, context: Context) -> Value:
        x = OPS.cast(x, context.dtype)
        rows, columns = x.shape[1], x.shape[2]
        if self.crop_to_aspect_ratio:
            x = centred(x, *_same_shape(x, self.height, self.width))
        elif self.pad_to_aspect_ratio:
            wide = (max(rows, columns * self.height // self.width),
                    max(columns, rows * self.width // self.height))
            low = ((wide[0] - rows) // 2, (wide[1] - columns) // 2)
            high = (wide[0] - rows - low[0], wide[1] - columns - low[1])
            x = pad_axes(x, low, high, self.fill_value)
        return resized(x, self.height, self.width, self.interpolation, self.antialias)
