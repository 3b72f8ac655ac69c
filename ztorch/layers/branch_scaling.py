"""Scales of the branches of residual networks: learned, or random."""

from __future__ import annotations

from typing import Any

from ztorch.config import fraction, number, positive
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Constant, Shape
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer


class LayerScale(Layer):
    """Multiplies each feature by a learned scale that starts small, as in ConvNeXt's blocks.

    Args:
        init_values: Initial value of the scales.
        projection_dim: Number of features. A positive integer.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, ..., features)`.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((4,)), LayerScale(1e-6, 4)]).count_params()
        4
    """

    supports_masking = True
    needs_floats = True

    def __init__(self, init_values: float, projection_dim: int, **common: Any):
        super().__init__(**common)
        self.init_values = number("LayerScale(init_values=...)", init_values)
        self.projection_dim = positive("LayerScale(projection_dim=...)", projection_dim)

    def build(self, input_shape: Shape) -> None:
        self.gamma = self.add_weight("gamma", (self.projection_dim,), Constant(self.init_values))

    def call(self, x: Value, context: Context) -> Value:
        if x.shape[-1:] != self.gamma.shape:
            raise shape_error("inputs and projection_dim do not fit:", x.shape[1:],
                              self.gamma.shape, fix="the last axis must be projection_dim")
        return x * context.read(self.gamma)


class StochasticDepth(Layer):
    """During training, drops whole examples and scales up the others to preserve the mean.

    Placed before the sum of a residual block, it skips the block for some examples of each batch.

    Args:
        drop_path_rate: Fraction of the examples that become zero, from 0 to below 1.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> StochasticDepth(0.1).drop_path_rate
        0.1
    """

    supports_masking = True

    def __init__(self, drop_path_rate: float, **common: Any):
        super().__init__(**common)
        self.drop_path_rate = fraction("StochasticDepth(drop_path_rate=...)", drop_path_rate)

    def call(self, x: Value, context: Context) -> Value:
        if not context.training or self.drop_path_rate == 0:
            return x
        seed, step, stream = context.random(None)
        return OPS.dropout(x, rate=self.drop_path_rate, seed=seed, step=step, stream=stream,
                           noise_shape=(x.shape[0], *(1,) * (x.rank - 1)))
