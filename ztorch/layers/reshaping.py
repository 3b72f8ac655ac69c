"""Layers that change only the shape of each example."""

from __future__ import annotations

import math
from typing import Any

from ztorch.config import positive, whole_numbers
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.spatial import checked_format


class Flatten(Layer):
    """Flattens each example to one row.

    As in Keras, channels-first inputs are flattened in channels-last order, so both formats give
    the same row.

    Args:
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, ...)`.

    Output shape:
        `(batch, number of elements of one example)`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((2, 3, 4)), Flatten()]).output_shape
        (None, 24)
    """

    def __init__(self, data_format: str | None = None, **common: Any):
        super().__init__(**common)
        self.data_format = checked_format("Flatten", data_format)

    def call(self, x: Value, context: Context) -> Value:
        if self.data_format == "channels_first" and x.rank > 2:
            x = OPS.transpose(x, (0, *range(2, x.rank), 1))
        return OPS.reshape(x, (x.shape[0], math.prod(x.shape[1:])))


class Reshape(Layer):
    """Changes the shape of each example and keeps its elements in order.

    Args:
        target_shape: Shape of one output example. One axis may be -1; its size is inferred.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, ...)`.

    Output shape:
        `(batch, *target_shape)`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((6,)), Reshape((2, -1))]).output_shape
        (None, 2, 3)
    """

    def __init__(self, target_shape: Any, **common: Any):
        super().__init__(**common)
        self.target_shape = whole_numbers("Reshape(target_shape=...)", target_shape)

    def call(self, x: Value, context: Context) -> Value:
        target, size = self.target_shape, math.prod(x.shape[1:])
        known_size = math.prod(n for n in target if n != -1)
        open_axes = target.count(-1)
        if open_axes > 1:
            raise shape_error("cannot reshape each example of shape", x.shape[1:],
                              fix=f"{target} leaves {open_axes} axes open, and only one can be -1")
        fits = (known_size == size if open_axes == 0 else
                known_size > 0 and size % known_size == 0)
        if not fits:
            raise shape_error(f"cannot reshape each example from {x.shape[1:]} to", target,
                              fix=f"its {size} elements must stay {size}")
        return OPS.reshape(x, (x.shape[0], *(size // known_size if n == -1 else n for n in target)))


class Permute(Layer):
    """Reorders the axes of each example.

    Args:
        dims: The new order of the axes, counted from 1 as in Keras: `(2, 1)` swaps the first two.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, ...)`, with as many axes after the batch as `dims` has entries.

    Output shape:
        The input shape in the new order; the batch stays first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((4, 5)), Permute((2, 1))]).output_shape
        (None, 5, 4)
    """

    def __init__(self, dims: Any, **common: Any):
        super().__init__(**common)
        self.dims = whole_numbers("Permute(dims=...)", dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ConfigError(f"Permute(dims={self.dims}) must contain each of 1 to "
                              f"{len(self.dims)} once; the batch is axis 0 and stays first")

    def call(self, x: Value, context: Context) -> Value:
        if len(self.dims) != x.rank - 1:
            raise shape_error(f"Permute({self.dims}) does not permute the axes of", x.shape[1:],
                              fix=f"use each of 1 to {x.rank - 1} once")
        return OPS.transpose(x, (0, *self.dims))


class RepeatVector(Layer):
    """Repeats each row `n` times.

    Args:
        n: Number of repetitions. A positive integer.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, features)`.

    Output shape:
        `(batch, n, features)`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((4,)), RepeatVector(3)]).output_shape
        (None, 3, 4)
    """

    def __init__(self, n: int, **common: Any):
        super().__init__(**common)
        self.n = positive("RepeatVector(n=...)", n)

    def call(self, x: Value, context: Context) -> Value:
        self.need_rank(x.shape[1:], 1, "(features)", "add a Flatten layer before it")
        batch, features = x.shape
        return OPS.broadcast_to(OPS.reshape(x, (batch, 1, features)), (batch, self.n, features))
