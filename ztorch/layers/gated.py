"""Recurrent layers with gates: LSTM and GRU."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.initializers import Initializer, Shape
from ztorch.layers.activation import ActivationLike, activate, checked_activation
from ztorch.layers.context import Context
from ztorch.layers.recurrent import RecurrentLayer


class _ForgetGateOpen(Initializer):
    """The bias of an LSTM whose forget gates begin open."""

    def __init__(self, others: Initializer):
        self.others = others
        self.seed = others.seed

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        units = shape[0] // 4
        bias = self.others.fill(shape, random)
        bias[units:2 * units] = 1.0
        return bias


class LSTM(RecurrentLayer):
    """A long short-term memory layer. Kernels hold the gates input, forget, cell and output, in
    this order.

    Args:
        units: Size of the output and of the state. A positive integer.
        activation: Activation of the cell and of the output. Default: `"tanh"`.
        recurrent_activation: Activation of the gates. Default: `"sigmoid"`.
        use_bias: Whether to add a bias. Default: `True`.
        kernel_initializer: Initializer of the kernel that multiplies the inputs: a name or an
            `Initializer`. Default: `"glorot_uniform"`.
        recurrent_initializer: Initializer of the kernel that multiplies the last output: a name or
            an `Initializer`. Default: `"orthogonal"`.
        bias_initializer: Initializer of the bias: a name or an `Initializer`. Default: `"zeros"`.
        unit_forget_bias: Whether the bias of the forget gate starts at 1. Default: `True`.
        dropout: Rate at which inputs are dropped while training, from 0 to below 1. All steps share
            one mask. Default: `0.0`.
        recurrent_dropout: Rate at which the last output is dropped while training. All steps share
            one mask. Default: `0.0`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        return_sequences: Whether to return the output of every step rather than the last one.
            Default: `False`.
        go_backwards: Whether to read the sequence from its end. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, features)`.

    Output shape:
        `(batch, units)`, or `(batch, steps, units)` with `return_sequences`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> [w.shape for w in Sequential([Input((5, 3)), LSTM(4)]).weights]
        [(3, 16), (4, 16), (16,)]
    """

    gates, states = 4, 2

    def __init__(self, units: int, activation: ActivationLike = "tanh",
                 recurrent_activation: ActivationLike = "sigmoid", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform",
                 recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 unit_forget_bias: bool = True, dropout: float = 0.0,
                 recurrent_dropout: float = 0.0, seed: int | None = None,
                 return_sequences: bool = False, go_backwards: bool = False, **common: Any):
        super().__init__(units, activation, use_bias, kernel_initializer, recurrent_initializer,
                         bias_initializer, dropout, recurrent_dropout, return_sequences,
                         go_backwards, seed, **common)
        self.recurrent_activation = checked_activation(recurrent_activation)
        self.unit_forget_bias = unit_forget_bias

    def first_bias(self) -> Any:
        others = Initializer.get(self.bias_initializer)
        return _ForgetGateOpen(others) if self.unit_forget_bias else others

    def step(self, x: Value, h: Value, state: tuple[Value, ...],
             context: Context) -> tuple[Value, ...]:
        z = x + OPS.matmul(h, context.read(self.recurrent_kernel))
        into, forget, cell, out = self.parts(z)
        into, forget, out = (activate(self.recurrent_activation, gate, context)
                             for gate in (into, forget, out))
        c = forget * state[1] + into * activate(self.activation, cell, context)
        return out * activate(self.activation, c, context), c


class GRU(RecurrentLayer):
    """A gated recurrent unit. Kernels hold the gates update, reset and candidate, in this order.

    Args:
        units: Size of the output and of the state. A positive integer.
        activation: Activation of the candidate. Default: `"tanh"`.
        recurrent_activation: Activation of the gates. Default: `"sigmoid"`.
        use_bias: Whether to add a bias. Default: `True`.
        kernel_initializer: Initializer of the kernel that multiplies the inputs: a name or an
            `Initializer`. Default: `"glorot_uniform"`.
        recurrent_initializer: Initializer of the kernel that multiplies the last output: a name or
            an `Initializer`. Default: `"orthogonal"`.
        bias_initializer: Initializer of the bias: a name or an `Initializer`. Default: `"zeros"`.
        dropout: Rate at which inputs are dropped while training, from 0 to below 1. All steps share
            one mask. Default: `0.0`.
        recurrent_dropout: Rate at which the last output is dropped while training. All steps share
            one mask. Default: `0.0`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        return_sequences: Whether to return the output of every step rather than the last one.
            Default: `False`.
        go_backwards: Whether to read the sequence from its end. Default: `False`.
        reset_after: Whether the reset gate multiplies the product of the last output and the
            recurrent kernel, as in cuDNN and PyTorch, rather than the last output. The bias then
            has a second row, for that product. Default: `True`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, features)`.

    Output shape:
        `(batch, units)`, or `(batch, steps, units)` with `return_sequences`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> [w.shape for w in Sequential([Input((5, 3)), GRU(4)]).weights]
        [(3, 12), (4, 12), (2, 12)]
    """

    gates = 3

    def __init__(self, units: int, activation: ActivationLike = "tanh",
                 recurrent_activation: ActivationLike = "sigmoid", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform",
                 recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 dropout: float = 0.0, recurrent_dropout: float = 0.0, seed: int | None = None,
                 return_sequences: bool = False, go_backwards: bool = False,
                 reset_after: bool = True, **common: Any):
        super().__init__(units, activation, use_bias, kernel_initializer, recurrent_initializer,
                         bias_initializer, dropout, recurrent_dropout, return_sequences,
                         go_backwards, seed, **common)
        self.recurrent_activation = checked_activation(recurrent_activation)
        self.reset_after = reset_after

    def bias_shape(self) -> Shape:
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def input_bias(self, context: Context) -> Value:
        bias = context.read(self.bias)
        return bias[0] if self.reset_after else bias

    def step(self, x: Value, h: Value, state: tuple[Value, ...],
             context: Context) -> tuple[Value, ...]:
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
        return (update * state[0] + (1.0 - update) * new,)
