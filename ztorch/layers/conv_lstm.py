"""ConvLSTM: an LSTM over sequences of images, whose products are convolutions."""

from __future__ import annotations

from typing import Any

from ztorch.config import fraction, positive, whole_seed
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Initializer, Shape
from ztorch.layers.activation import ActivationLike, activate, checked_activation
from ztorch.layers.context import Context
from ztorch.layers.gates import ForgetGateOpen, dropped
from ztorch.layers.recurrent import RecurrentLayer
from ztorch.layers.spatial import SpatialLayer


class BaseConvLSTM(RecurrentLayer, SpatialLayer, abstract=True):
    """Base class of the convolutional LSTMs. Kernels hold the input, forget, cell and output
    gates."""

    def __init__(self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
                 data_format: str | None = None, dilation_rate: Any = 1,
                 activation: ActivationLike = "tanh",
                 recurrent_activation: ActivationLike = "sigmoid", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform",
                 recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 unit_forget_bias: bool = True, dropout: float = 0.0,
                 recurrent_dropout: float = 0.0, seed: int | None = None,
                 return_sequences: bool = False, return_state: bool = False,
                 go_backwards: bool = False, stateful: bool = False,
                 zero_output_for_mask: bool = False, **common: Any):
        super().__init__(data_format, **common)
        kind = type(self).__name__
        self.filters = positive(f"{kind}(filters=...)", filters)
        self.kernel_size = self.each("kernel_size", kernel_size)
        self.strides = self.each("strides", strides)
        self.padding = self.choice("padding", padding, ("valid", "same"))
        self.dilation_rate = self.each("dilation_rate", dilation_rate)
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ConfigError(f"{kind}(strides={strides}, dilation_rate={dilation_rate}): only one "
                              "of them may be above 1")
        self.activation = checked_activation(activation)
        self.recurrent_activation = checked_activation(recurrent_activation)
        self.use_bias, self.unit_forget_bias = use_bias, unit_forget_bias
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer
        self.recurrent_initializer = recurrent_initializer
        self.dropout = fraction(f"{kind}(dropout=...)", dropout)
        self.recurrent_dropout = fraction(f"{kind}(recurrent_dropout=...)", recurrent_dropout)
        self.seed = None if seed is None else whole_seed(seed)
        self.set_loop(return_sequences, return_state, go_backwards, stateful, zero_output_for_mask)

    def build(self, input_shape: Shape) -> None:
        inside = ("rows", "rows, columns", "depth, rows, columns")[self.axes - 1]
        self.need_rank(input_shape, self.axes + 2, f"(steps, {inside}, channels)",
                       "give each example an image for every step")
        channels = self.channels(input_shape[1:])
        self.kernel = self.add_weight("kernel", (*self.kernel_size, channels, 4 * self.filters),
                                      self.kernel_initializer)
        self.recurrent_kernel = self.add_weight(
            "recurrent_kernel", (*self.kernel_size, self.filters, 4 * self.filters),
            self.recurrent_initializer)
        if self.use_bias:
            others = Initializer.get(self.bias_initializer)
            self.bias = self.add_weight("bias", (4 * self.filters,), ForgetGateOpen(others)
                                        if self.unit_forget_bias else others)

    def need_fit(self, x: Value) -> None:
        if x.rank != self.axes + 3 or self.channels(x.shape[2:]) != self.kernel.shape[-2]:
            raise shape_error("inputs do not fit the kernel:", x.shape[1:], self.kernel.shape,
                              fix=f"the layer was built for {self.kernel.shape[-2]} channels")

    def first_states(self, x: Value) -> list[Value]:
        sizes = x.shape[3:] if self.channels_first else x.shape[2:-1]
        window = [(k - 1) * d + 1 for k, d in zip(self.kernel_size, self.dilation_rate,
                                                  strict=True)]
        if self.padding == "valid":
            if any(n < w for n, w in zip(sizes, window, strict=True)):
                raise shape_error(f"windows of {tuple(window)} are larger than inputs of",
                                  x.shape[1:], fix="choose padding='same', or smaller windows")
            sizes = tuple(n - w + 1 for n, w in zip(sizes, window, strict=True))
        sizes = tuple(-(-n // s) for n, s in zip(sizes, self.strides, strict=True))
        shape = (self.filters, *sizes) if self.channels_first else (*sizes, self.filters)
        return [OPS.full((x.shape[0], *shape), 0.0, x.dtype)] * 2

    def step(self, x: Value, states: Any, context: Context) -> tuple[Value, list[Value]]:
        x = self._last(dropped(x, self.dropout, self.seed, context))
        h = self._last(dropped(states[0], self.recurrent_dropout, self.seed, context))
        z = OPS.conv(x, context.read(self.kernel), self.strides, self.padding, self.dilation_rate)
        if self.use_bias:
            z = z + context.read(self.bias)
        ones = (1,) * self.axes
        z = z + OPS.conv(h, context.read(self.recurrent_kernel), ones, "same", ones)
        if self.channels_first:
            z = OPS.transpose(z, (0, z.rank - 1, *range(1, z.rank - 1)))
        axis, n = (1 if self.channels_first else z.rank - 1), self.filters
        into, forget, cell, out = (z[(slice(None),) * axis + (slice(k * n, (k + 1) * n),)]
                                   for k in range(4))
        into, forget, out = (activate(self.recurrent_activation, gate, context)
                             for gate in (into, forget, out))
        c = forget * states[1] + into * activate(self.activation, cell, context)
        h = out * activate(self.activation, c, context)
        return h, [h, c]

    def _last(self, x: Value) -> Value:
        """x with the channel axis last."""
        return OPS.transpose(x, (0, *range(2, x.rank), 1)) if self.channels_first else x


class ConvLSTM1D(BaseConvLSTM):
    """An LSTM whose products are convolutions along rows, for sequences of sequences.

    Args:
        filters: Number of filters, which is the number of channels of output and state.
        kernel_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window over the input: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for no padding, or `"same"`, for the input; the state is always padded.
            Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        dilation_rate: Distance between the elements that a window reads of the input: an integer,
            or one for each axis. Default: `1`.
        activation: Activation of the cell and of the output. Default: `"tanh"`.
        recurrent_activation: Activation of the gates. Default: `"sigmoid"`.
        use_bias: Whether to add a bias. Default: `True`.
        kernel_initializer: Initializer of the kernel for the inputs: a name or an
            `Initializer`. Default: `"glorot_uniform"`.
        recurrent_initializer: Initializer of the kernel for the last output: a name or an
            `Initializer`. Default: `"orthogonal"`.
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
        `(batch, steps, rows, channels)`, or `(batch, steps, channels, rows)` with channels
        first.

    Output shape:
        `(batch, new_rows, filters)`, with the steps after the batch for `return_sequences`. With
        `return_state`, a list of it and the states.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((7, 20, 3)), ConvLSTM1D(4, 3, padding="same")]).output_shape
        (None, 20, 4)
    """

    axes = 1


class ConvLSTM2D(BaseConvLSTM):
    """An LSTM whose products are convolutions over images, for sequences of images.

    Args:
        filters: Number of filters, which is the number of channels of output and state.
        kernel_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window over the input: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for no padding, or `"same"`, for the input; the state is always padded.
            Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        dilation_rate: Distance between the elements that a window reads of the input: an integer,
            or one for each axis. Default: `1`.
        activation: Activation of the cell and of the output. Default: `"tanh"`.
        recurrent_activation: Activation of the gates. Default: `"sigmoid"`.
        use_bias: Whether to add a bias. Default: `True`.
        kernel_initializer: Initializer of the kernel for the inputs: a name or an
            `Initializer`. Default: `"glorot_uniform"`.
        recurrent_initializer: Initializer of the kernel for the last output: a name or an
            `Initializer`. Default: `"orthogonal"`.
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
        `(batch, steps, rows, columns, channels)`, or `(batch, steps, channels, rows, columns)` with
        channels first.

    Output shape:
        `(batch, new_rows, new_columns, filters)`, with the steps after the batch for
        `return_sequences`. With `return_state`, a list of it and the states.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((7, 8, 8, 3)), ConvLSTM2D(4, 3, padding="same")]).output_shape
        (None, 8, 8, 4)
    """


class ConvLSTM3D(BaseConvLSTM):
    """An LSTM whose products are convolutions over volumes, for sequences of volumes.

    Args:
        filters: Number of filters, which is the number of channels of output and state.
        kernel_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window over the input: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for no padding, or `"same"`, for the input; the state is always padded.
            Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        dilation_rate: Distance between the elements that a window reads of the input: an integer,
            or one for each axis. Default: `1`.
        activation: Activation of the cell and of the output. Default: `"tanh"`.
        recurrent_activation: Activation of the gates. Default: `"sigmoid"`.
        use_bias: Whether to add a bias. Default: `True`.
        kernel_initializer: Initializer of the kernel for the inputs: a name or an
            `Initializer`. Default: `"glorot_uniform"`.
        recurrent_initializer: Initializer of the kernel for the last output: a name or an
            `Initializer`. Default: `"orthogonal"`.
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
        `(batch, steps, depth, rows, columns, channels)`, or `(batch, steps, channels, depth, rows,
        columns)` with channels first.

    Output shape:
        `(batch, new_depth, new_rows, new_columns, filters)`, with the steps after the batch for
        `return_sequences`. With `return_state`, a list of it and the states.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((7, 4, 8, 8, 3)), ConvLSTM3D(5, 3, padding="same")]).output_shape
        (None, 4, 8, 8, 5)
    """

    axes = 3
