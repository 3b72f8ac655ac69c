"""Depthwise and separable convolutions: filters that read one channel, then a mix of channels."""

from __future__ import annotations

from typing import Any

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.activation import ActivationLike
from ztorch.layers.context import Context
from ztorch.layers.convolution import BaseConvolution
from ztorch.layers.weight import Weight


class BaseDepthwiseConv(BaseConvolution, abstract=True):
    """Base class of depthwise convolutions: each filter reads only one channel."""

    def __init__(self, kernel_size: Any, strides: Any = 1, padding: Any = "valid",
                 depth_multiplier: int = 1, data_format: str | None = None, dilation_rate: Any = 1,
                 activation: ActivationLike = None, use_bias: bool = True,
                 depthwise_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
                 **common: Any):
        super().__init__(kernel_size, strides, padding, data_format, dilation_rate, activation,
                         use_bias, bias_initializer, **common)
        self.depth_multiplier = self.count("depth_multiplier", depth_multiplier)
        self.depthwise_initializer = depthwise_initializer

    def build(self, input_shape: Shape) -> None:
        channels = self.channels(input_shape)
        self.kernel = self.add_weight("kernel", (*self.kernel_size, channels,
                                                 self.depth_multiplier), self.depthwise_initializer)
        self.add_bias(channels * self.depth_multiplier)

    def last(self, x: Value, context: Context) -> Value:
        return self.finish(self.depthwise(x, self.kernel, context), context)

    def depthwise(self, x: Value, weight: Weight, context: Context) -> Value:
        *size, channels, each = weight.shape
        self.need_channels(x, weight, channels)
        kernel = OPS.reshape(context.read(weight), (*size, 1, channels * each))
        return self.convolve(x, kernel, groups=channels)


class DepthwiseConv1D(BaseDepthwiseConv):
    """A convolution along sequences in which each filter reads only one channel.

    Args:
        kernel_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for no padding, `"same"` for `ceil(steps / strides)` outputs, `"causal"`
            to never read later steps, an integer, or a pair (before, after). Default: `"valid"`.
        depth_multiplier: Number of filters for each input channel. Default: `1`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        dilation_rate: Distance between the elements that a window reads: an integer, or one for
            each axis. Default: `1`.
        activation: Activation of the output: a name such as `"relu"`, a function of a tensor, or
            `None` for no activation. Default: `None`.
        use_bias: Whether to add a bias. Default: `True`.
        depthwise_initializer: Initializer of the depthwise kernel: a name or an `Initializer`.
            Default: `"glorot_uniform"`.
        bias_initializer: Initializer of the bias: a name or an `Initializer`. Default: `"zeros"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`, or `(batch, channels, steps)` with channels first.

    Output shape:
        `(batch, new_steps, channels * depth_multiplier)`, or with channels first `(batch, channels
        * depth_multiplier, new_steps)`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> [w.shape for w in Sequential([Input((20, 3)), DepthwiseConv1D(5)]).weights]
        [(5, 3, 1), (3,)]
    """

    axes, paddings = 1, ("valid", "same", "causal")


class DepthwiseConv2D(BaseDepthwiseConv):
    """A convolution over images in which each filter reads only one channel.

    Args:
        kernel_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for no padding, `"same"` for `ceil(length / stride)` outputs, an integer,
            one for each axis, or a pair (before, after) for each axis. Default: `"valid"`.
        depth_multiplier: Number of filters for each input channel. Default: `1`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        dilation_rate: Distance between the elements that a window reads: an integer, or one for
            each axis. Default: `1`.
        activation: Activation of the output: a name such as `"relu"`, a function of a tensor, or
            `None` for no activation. Default: `None`.
        use_bias: Whether to add a bias. Default: `True`.
        depthwise_initializer: Initializer of the depthwise kernel: a name or an `Initializer`.
            Default: `"glorot_uniform"`.
        bias_initializer: Initializer of the bias: a name or an `Initializer`. Default: `"zeros"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        `(batch, new_rows, new_columns, channels * depth_multiplier)`, or with channels first
        `(batch, channels * depth_multiplier, new_rows, new_columns)`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((28, 28, 3)), DepthwiseConv2D(3, depth_multiplier=2)]).output_shape
        (None, 26, 26, 6)
    """


class BaseSeparableConv(BaseDepthwiseConv, abstract=True):
    """Base class of separable convolutions: a depthwise one, then a matrix that mixes channels."""

    def __init__(self, filters: int, kernel_size: Any, strides: Any = 1, padding: Any = "valid",
                 data_format: str | None = None, dilation_rate: Any = 1, depth_multiplier: int = 1,
                 activation: ActivationLike = None, use_bias: bool = True,
                 depthwise_initializer: Any = "glorot_uniform",
                 pointwise_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
                 **common: Any):
        super().__init__(kernel_size, strides, padding, depth_multiplier, data_format,
                         dilation_rate, activation, use_bias, depthwise_initializer,
                         bias_initializer, **common)
        self.filters = self.count("filters", filters)
        self.pointwise_initializer = pointwise_initializer

    def build(self, input_shape: Shape) -> None:
        channels = self.channels(input_shape)
        self.depthwise_kernel = self.add_weight(
            "depthwise_kernel", (*self.kernel_size, channels, self.depth_multiplier),
            self.depthwise_initializer)
        self.pointwise_kernel = self.add_weight(
            "pointwise_kernel", (*(1,) * self.axes, channels * self.depth_multiplier, self.filters),
            self.pointwise_initializer)
        self.add_bias(self.filters)

    def last(self, x: Value, context: Context) -> Value:
        y = self.depthwise(x, self.depthwise_kernel, context)
        matrix = OPS.reshape(context.read(self.pointwise_kernel), self.pointwise_kernel.shape[-2:])
        return self.finish(OPS.matmul(y, matrix), context)


class SeparableConv1D(BaseSeparableConv, names=("SeparableConvolution1D",)):
    """A depthwise convolution along sequences, then a matrix that mixes channels.

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
        depth_multiplier: Number of filters for each input channel. Default: `1`.
        activation: Activation of the output: a name such as `"relu"`, a function of a tensor, or
            `None` for no activation. Default: `None`.
        use_bias: Whether to add a bias. Default: `True`.
        depthwise_initializer: Initializer of the depthwise kernel: a name or an `Initializer`.
            Default: `"glorot_uniform"`.
        pointwise_initializer: Initializer of the pointwise kernel: a name or an `Initializer`.
            Default: `"glorot_uniform"`.
        bias_initializer: Initializer of the bias: a name or an `Initializer`. Default: `"zeros"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, channels)`, or `(batch, channels, steps)` with channels first.

    Output shape:
        `(batch, new_steps, filters)`, or `(batch, filters, new_steps)` with channels first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((20, 3)), SeparableConv1D(8, 5)]).output_shape
        (None, 16, 8)
    """

    axes, paddings = 1, ("valid", "same", "causal")


class SeparableConv2D(BaseSeparableConv, names=("SeparableConvolution2D",)):
    """A depthwise convolution over images, then a matrix that mixes channels.

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
        depth_multiplier: Number of filters for each input channel. Default: `1`.
        activation: Activation of the output: a name such as `"relu"`, a function of a tensor, or
            `None` for no activation. Default: `None`.
        use_bias: Whether to add a bias. Default: `True`.
        depthwise_initializer: Initializer of the depthwise kernel: a name or an `Initializer`.
            Default: `"glorot_uniform"`.
        pointwise_initializer: Initializer of the pointwise kernel: a name or an `Initializer`.
            Default: `"glorot_uniform"`.
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
        >>> [w.shape for w in Sequential([Input((28, 28, 3)), SeparableConv2D(8, 5)]).weights]
        [(5, 5, 3, 1), (1, 1, 3, 8), (8,)]
    """
