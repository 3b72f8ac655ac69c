"""Cells with Keras' names: one step of SimpleRNN, LSTM or GRU, for `RNN` to repeat."""

from __future__ import annotations

from typing import Any

from ztorch.dtypes import f32
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.activation import ActivationLike, checked_activation
from ztorch.layers.context import Context
from ztorch.layers.gates import GatedStep, GRUStep, LSTMStep, SimpleStep
from ztorch.layers.symbol import leaves


class GatedCell(GatedStep, abstract=True):
    """One step of a gated layer, called on features `(batch, features)` and a list of states."""

    @property
    def state_size(self) -> Any:
        """The size of each state."""
        return [self.units] * self.state_count if self.state_count > 1 else self.units

    @property
    def output_size(self) -> int:
        """The size of the output."""
        return self.units

    def get_initial_state(self, batch_size: int) -> list[Value]:
        """Zero states for a batch, for custom cells that contain this one."""
        return [OPS.full((batch_size, self.units), 0.0, f32) for _ in range(self.state_count)]

    def build(self, input_shape: Shape) -> None:
        self.need_rank(input_shape, 1, "(features,)", "RNN(cell) gives a cell one step at a time")
        self.build_gates(input_shape[0])

    def call(self, x: Value, context: Context,  # type: ignore[override]
             states: Any) -> tuple[Value, list[Value]]:
        self.need_features(x, 2)
        states = leaves(states)
        if len(states) != self.state_count:
            raise shape_error(f"takes {self.state_count} states of ({self.units},), not "
                              f"{len(states)}", fix="pass the list that the last step returned")
        for state in states:
            if state.shape[1:] != (self.units,):
                raise shape_error("state and layer do not fit:", state.shape[1:], (self.units,),
                                  fix="pass the list that the last step returned")
        return self.step(x, states, context)


class SimpleRNNCell(SimpleStep, GatedCell):
    """One step of a `SimpleRNN`.

    Args:
        units: Size of the output and of the state. A positive integer.
        activation: Activation of the output: a name such as `"relu"`, a function of a tensor, or
            `None` for no activation. Default: `"tanh"`.
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
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, features)`, and a list of the states `(batch, units)`.

    Output shape:
        `(batch, units)`, and a list of the next states.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import RNN, Input
        >>> [w.path for w in Sequential([Input((5, 3)), RNN(SimpleRNNCell(4))]).weights][:1]
        ['rnn/simple_rnn_cell/kernel']
    """

    def __init__(self, units: int, activation: ActivationLike = "tanh", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform",
                 recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 dropout: float = 0.0, recurrent_dropout: float = 0.0, seed: int | None = None,
                 **common: Any):
        super().__init__(units, activation, use_bias, kernel_initializer, recurrent_initializer,
                         bias_initializer, dropout, recurrent_dropout, seed, **common)


class LSTMCell(LSTMStep, GatedCell):
    """One step of an `LSTM`.

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
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, features)`, and a list of the states `(batch, units)`.

    Output shape:
        `(batch, units)`, and a list of the next states.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import RNN, Input
        >>> Sequential([Input((5, 3)), RNN(LSTMCell(4), return_sequences=True)]).output_shape
        (None, 5, 4)
    """

    def __init__(self, units: int, activation: ActivationLike = "tanh",
                 recurrent_activation: ActivationLike = "sigmoid", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform",
                 recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 unit_forget_bias: bool = True, dropout: float = 0.0,
                 recurrent_dropout: float = 0.0, seed: int | None = None, **common: Any):
        super().__init__(units, activation, use_bias, kernel_initializer, recurrent_initializer,
                         bias_initializer, dropout, recurrent_dropout, seed, **common)
        self.recurrent_activation = checked_activation(recurrent_activation)
        self.unit_forget_bias = unit_forget_bias


class GRUCell(GRUStep, GatedCell):
    """One step of a `GRU`.

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
        reset_after: Whether the reset gate multiplies the product of the last output and the
            recurrent kernel, as in cuDNN and PyTorch, rather than the last output. The bias then
            has a second row, for that product. Default: `True`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, features)`, and a list of the states `(batch, units)`.

    Output shape:
        `(batch, units)`, and a list of the next states.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import RNN, Input
        >>> Sequential([Input((5, 3)), RNN(GRUCell(4))]).count_params()
        108
    """

    def __init__(self, units: int, activation: ActivationLike = "tanh",
                 recurrent_activation: ActivationLike = "sigmoid", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform",
                 recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 dropout: float = 0.0, recurrent_dropout: float = 0.0, reset_after: bool = True,
                 seed: int | None = None, **common: Any):
        super().__init__(units, activation, use_bias, kernel_initializer, recurrent_initializer,
                         bias_initializer, dropout, recurrent_dropout, seed, **common)
        self.recurrent_activation = checked_activation(recurrent_activation)
        self.reset_after = reset_after
