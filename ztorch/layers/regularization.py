"""Layers that make training harder so that the model generalises."""

from __future__ import annotations

from typing import Any

from ztorch.config import fraction, whole_seed
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer


class Dropout(Layer):
    """While training, zeroes elements at this rate and scales the others up to keep the mean.

    The numbers depend on the program's seed, the step and the layer's place in the model (or its
    own seed), so a run can be repeated to the bit. Where noise_shape has a 1, a whole axis shares
    one decision; it counts the batch as axis 0, and None stands for the size of the input.

    >>> Dropout(0.5).rate
    0.5
    """

    def __init__(self, rate: float, noise_shape: Any = None, seed: int | None = None,
                 **common: Any):
        super().__init__(**common)
        self.rate = fraction("Dropout(rate=...)", rate)
        self.noise_shape = None if noise_shape is None else tuple(noise_shape)
        self.seed = None if seed is None else whole_seed(seed)

    def call(self, x: Value, context: Context) -> Value:
        if not context.training or self.rate == 0:
            return x
        seed, step, stream = context.random(self.seed)
        noise = self.noise_shape
        if noise is not None:
            if len(noise) != x.rank:
                raise shape_error("noise_shape and inputs differ in rank:", noise, x.shape,
                                  fix="give each axis, with None for the batch")
            noise = tuple(n if m is None else m for m, n in zip(noise, x.shape, strict=True))
        return OPS.dropout(x, rate=self.rate, seed=seed, step=step, stream=stream,
                           noise_shape=noise)
