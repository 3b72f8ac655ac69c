"""A model whose products are of 16-bit floats, both ways."""

from __future__ import annotations

from typing import Any

from ztorch import Sequential, ops
from ztorch import layers as L
from ztorch.graph.value import Value


class Narrow(L.Layer):
    """A Dense whose operands are rounded to 16 bits, and whose gradients' are."""

    def __init__(self, units: int, of: str, **common: Any):
        super().__init__(**common)
        self.units, self.of = units, of

    def build(self, input_shape: tuple[int, ...]) -> None:
        self.kernel = self.add_weight("kernel", (input_shape[-1], self.units), "glorot_uniform")

    def call(self, x: Value, context: Any) -> Value:
        y = ops.matmul(ops.cast(x, self.of), ops.cast(context.read(self.kernel), self.of))
        return ops.cast(y, x.dtype)


def model(of: str) -> Sequential:
    return Sequential([L.Input((33,)), Narrow(70, of, name="first"), L.Activation("tanh"),
                       Narrow(40, of, name="second"), L.Activation("tanh"), Narrow(18, of, name="last")],
                      name=f"narrow_{of}", seed=1)
