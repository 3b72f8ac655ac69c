"""Normalization of inputs with the statistics of a data set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch.arguments import need_no_mask
from ztorch.errors import ConfigError, DataError
from ztorch.graph.op import OPS, constant, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.axes import checked_axes, example_axes
from ztorch.layers.context import Context
from ztorch.layers.core import finite_numbers
from ztorch.layers.layer import Layer

_LEAST_DEVIATION = 1e-7  # Keras' epsilon


class Normalization(Layer):
    """Computes `(x - mean) / sqrt(variance)`, with the statistics of a data set.

    Pass `mean` and `variance`, or call `adapt(data)` to measure them before the model is compiled.

    Args:
        axis: Axis or axes with separate statistics, where axis 0 is the batch. `None`
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
        >>> layer.mean.tolist(), layer.variance.tolist()
        ([[1.0, 20.0]], [[1.0, 100.0]])
    """

    supports_masking = True
    kept_as = {"mean": "input_mean", "variance": "input_variance"}

    def __init__(self, axis: int | tuple[int, ...] | None = -1, mean: Any = None,
                 variance: Any = None, invert: bool = False, **common: Any):
        super().__init__(**common)
        self.axis = None if axis is None else checked_axes("Normalization(axis=...)", axis)
        if (mean is None) != (variance is None):
            raise ConfigError("Normalization takes mean and variance together, or neither and a "
                              "call of adapt(data)")
        self.input_mean = None if mean is None else finite_numbers(
            "Normalization(mean=...)", mean)
        self.input_variance = None if variance is None else finite_numbers(
            "Normalization(variance=...)", variance)
        if self.input_variance is not None and np.min(self.input_variance) < 0:
            raise ConfigError("Normalization(variance=...) must not contain negative numbers")
        self.invert = invert

    def build(self, input_shape: Shape) -> None:
        self.example = input_shape
        self.kept_axes = () if self.axis is None else example_axes(
            self.axis, len(input_shape) + 1)
        sizes = tuple(input_shape[a - 1] for a in self.kept_axes)
        if self.input_mean is None:
            self.adapt_mean = self.add_weight("mean", sizes, "zeros", trainable=False)
            self.adapt_variance = self.add_weight("variance", sizes, "ones", trainable=False)
            return
        for statistic in map(np.array, (self.input_mean, self.input_variance)):
            try:
                np.broadcast_to(statistic, sizes)
            except ValueError:
                raise shape_error("the mean and variance of Normalization do not fit inputs:",
                                  statistic.shape, input_shape,
                                  fix=f"use numbers, or lists of shape {sizes}") from None

    @property
    def mean(self) -> np.ndarray | None:
        """The mean, in a shape that broadcasts with rows, as in Keras; None before the layer knows
        their shape."""
        return self._broadcast(0)

    @property
    def variance(self) -> np.ndarray | None:
        """The variance, in the shape of the mean."""
        return self._broadcast(1)

    def _broadcast(self, index: int) -> np.ndarray | None:
        """The mean (0) or the variance (1), with axes of size 1 where rows share it."""
        if not self.built:
            return None
        argument = (self.input_mean, self.input_variance)[index]
        statistic = self.own_weights[index].value if argument is None else np.broadcast_to(
            np.array(argument), [self.example[a - 1] for a in self.kept_axes])
        return statistic.astype(np.float32).reshape([
            self.example[a - 1] if a in self.kept_axes else 1
            for a in range(len(self.example) + 1)])

    def adapt(self, data: Any) -> None:
        """Measures the mean and the variance of data. A compiled model uses them from now on.

        Args:
            data: An array, or an iterable of batches: `x`, or tuples that start with `x`.

        Raises:
            ConfigError: The layer was created with a mean and a variance.
            DataError: Rows have another shape than the layer's, or contain non-finite numbers.
        """
        if self.input_mean is not None:
            raise ConfigError(f"layer {self.name!r} has a given mean and variance; create it "
                              "without them to adapt it")
        count, mean, spread = 0, np.zeros(()), np.zeros(())
        for batch in _batches(data):
            if not self.built:
                self.build_now(batch.shape[1:])
            if batch.shape[1:] != self.example:
                raise DataError(f"layer {self.name!r} takes rows of shape {self.example}, not "
                                f"{batch.shape[1:]}")
            rest = tuple(k for k in range(batch.ndim) if k not in self.kept_axes)
            n = math.prod(batch.shape[k] for k in rest)
            batch_mean = batch.mean(rest)
            # Merges the sums of squares around the means of two sets (Chan, Golub, LeVeque).
            shift = batch_mean - mean
            spread = spread + batch.var(rest) * n + shift ** 2 * (count * n / (count + n))
            mean = mean + shift * (n / (count + n))
            count += n
        if not count:
            raise DataError(f"adapt() of layer {self.name!r} needs at least one row")
        if not np.isfinite(spread).all():
            raise DataError(f"adapt() of layer {self.name!r} found numbers that are not finite; "
                            "clean the data first")
        for weight, value in zip(self.own_weights, (mean, spread / count), strict=True):
            weight.value = value

    def call(self, x: Value, context: Context) -> Value:
        # As in Keras the last axes count: one adapted to rows (3,) takes rows (24, 3), too.
        along = tuple(n if k in self.kept_axes else 1 for k, n in enumerate((1, *self.example)))
        if any(n not in (1, m) for n, m in zip(along[::-1], x.shape[::-1], strict=False)) or (
                len(along) > x.rank):
            raise shape_error("this layer was built for inputs of shape", self.example,
                              fix=f"make another for inputs of shape {x.shape[1:]}")
        mean, variance = self._statistics(context)
        mean, deviation = OPS.reshape(mean, along), OPS.reshape(
            OPS.maximum(OPS.sqrt(variance), _LEAST_DEVIATION), along)
        x = OPS.cast(x, context.dtype)
        return x * deviation + mean if self.invert else (x - mean) / deviation

    def _statistics(self, context: Context) -> tuple[Value, Value]:
        if self.input_mean is None:
            mean, variance = map(context.read, self.own_weights)
            return mean, variance
        sizes = tuple(self.example[a - 1] for a in self.kept_axes)
        mean, variance = (constant(np.broadcast_to(np.array(x), sizes).copy(), context.dtype)
                          for x in (self.input_mean, self.input_variance))
        return mean, variance


def _batches(data: Any) -> Iterator[np.ndarray]:
    """Batches as float64: those of an iterable, or parts of an array, to save memory."""
    if hasattr(data, "__array__") or not hasattr(data, "__iter__"):
        need_no_mask("data", data)
        array = np.asarray(data)
        pieces = (array[k:k + 4096] for k in range(0, len(array) if array.ndim else 0, 4096))
    else:
        pieces = (_rows_of(batch) for batch in data)
    for piece in pieces:
        if piece.dtype.kind not in "fiub" or piece.ndim < 1:
            raise DataError(f"adapt() takes an array of numbers, or batches of them, not "
                            f"{piece.dtype} of shape {piece.shape}")
        if len(piece):
            yield piece.astype(np.float64)


def _rows_of(batch: Any) -> np.ndarray:
    x = batch[0] if isinstance(batch, tuple) else batch
    need_no_mask("x", x)
    return np.asarray(x)
