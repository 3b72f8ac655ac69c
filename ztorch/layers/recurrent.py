"""Recurrent layers over sequences (steps, features).

One matrix product projects the inputs of all steps before the loop. The loop is unrolled: the
length of a sequence is part of its shape, so the graph holds every step.
"""

from __future__ import annotations

from typing import Any

from ztorch.config import fraction, positive, whole_seed
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.activation import ActivationLike, activate, checked_activation
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer


class RecurrentLayer(Layer, abstract=True):
    """Base of the recurrent layers: weights, the projection of the inputs and the loop over steps.

    A kernel holds the columns of all gates side by side, as in Keras.
    """

    gates = 1
    states = 1  # number of states from step to step; the first is the output
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
        """The bias of the projected inputs."""
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
        real = context.masks.along(x, 1)  # the state stays as it is at steps that are not
        for t in reversed(range(steps)) if self.go_backwards else range(steps):
            seen = state[0] if mask is ones else state[0] * mask
            new = self.step(projected[:, t], seen, state, context)
            state = new if real is None else tuple(
                OPS.where(real[:, t:t + 1], now, old) for now, old in zip(new, state, strict=True))
            outputs.append(state[0])
        if not self.return_sequences:
            return context.masks.declare(outputs[-1], {})
        y = OPS.concat(*(OPS.expand_dims(h, 1) for h in outputs), axis=1)
        # From the end, padding comes first: only Bidirectional, which turns it round, can go on.
        return y if self.go_backwards else context.masks.declare(y, context.masks.of(x))

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
