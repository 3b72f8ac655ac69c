"""Convolutions with Keras' arguments, weights and defaults."""

from __future__ import annotations

import copy
from typing import Any

from ztorch.config import positive
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.activation import ActivationLike, activate, checked_activation
from ztorch.layers.context import Context
from ztorch.layers.spatial import SpatialLayer, declared
from ztorch.layers.weight import Weight
from ztorch.layers.windows import Window, framed


class BaseConvolution(SpatialLayer, abstract=True):
    """Base class of the convolutions: a moving window, then a bias and an activation.

    In addition to Keras' values, `padding` may be numbers, as in PyTorch: an integer, one for each
    axis, or a pair (before, after) for each axis.
    """

    paddings: tuple[str, ...] = ("valid", "same")  # accepted strings
    numeric_padding = True  # whether `padding` may also be numbers
    needs_floats = True

    def __init__(self, kernel_size: Any, strides: Any, padding: Any, data_format: str | None,
                 dilation_rate: Any, activation: ActivationLike, use_bias: bool,
                 bias_initializer: Any, **common: Any):
        super().__init__(data_format, **common)
        self.kernel_size = self.each("kernel_size", kernel_size)
        self.strides = self.each("strides", strides)
        is_word = isinstance(padding, str) or not self.numeric_padding
        self.padding: Any = (self.choice("padding", padding, self.paddings) if is_word else
                             self.pairs("padding", padding))
        self.dilation_rate = self.each("dilation_rate", dilation_rate)
        self.activation = checked_activation(activation)
        self.use_bias = use_bias
        self.bias_initializer = bias_initializer

    def count(self, argument: str, n: Any) -> int:
        """n as a positive integer, or a ConfigError that names the argument."""
        return positive(f"{type(self).__name__}({argument}=...)", n)

    def add_bias(self, filters: int) -> None:
        """Creates the bias, if the layer has one."""
        if self.use_bias:
            self.bias = self.add_weight("bias", (filters,), self.bias_initializer)

    def convolve(self, x: Value, kernel: Value, groups: int = 1) -> Value:
        """The convolution of x, which has channels last, with the layer's window."""
        padding: Any = self.padding
        if padding == "causal":
            padding = [((k - 1) * d, 0)
                       for k, d in zip(self.kernel_size, self.dilation_rate, strict=True)]
        return OPS.conv(x, kernel, self.strides, padding, self.dilation_rate, groups)

    windowed = True  # whether the output consists of windows of the input

    def call(self, x: Value, context: Context) -> Value:
        padding, first = context.padding, 2 if self.channels_first else 1
        padded = padding.of(x)
        axes = [axis for axis in range(first, min(first + self.axes, x.rank)) if axis in padded]
        if not axes:
            return super().call(x, context)
        if self.padding in ("same", "causal") and max(self.strides) == 1:
            # A causal window sees no padding, which is at the end. Other windows read zeros there,
            # as they do beyond the end of an axis.
            for axis in axes if self.padding == "same" else ():
                x = padding.zeroed(x, axis)
            return declared(super().call(x, context), padded, context)
        if not self.windowed:
            return self.resized(x, context, self.strides, zeroed=True)
        ways = self.padding if not isinstance(self.padding, str) else [self.padding] * self.axes
        windows = [Window((k - 1) * d + 1, s, p) for k, d, s, p in zip(
            self.kernel_size, self.dilation_rate, self.strides, ways, strict=True)]
        x, results = framed(x, first, windows, 0, context)
        unpadded = copy.copy(self)
        unpadded.padding = "valid"
        return declared(SpatialLayer.call(unpadded, x, context), results, context)

    def finish(self, y: Value, context: Context) -> Value:
        """y with bias and activation."""
        if self.use_bias:
            y = y + context.read(self.bias)
        return activate(self.activation, y, context)

    def need_channels(self, x: Value, weight: Weight, channels: int) -> None:
        """Raises a ShapeError if the layer was built for another number of channels."""
        if x.shape[-1] != channels:
            raise shape_error("channels of inputs and kernel do not fit:", x.shape[1:],
                              weight.shape, fix=f"the layer was built for {channels} channels; "
                              "create a new one for others")


class BaseConv(BaseConvolution, abstract=True):
    """Base class of `Conv1D` and `Conv2D`: `activation(windows of x @ kernel + bias)`."""

    def __init__(self, filters: int, kernel_size: Any, strides: Any = 1, padding: Any = "valid",
                 data_format: str | None = None, dilation_rate: Any = 1, groups: int = 1,
                 activation: ActivationLike = None, use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
                 **common: Any):
        super().__init__(kernel_size, strides, padding, data_format, dilation_rate, activation,
                         use_bias, bias_initializer, **common)
        self.filters = self.count("filters", filters)
        self.groups = self.count("groups", groups)
        self.kernel_initializer = kernel_initializer
        if self.filters % self.groups:
            raise ConfigError(f"{type(self).__name__}(filters={filters}, groups={groups}): "
                              "groups must divide filters")

    def build(self, input_shape: Shape) -> None:
        channels = self.channels(input_shape)
        if channels % self.groups:
            raise shape_error(f"{self.groups} groups do not divide the {channels} channels of "
                              "inputs", input_shape, fix=f"choose groups that divide {channels}"
                              f"{self.turned(input_shape)}")
        self.kernel = self.add_weight(
            "kernel", (*self.kernel_size, channels // self.groups, self.filters),
            self.kernel_initializer)
        self.add_bias(self.filters)

    def last(self, x: Value, context: Context) -> Value:
        self.need_channels(x, self.kernel, self.kernel.shape[-2] * self.groups)
        return self.finish(self.convolve(x, context.read(self.kernel), self.groups), context)


class Conv1D(BaseConv, names=("Convolution1D",)):
    """A convolution along sequences.

    Args:
        filters: Number of filters, which is the number of output channels.
        kernel_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for no padding, `"same"` for `ceil(steps / strides)` outputs, `"causal"`
            to never read later steps, an integer, or a pair (before, after). Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        dilation_rate: Distance between the elements that a window reads: an integer, or one for
            each axis. Default: `1`.
        groups: Number of groups. Each group of filters reads its own group of channels; must divide
            both numbers. Default: `1`.
        activation: Activation of the output: a name such as `"relu"`, a function of a tensor, or
            `None` for no activation. Default: `None`.
        use_bias: Whether to add a bias. Default: `True`.
        kernel_initializer: Initializer of the kernel: a name or an `Initializer`. Default:
            `"glorot_uniform"`.
        bias_initializer: Initializer of the bias: a name or an `Initializer`. Default: `"zeros"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`, or `(batch, channels, steps)` with channels first.

    Output shape:
        `(batch, new_steps, filters)`, or `(batch, filters, new_steps)` with channels first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((20, 3)), Conv1D(8, 5, padding="causal")]).output_shape
        (None, 20, 8)
    """

    axes, paddings = 1, ("valid", "same", "causal")


class Conv2D(BaseConv, names=("Convolution2D",)):
    """A convolution over images.

    Args:
        filters: Number of filters, which is the number of output channels.
        kernel_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for no padding, `"same"` for `ceil(length / stride)` outputs, an integer,
            one for each axis, or a pair (before, after) for each axis. Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        dilation_rate: Distance between the elements that a window reads: an integer, or one for
            each axis. Default: `1`.
        groups: Number of groups. Each group of filters reads its own group of channels; must divide
            both numbers. Default: `1`.
        activation: Activation of the output: a name such as `"relu"`, a function of a tensor, or
            `None` for no activation. Default: `None`.
        use_bias: Whether to add a bias. Default: `True`.
        kernel_initializer: Initializer of the kernel: a name or an `Initializer`. Default:
            `"glorot_uniform"`.
        bias_initializer: Initializer of the bias: a name or an `Initializer`. Default: `"zeros"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        `(batch, new_rows, new_columns, filters)`, or `(batch, filters, new_rows, new_columns)` with
        channels first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> model = Sequential([Input((28, 28, 3)), Conv2D(8, 5, strides=2, padding="same")])
        >>> model.output_shape, [w.shape for w in model.weights]
        ((None, 14, 14, 8), [(5, 5, 3, 8), (8,)])
        >>> Sequential([Input((28, 28, 3)), Conv2D(8, 5, padding=((2, 2), (0, 1)))]).output_shape
        (None, 28, 25, 8)
    """
