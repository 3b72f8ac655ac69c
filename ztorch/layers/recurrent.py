"""Recurrent layers: a sequence (steps, features), one step after another.

The inputs of all steps are projected by one matrix product before the loop, and the loop is
unrolled: the length of a sequence is part of its shape, so the graph holds every step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.config import fraction, positive, whole_seed
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Initializer, Shape
from ztorch.layers.activation import ActivationLike, activate, checked_activation
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer


class RecurrentLayer(Layer, abstract=True):
    """Base of the recurrent layers: weights, the projection of the inputs and the loop over steps.

    A kernel holds the columns of all gates side by side, as in Keras.
    """

    gates = 1
    states = 1  # what a step hands on; the first is its output
    needs_floats = True

    def __init__(self, units: int, activation: ActivationLike = "tanh", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform",
                 recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 dropout: float = 0.0, recurrent_dropout: float = 0.0,
                 return_sequences: bool = False, go_backwards: bool = False,
                 seed: int | None = None, **common: Any):
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
        self.return_sequences = return_sequences
        self.go_backwards = go_backwards

    def build(self, input_shape: Shape) -> None:
        self.need_rank(input_shape, 2, "(steps, features)",
                       "give each example a row for every step: by a Reshape before it, or by "
                       "return_sequences=True of a recurrent layer before it")
        width = self.gates * self.units
        self.kernel = self.add_weight("kernel", (input_shape[1], width), self.kernel_initializer)
        self.recurrent_kernel = self.add_weight("recurrent_kernel", (self.units, width),
                                                self.recurrent_initializer)
        if self.use_bias:
            self.bias = self.add_weight("bias", self.bias_shape(), self.first_bias())

    def bias_shape(self) -> Shape:
        return (self.gates * self.units,)

    def first_bias(self) -> Any:
        """The initializer of the bias."""
        return self.bias_initializer

    def input_bias(self, context: Context) -> Value:
        """What is added to the projected inputs."""
        return context.read(self.bias)

    def call(self, x: Value, context: Context) -> Value:
        if x.shape[2:] != self.kernel.shape[:1]:
            raise shape_error("inputs and kernel do not fit:", x.shape[1:], self.kernel.shape,
                              fix=f"the layer was built for (steps, {self.kernel.shape[0]}); use a "
                                  "new one for other inputs")
        batch, steps, features = x.shape
        x = self._dropped(x, self.dropout, (batch, 1, features), context)
        projected = OPS.matmul(x, context.read(self.kernel))
        if self.use_bias:
            projected = projected + self.input_bias(context)
        zeros = OPS.full((batch, self.units), 0.0, x.dtype)
        ones = OPS.ones_like(zeros)
        mask = self._dropped(ones, self.recurrent_dropout, zeros.shape, context)
        state: tuple[Value, ...] = (zeros,) * self.states
        outputs = []
        for t in reversed(range(steps)) if self.go_backwards else range(steps):
            seen = state[0] if mask is ones else state[0] * mask
            state = self.step(projected[:, t], seen, state, context)
            outputs.append(state[0])
        if not self.return_sequences:
            return outputs[-1]
        return OPS.concat(*(OPS.expand_dims(h, 1) for h in outputs), axis=1)

    def step(self, x: Value, h: Value, state: tuple[Value, ...],
             context: Context) -> tuple[Value, ...]:
        """The next state, from projected inputs, the last output (after dropout) and all states."""
        raise NotImplementedError

    def _dropped(self, x: Value, rate: float, noise: Shape, context: Context) -> Value:
        if not context.training or not rate:
            return x
        seed, step, stream = context.random(self.seed)
        return OPS.dropout(x, rate=rate, seed=seed, step=step, stream=stream, noise_shape=noise)

    def parts(self, x: Value) -> list[Value]:
        """The columns of each gate."""
        return [x[:, k:k + self.units] for k in range(0, x.shape[1], self.units)]


class SimpleRNN(RecurrentLayer):
    """A plain recurrent layer: `h = activation(x @ kernel + bias + h @ recurrent_kernel)`.

    Args:
        units: Size of the output and of the state. A positive integer.
        activation: Activation of the output: a name such as `"relu"`, a function of a tensor, or
            `None` for none. Default: `"tanh"`.
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
        go_backwards: Whether to read the sequence from its end. Default: `False`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, features)`.

    Output shape:
        `(batch, units)`, or `(batch, steps, units)` with `return_sequences`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((5, 3)), SimpleRNN(4, return_sequences=True)]).output_shape
        (5, 4)
    """

    def step(self, x: Value, h: Value, state: tuple[Value, ...],
             context: Context) -> tuple[Value, ...]:
        y = x + OPS.matmul(h, context.read(self.recurrent_kernel))
        return (activate(self.activation, y, context),)


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


# -- both ways -------------------------------------------------------------------------------------

MERGE_MODES = ("concat", "sum", "mul", "ave")


class Bidirectional(Layer):
    """A recurrent layer and a copy that reads the sequence from its end, with their outputs merged.

    Args:
        layer: A `SimpleRNN`, `LSTM` or `GRU`.
        merge_mode: How outputs are merged: `"concat"`, `"sum"`, `"mul"` or `"ave"`. Default:
            `"concat"`.
        backward_layer: The layer that reads from the end. `None` makes a copy of `layer`. Default:
            `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, features)`.

    Output shape:
        That of `layer`, with twice the features for `"concat"`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> model = Sequential([Input((5, 3)), Bidirectional(LSTM(4))])
        >>> model.output_shape, model.weights[3].path
        ((8,), 'bidirectional/backward_lstm/kernel')
    """

    def __init__(self, layer: Layer, merge_mode: str = "concat",
                 backward_layer: Layer | None = None, **common: Any):
        super().__init__(**common)
        if merge_mode not in MERGE_MODES:
            raise ConfigError(f"Bidirectional(merge_mode={merge_mode!r}) must be one of "
                              f"{', '.join(MERGE_MODES)}")
        self.merge_mode = merge_mode
        self.layer = _recurrent(layer)
        forward = {**self.layer.get_config(),
                   "name": f"forward_{self.layer.name.removeprefix('forward_')}"}
        backward = {**self.layer.get_config(), "go_backwards": not self.layer.go_backwards,
                    "name": f"backward_{self.layer.name.removeprefix('backward_')}"}
        self.backward_layer = None if backward_layer is None else _recurrent(backward_layer)
        self.forward_way = self.adopt(type(self.layer).from_config(forward))
        self.backward_way = self.adopt(self.backward_layer
                                       or type(self.layer).from_config(backward))
        self._need_opposites()

    def _need_opposites(self) -> None:
        forward, backward = self.forward_way, self.backward_way
        assert isinstance(forward, RecurrentLayer) and isinstance(backward, RecurrentLayer)
        if forward.go_backwards == backward.go_backwards:
            raise ConfigError(f"layer {self.name!r}: both layers have go_backwards="
                              f"{forward.go_backwards}; give backward_layer the other one")
        if forward.return_sequences != backward.return_sequences:
            raise ConfigError(f"layer {self.name!r}: one layer returns sequences and the other "
                              "does not; give both the same return_sequences")

    def call(self, x: Value, context: Context) -> Value:
        y, back = self.forward_way(x, context), self.backward_way(x, context)
        if self.layer.return_sequences:
            back = OPS.flip(back, 1)
        if self.merge_mode == "concat":
            return OPS.concat(y, back, axis=-1)
        if self.merge_mode == "mul":
            return y * back
        total = y + back
        return total * 0.5 if self.merge_mode == "ave" else total


def _recurrent(spec: Any) -> RecurrentLayer:
    layer = Layer.get(spec) if isinstance(spec, dict) else spec
    if not isinstance(layer, RecurrentLayer):
        raise ConfigError(f"Bidirectional takes a SimpleRNN, LSTM or GRU, not {layer!r}")
    return layer
