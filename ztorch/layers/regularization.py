"""Layers that make training harder so that the model generalises."""

from __future__ import annotations

from typing import Any

from ztorch.config import fraction
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer


class Dropout(Layer):
    """While training, zeroes elements at this rate and scales the others up to keep the mean.

    The numbers depend on the program's seed, the step and the layer's place in the model, so a
    run can be repeated to the bit.

    >>> Dropout(0.5).rate
    0.5
    """

    def __init__(self, rate: float, **common: Any):
        super().__init__(**common)
        self.rate = fraction("Dropout(rate=...)", rate)

    def call(self, x: Value, context: Context) -> Value:
        if not context.training or self.rate == 0:
            return x
        seed, step, stream = context.random()
        return OPS.dropout(x, rate=self.rate, seed=seed, step=step, stream=stream)
