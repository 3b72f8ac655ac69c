"""Dropout of whole channels of sequences, images and volumes."""

from __future__ import annotations

from typing import Any

from ztorch.config import fraction, whole_seed
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.spatial import checked_format


class BaseSpatialDropout(Layer, abstract=True):
    """Base class of layers that drop whole channels, at all positions together.
    """

    supports_masking = True
    axes = 0  # axes of each example
    inputs = ""

    def __init__(self, rate: float, seed: int | None = None, **common: Any):
        super().__init__(**common)
        self.rate = fraction(f"{type(self).__name__}(rate=...)", rate)
        self.seed = None if seed is None else whole_seed(seed)

    def noise(self, shape: Shape) -> Shape:
        """The shape of the dropout mask for inputs of this shape."""
        return (shape[0], *(1,) * (len(shape) - 2), shape[-1])

    def call(self, x: Value, context: Context) -> Value:
        self.need_rank(x.shape[1:], self.axes, self.inputs, "use Dropout, or a Reshape before it")
        if not context.training or self.rate == 0:
            return x
        seed, step, stream = context.random(self.seed)
        return OPS.dropout(x, rate=self.rate, seed=seed, step=step, stream=stream,
                           noise_shape=self.noise(x.shape))


class SpatialDropout1D(BaseSpatialDropout):
    """During training, drops whole channels of sequences.

    Args:
        rate: Fraction of the channels that become zero, from 0 to below 1.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`.

    Output shape:
        The same as the input shape.

    Examples:
        >>> SpatialDropout1D(0.2).noise((32, 10, 8))
        (32, 1, 8)
    """

    axes, inputs = 2, "(steps, channels)"


class SpatialDropout2D(BaseSpatialDropout):
    """During training, drops whole channels of images.

    Args:
        rate: Fraction of the channels that become zero, from 0 to below 1.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> SpatialDropout2D(0.2, data_format="channels_first").noise((32, 8, 28, 28))
        (32, 8, 1, 1)
    """

    axes, inputs = 3, "(rows, columns, channels)"

    def __init__(self, rate: float, data_format: str | None = None, seed: int | None = None,
                 **common: Any):
        super().__init__(rate, seed, **common)
        self.data_format = checked_format("SpatialDropout2D", data_format)

    def noise(self, shape: Shape) -> Shape:
        return super().noise(shape) if self.data_format == "channels_last" else (*shape[:2], 1, 1)


class SpatialDropout3D(BaseSpatialDropout):
    """During training, drops whole channels of volumes.

    Args:
        rate: Fraction of the channels that become zero, from 0 to below 1.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> SpatialDropout3D(0.2).noise((32, 4, 28, 28, 8))
        (32, 1, 1, 1, 8)
    """

    axes, inputs = 4, "(depth, rows, columns, channels)"

    def __init__(self, rate: float, data_format: str | None = None, seed: int | None = None,
                 **common: Any):
        super().__init__(rate, seed, **common)
        self.data_format = checked_format("SpatialDropout3D", data_format)

    def noise(self, shape: Shape) -> Shape:
        first = self.data_format == "channels_first"
        return (*shape[:2], 1, 1, 1) if first else super().noise(shape)
