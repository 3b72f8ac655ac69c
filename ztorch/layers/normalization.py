"""Layers that bring their inputs to mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer


class LayerNormalization(Layer):
    """Mean 0 and variance 1 along axes of each example, then a learned scale and shift.

    Axes count as in Keras, with the batch as axis 0.

    >>> from ztorch import Sequential
    >>> from ztorch.layers import Input
    >>> [w.path for w in Sequential([Input((4,)), LayerNormalization()]).weights]
    ['layer_normalization/gamma', 'layer_normalization/beta']
    """

    def __init__(self, axis: int | tuple[int, ...] = -1, epsilon: float = 1e-3,
                 center: bool = True, scale: bool = True, beta_initializer: Any = "zeros",
                 gamma_initializer: Any = "ones", **common: Any):
        super().__init__(**common)
        if not epsilon > 0:
            raise ConfigError(f"LayerNormalization(epsilon={epsilon!r}) must be above 0")
        self.axis = tuple(axis) if isinstance(axis, (list, tuple)) else axis
        self.epsilon = epsilon
        self.center, self.scale = center, scale
        self.beta_initializer, self.gamma_initializer = beta_initializer, gamma_initializer

    def axes(self, rank: int) -> tuple[int, ...]:
        """The axes as sorted positive numbers, for tensors with a batch."""
        given = (self.axis,) if isinstance(self.axis, int) else self.axis
        for a in given:
            if not -rank < a < rank or a == 0:
                raise shape_error(f"axis {a} is out of range for inputs of {rank - 1} axes besides "
                                  "the batch", fix=f"use 1 to {rank - 1}, or -1 to {1 - rank}")
        return tuple(sorted({a % rank for a in given}))

    def build(self, input_shape: Shape) -> None:
        shape = tuple(input_shape[a - 1] for a in self.axes(len(input_shape) + 1))
        if self.scale:
            self.gamma = self.add_weight("gamma", shape, self.gamma_initializer)
        if self.center:
            self.beta = self.add_weight("beta", shape, self.beta_initializer)

    def call(self, x: Value, context: Context) -> Value:
        axes = self.axes(x.rank)
        y = OPS.standardize(x, axis=axes, epsilon=self.epsilon)
        spread = tuple(n if k in axes else 1 for k, n in enumerate(x.shape))
        if self.scale:
            y = y * OPS.reshape(context.read(self.gamma), spread)
        if self.center:
            y = y + OPS.reshape(context.read(self.beta), spread)
        return y
