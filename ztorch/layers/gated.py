"""Recurrent layers with Keras' names: SimpleRNN, LSTM and GRU."""

from __future__ import annotations

from typing import Any

from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.activation import ActivationLike, checked_activation
from ztorch.layers.gates import GatedStep, GRUStep, LSTMStep, SimpleStep
from ztorch.layers.recurrent import RecurrentLayer


class GatedLayer(GatedStep, RecurrentLayer, abstract=True):
    """A gated step, applied to each element of a sequence `(steps, features)`."""

    def build(self, input_shape: Shape) -> None:
        self.need_rank(input_shape, 2, "(steps, features)",
                       "add a time axis by a Reshape before it, or by "
                       "return_sequences=True of a recurrent layer before it")
        self.build_gates(input_shape[1])

    def need_fit(self, x: Value) -> None:
        self.need_features(x, 3)

    def first_states(self, x: Value) -> list[Value]:
        return self.zeros(x)


class SimpleRNN(SimpleStep, GatedLayer):
    """A plain recurrent layer: `h = activation(x @ kernel + bias + h @ recurrent_kernel)`.

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
        return_sequences: Whether to return the output of every step rather than the last one.
            Default: `False`.
        return_state: Whether to return a list of the output and the states after the last step.
            Default: `False`.
        go_backwards: Whether to read the sequence from its end. Outputs come in the order in which
            steps are read. Default: `False`.
        stateful: Whether each batch starts with the final states of the last one, row by row.
            `reset_states()` sets them to zero. Default: `False`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        zero_output_for_mask: Whether the output of a masked step is zero rather than the output of
            the step before. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, features)`. The call also takes `initial_state=`, a list of states `(batch,
        units)`, and `mask=`, `(batch, steps)`.

    Output shape:
        `(batch, units)`, or `(batch, steps, units)` with `return_sequences`. With `return_state`, a
        list of it and the states.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((5, 3)), SimpleRNN(4, return_sequences=True)]).output_shape
        (None, 5, 4)
    """

    def __init__(self, units: int, activation: ActivationLike = "tanh", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform",
                 recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 dropout: float = 0.0, recurrent_dropout: float = 0.0,
                 return_sequences: bool = False, return_state: bool = False,
                 go_backwards: bool = False, stateful: bool = False, seed: int | None = None,
                 zero_output_for_mask: bool = False, **common: Any):
        super().__init__(units, activation, use_bias, kernel_initializer, recurrent_initializer,
                         bias_initializer, dropout, recurrent_dropout, seed, **common)
        self.set_loop(return_sequences, return_state, go_backwards, stateful, zero_output_for_mask)


class LSTM(LSTMStep, GatedLayer):
    """A long short-term memory layer. Kernels hold the input, forget, cell and output gates, in
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
        return_state: Whether to return a list of the output and the states after the last step.
            Default: `False`.
        go_backwards: Whether to read the sequence from its end. Outputs come in the order in which
            steps are read. Default: `False`.
        stateful: Whether each batch starts with the final states of the last one, row by row.
            `reset_states()` sets them to zero. Default: `False`.
        zero_output_for_mask: Whether the output of a masked step is zero rather than the output of
            the step before. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, features)`. The call also takes `initial_state=`, a list of states `(batch,
        units)`, and `mask=`, `(batch, steps)`.

    Output shape:
        `(batch, units)`, or `(batch, steps, units)` with `return_sequences`. With `return_state`, a
        list of it and the states.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> [w.shape for w in Sequential([Input((5, 3)), LSTM(4)]).weights]
        [(3, 16), (4, 16), (16,)]
        >>> y, h, c = LSTM(4, return_state=True)(Input((5, 3)))
        >>> LSTM(4)(Input((7, 2)), initial_state=[h, c]).shape
        (None, 4)
    """

    def __init__(self, units: int, activation: ActivationLike = "tanh",
                 recurrent_activation: ActivationLike = "sigmoid", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform",
                 recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 unit_forget_bias: bool = True, dropout: float = 0.0,
                 recurrent_dropout: float = 0.0, seed: int | None = None,
                 return_sequences: bool = False, return_state: bool = False,
                 go_backwards: bool = False, stateful: bool = False,
                 zero_output_for_mask: bool = False, **common: Any):
        super().__init__(units, activation, use_bias, kernel_initializer, recurrent_initializer,
                         bias_initializer, dropout, recurrent_dropout, seed, **common)
        self.set_loop(return_sequences, return_state, go_backwards, stateful, zero_output_for_mask)
        self.recurrent_activation = checked_activation(recurrent_activation)
        self.unit_forget_bias = unit_forget_bias


class GRU(GRUStep, GatedLayer):
    """A gated recurrent unit. Kernels hold the update, reset and candidate gates, in this order.

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
        return_state: Whether to return a list of the output and the states after the last step.
            Default: `False`.
        go_backwards: Whether to read the sequence from its end. Outputs come in the order in which
            steps are read. Default: `False`.
        stateful: Whether each batch starts with the final states of the last one, row by row.
            `reset_states()` sets them to zero. Default: `False`.
        reset_after: Whether the reset gate multiplies the product of the last output and the
            recurrent kernel, as in cuDNN and PyTorch, rather than the last output. The bias then
            has a second row, for that product. Default: `True`.
        zero_output_for_mask: Whether the output of a masked step is zero rather than the output of
            the step before. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, features)`. The call also takes `initial_state=`, a list of states `(batch,
        units)`, and `mask=`, `(batch, steps)`.

    Output shape:
        `(batch, units)`, or `(batch, steps, units)` with `return_sequences`. With `return_state`, a
        list of it and the states.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> [w.shape for w in Sequential([Input((5, 3)), GRU(4)]).weights]
        [(3, 12), (4, 12), (2, 12)]
    """

    def __init__(self, units: int, activation: ActivationLike = "tanh",
                 recurrent_activation: ActivationLike = "sigmoid", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform",
                 recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 dropout: float = 0.0, recurrent_dropout: float = 0.0, seed: int | None = None,
                 return_sequences: bool = False, return_state: bool = False,
                 go_backwards: bool = False, stateful: bool = False, reset_after: bool = True,
                 zero_output_for_mask: bool = False, **common: Any):
        super().__init__(units, activation, use_bias, kernel_initializer, recurrent_initializer,
                         bias_initializer, dropout, recurrent_dropout, seed, **common)
        self.set_loop(return_sequences, return_state, go_backwards, stateful, zero_output_for_mask)
        self.recurrent_activation = checked_activation(recurrent_activation)
        self.reset_after = reset_after
