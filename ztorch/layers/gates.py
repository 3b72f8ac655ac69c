"""One step of SimpleRNN, LSTM and GRU: weights and equations, for cells and for recurrent layers.

A kernel holds the columns of all gates side by side, as in Keras.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.config import fraction, positive, whole_seed
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Initializer, Shape
from ztorch.layers.activation import ActivationLike, activate, checked_activation
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer


class GatedStep(Layer, abstract=True):
    """Base class of gated steps: arguments, weights and dropout."""

    gates = 1
    state_count = 1  # the first state is the output
    output_state = 0
    needs_floats = True

    def __init__(self, units: int, activation: ActivationLike, use_bias: bool,
                 kernel_initializer: Any, recurrent_initializer: Any, bias_initializer: Any,
                 dropout: float, recurrent_dropout: float, seed: int | None, **common: Any):
        super().__init__(**common)
        kind = type(self).__name__
        self.units = positive(f"{kind}(units=...)", units)
        self.activation = checked_activation(activation)
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.recurrent_initializer = recurrent_initializer
        self.bias_initializer = bias_initializer
        self.dropout = fraction(f"{kind}(dropout=...)", dropout)
        self.recurrent_dropout = fraction(f"{kind}(recurrent_dropout=...)", recurrent_dropout)
        self.seed = None if seed is None else whole_seed(seed)

    def build_gates(self, features: int) -> None:
        """Creates the weights."""
        width = self.gates * self.units
        self.kernel = self.add_weight("kernel", (features, width), self.kernel_initializer)
        self.recurrent_kernel = self.add_weight("recurrent_kernel", (self.units, width),
                                                self.recurrent_initializer)
        if self.use_bias:
            self.bias = self.add_weight("bias", self.bias_shape(), self.first_bias())

    def bias_shape(self) -> Shape:
        return (self.gates * self.units,)

    def first_bias(self) -> Any:
        """The initializer of the bias."""
        return self.bias_initializer

    def zeros(self, x: Value) -> list[Value]:
        """The states before the first step."""
        return [OPS.full((x.shape[0], self.units), 0.0, x.dtype)] * self.state_count

    def need_features(self, x: Value, rank: int) -> None:
        """Raises a ShapeError if the layer was built for other inputs."""
        if x.rank != rank or x.shape[-1:] != self.kernel.shape[:1]:
            raise shape_error("inputs do not fit the kernel:", x.shape[1:], self.kernel.shape,
                              fix=f"the layer was built for {self.kernel.shape[0]} features; "
                                  "create a new one for others")

    def step(self, x: Value, states: Any, context: Context) -> tuple[Value, list[Value]]:
        """The output and the next states, for the features of one step."""
        x = dropped(x, self.dropout, self.seed, context)
        h = dropped(states[0], self.recurrent_dropout, self.seed, context)
        projected = OPS.matmul(x, context.read(self.kernel))
        if self.use_bias:
            projected = projected + self.input_bias(context)
        new = self.next_states(projected, h, states, context)
        return new[0], list(new)

    def input_bias(self, context: Context) -> Value:
        """The bias of the projected input."""
        return context.read(self.bias)

    def next_states(self, x: Value, h: Value, states: Any, context: Context) -> tuple[Value, ...]:
        """The next states, from the projected input, the last output (after dropout) and all
        states."""
        raise NotImplementedError

    def parts(self, x: Value) -> list[Value]:
        """The columns of each gate."""
        return [x[:, k:k + self.units] for k in range(0, x.shape[1], self.units)]


def dropped(x: Value, rate: float, own_seed: int | None, context: Context) -> Value:
    """x during training, without the elements that this batch drops at every step."""
    if not context.training or not rate:
        return x
    seed, step, stream = context.random(own_seed)
    ones = OPS.full(x.shape, 1.0, x.dtype)
    return x * OPS.dropout(ones, rate=rate, seed=seed, step=step, stream=stream)


class SimpleStep(GatedStep, abstract=True):
    """`h = activation(x @ kernel + bias + h @ recurrent_kernel)`."""

    def next_states(self, x: Value, h: Value, states: Any, context: Context) -> tuple[Value, ...]:
        y = x + OPS.matmul(h, context.read(self.recurrent_kernel))
        return (activate(self.activation, y, context),)


class ForgetGateOpen(Initializer, abstract=True):  # unnamed: layers create it
    """The bias of an LSTM, with the forget gates open at first."""

    def __init__(self, others: Initializer):
        self.others = others
        self.seed = others.seed

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        units = shape[0] // 4
        bias = self.others.fill(shape, random)
        bias[units:2 * units] = 1.0
        return bias


class LSTMStep(GatedStep, abstract=True):
    """Kernels hold the input, forget, cell and output gates, in this order."""

    gates, state_count = 4, 2
    recurrent_activation: Any
    unit_forget_bias: bool

    def first_bias(self) -> Any:
        others = Initializer.get(self.bias_initializer)
        return ForgetGateOpen(others) if self.unit_forget_bias else others

    def next_states(self, x: Value, h: Value, states: Any, context: Context) -> tuple[Value, ...]:
        z = x + OPS.matmul(h, context.read(self.recurrent_kernel))
        into, forget, cell, out = self.parts(z)
        into, forget, out = (activate(self.recurrent_activation, gate, context)
                             for gate in (into, forget, out))
        c = forget * states[1] + into * activate(self.activation, cell, context)
        return out * activate(self.activation, c, context), c


class GRUStep(GatedStep, abstract=True):
    """Kernels hold the update, reset and candidate gates, in this order."""

    gates = 3
    recurrent_activation: Any
    reset_after: bool

    def bias_shape(self) -> Shape:
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def input_bias(self, context: Context) -> Value:
        bias = context.read(self.bias)
        return bias[0] if self.reset_after else bias

    def next_states(self, x: Value, h: Value, states: Any, context: Context) -> tuple[Value, ...]:
        recurrent = context.read(self.recurrent_kernel)
        x_update, x_reset, x_new = self.parts(x)
        if self.reset_after:
            inner = OPS.matmul(h, recurrent)
            if self.use_bias:
                inner = inner + context.read(self.bias)[1]
            h_update, h_reset, h_new = self.parts(inner)
            reset = activate(self.recurrent_activation, x_reset + h_reset, context)
            h_new = reset * h_new
        else:
            h_update, h_reset = self.parts(OPS.matmul(h, recurrent[:, :2 * self.units]))
            reset = activate(self.recurrent_activation, x_reset + h_reset, context)
            h_new = OPS.matmul(reset * h, recurrent[:, 2 * self.units:])
        update = activate(self.recurrent_activation, x_update + h_update, context)
        new = activate(self.activation, x_new + h_new, context)
        return (update * states[0] + (1.0 - update) * new,)
