"""Layers that turn ids into vectors, and encode positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.config import flag, number, positive
from ztorch.graph.op import OPS, constant, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.own_call import floats_hold_ids


class Embedding(Layer):
    """A learned vector for each id from 0 to `input_dim - 1`.

    Start the model with `Input((length,), dtype="int32")`; floats are truncated to integers, as in
    Keras. Ids out of range raise an error that names their row, before any step runs.

    Args:
        input_dim: Number of ids. A positive integer.
        output_dim: Size of a vector. A positive integer.
        embeddings_initializer: Initializer of the vectors: a name or an `Initializer`. Default:
            `"uniform"`.
        mask_zero: Whether id 0 is padding: later layers get a mask that is false there.
            Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, ...)`, integers, or floats with integral values.

    Output shape:
        `(batch, ..., output_dim)`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((7,), dtype="int32"), Embedding(1000, 16)]).output_shape
        (None, 7, 16)
    """

    def __init__(self, input_dim: int, output_dim: int, embeddings_initializer: Any = "uniform",
                 mask_zero: bool = False, **common: Any):
        super().__init__(**common)
        self.input_dim = positive("Embedding(input_dim=...)", input_dim)
        self.output_dim = positive("Embedding(output_dim=...)", output_dim)
        self.mask_zero = flag("Embedding(mask_zero=...)", mask_zero)
        self.embeddings_initializer = embeddings_initializer

    def build(self, input_shape: Shape) -> None:
        self.embeddings = self.add_weight("embeddings", (self.input_dim, self.output_dim),
                                          self.embeddings_initializer)

    def call(self, x: Value, context: Context) -> Value:
        context.need_range(x, 0, self.input_dim - 1)
        if x.dtype.is_float and floats_hold_ids():
            x = OPS.cast(x, "int32")
        if not x.dtype.is_int:
            raise shape_error(f"Embedding takes integers, not {x.dtype}",
                              fix=f"start the model with Input({x.shape[1:]}, dtype='int32')")
        return OPS.take(context.read(self.embeddings), x, 0)

    def compute_mask(self, x: Value, mask: Value | None = None) -> Value | None:
        return OPS.not_equal(x, 0) if self.mask_zero else None


class Masking(Layer):
    """Masks steps whose features all equal one value, such as the padding of short sequences.

    Recurrent layers, attention, `GlobalAveragePooling1D`, `BatchNormalization`, losses and metrics
    skip masked steps. Layers that process each step separately pass the mask on; layers that mix
    steps, such as `Flatten` and `Conv1D`, drop it.

    Args:
        mask_value: The value of masked features. They are set to zero. Default: `0.0`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, features)`.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import LSTM, Input
        >>> Sequential([Input((7, 3)), Masking(-1.0), LSTM(4)]).output_shape
        (None, 4)
    """

    def __init__(self, mask_value: float = 0.0, **common: Any):
        super().__init__(**common)
        self.mask_value = number("Masking(mask_value=...)", mask_value)

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) < 2:
            raise shape_error("Masking needs inputs of at least 2 axes (steps, features) besides "
                              "the batch, not", input_shape,
                              fix="add a feature axis, for example with Reshape((steps, 1))")

    def call(self, x: Value, context: Context) -> Value:
        counts = OPS.any(OPS.not_equal(x, self.mask_value), axis=-1, keepdims=True)
        return OPS.where(counts, x, OPS.zeros_like(x))

    def compute_mask(self, x: Value, mask: Value | None = None) -> Value:
        return OPS.any(OPS.not_equal(x, self.mask_value), axis=-1)


class PositionEmbedding(Layer):
    """Adds a learned vector for each position.

    Args:
        sequence_length: Number of positions with a vector. `None` means the length of the inputs.
            Default: `None`.
        initializer: Initializer of the vectors: a name or an `Initializer`. Default:
            `"glorot_uniform"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, length, features)`.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> model = Sequential([Input((7, 16)), PositionEmbedding(sequence_length=20)])
        >>> [(w.path, w.shape) for w in model.weights]
        [('position_embedding/position_embeddings', (20, 16))]
    """

    supports_masking = True

    def __init__(self, sequence_length: int | None = None, initializer: Any = "glorot_uniform",
                 **common: Any):
        super().__init__(**common)
        self.sequence_length = (None if sequence_length is None else
                                positive("PositionEmbedding(sequence_length=...)", sequence_length))
        self.initializer = initializer

    def build(self, input_shape: Shape) -> None:
        need_sequence(self, input_shape)
        length = self.sequence_length or input_shape[0]
        if input_shape[0] > length:
            raise shape_error(f"sequence_length={length} is too short for inputs of", input_shape,
                              fix=f"it must be {input_shape[0]} at least")
        self.position_embeddings = self.add_weight(
            "position_embeddings", (length, input_shape[1]), self.initializer)

    def call(self, x: Value, context: Context) -> Value:
        need_sequence(self, x.shape[1:])
        table = context.read(self.position_embeddings)
        if context.decoding is not None:
            return x + context.decoding.row(table)
        return x + table[:x.shape[1]]


class SinusoidalPosition(Layer):
    """Adds sines (at even features) and cosines (at odd ones) of the position.

    Wavelengths increase from `2 * pi` towards `max_wavelength * 2 * pi`.

    Args:
        max_wavelength: Limit of the wavelengths, in units of `2 * pi` positions. Default:
            `10000.0`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, length, features)`.

    Output shape:
        The same as the input shape.

    Examples:
        >>> SinusoidalPosition().table(2, 4).round(4)
        array([[0.    , 1.    , 0.    , 1.    ],
               [0.8415, 0.5403, 0.01  , 1.    ]])
    """

    supports_masking = True

    def __init__(self, max_wavelength: float = 10000.0, **common: Any):
        super().__init__(**common)
        self.max_wavelength = number("SinusoidalPosition(max_wavelength=...)", max_wavelength,
                                     above=0)

    def table(self, length: int, features: int) -> np.ndarray:
        """The array of shape (length, features) that is added."""
        feature = np.arange(features)
        turns = (np.arange(length)[:, None]
                 * self.max_wavelength ** -(feature // 2 * 2 / features))
        return np.where(feature % 2, np.cos(turns), np.sin(turns))

    def call(self, x: Value, context: Context) -> Value:
        need_sequence(self, x.shape[1:])
        if context.decoding is not None:
            table = self.table(context.decoding.length, x.shape[2])
            return x + context.decoding.row(constant(table, x.dtype))
        return x + constant(self.table(*x.shape[1:]), x.dtype)


class RotaryEmbedding(Layer):
    """Rotates pairs of features `(i, i + features / 2)` by angles proportional to the position.

    It is meant for queries and keys: see `rotary` of `MultiHeadAttention`.

    Args:
        max_wavelength: Limit of the wavelengths, in units of `2 * pi` positions. Default:
            `10000.0`.
        sequence_axis: Axis of the positions, where axis 0 is the batch. Default: `1`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, ..., features)`, with an even number of features and one axis of positions.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((7, 2, 16)), RotaryEmbedding()]).output_shape
        (None, 7, 2, 16)
    """

    def __init__(self, max_wavelength: float = 10000.0, sequence_axis: int = 1, **common: Any):
        super().__init__(**common)
        self.max_wavelength = number("RotaryEmbedding(max_wavelength=...)", max_wavelength, above=0)
        self.sequence_axis = positive("RotaryEmbedding(sequence_axis=...)", sequence_axis)

    def call(self, x: Value, context: Context) -> Value:
        if self.sequence_axis > x.rank - 2:
            raise shape_error(f"sequence_axis={self.sequence_axis} does not fit inputs of",
                              x.shape[1:], fix="it counts the batch as axis 0, and features are "
                                               "the last axis")
        return OPS.rotary(x, axis=self.sequence_axis, max_wavelength=self.max_wavelength)


def need_sequence(layer: Layer, shape: Shape) -> None:
    """Raises a ShapeError unless inputs have shape (length, features), without the batch."""
    layer.need_rank(shape, 2, "(length, features)",
                    "add an Embedding for ids, or a Reshape((length, features)), before it")
