"""Transposed convolutions, which enlarge sequences and images."""

from __future__ import annotations

from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.activation import ActivationLike
from ztorch.layers.context import Context
from ztorch.layers.convolution import BaseConvolution


class BaseConvTranspose(BaseConvolution, abstract=True):
    """Base class of transposed convolutions, which compute the gradient of a convolution.

    Each element of the input adds a multiple of the kernel to the output.
    """

    numeric_padding = False
    windowed = False

    def __init__(self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
                 output_padding: Any = None, data_format: str | None = None,
                 dilation_rate: Any = 1, activation: ActivationLike = None, use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
                 **common: Any):
        super().__init__(kernel_size, strides, padding, data_format, dilation_rate, activation,
                         use_bias, bias_initializer, **common)
        self.filters = self.count("filters", filters)
        self.output_padding = (None if output_padding is None else
                               self.each("output_padding", output_padding, least=0))
        if any(o >= s for o, s in zip(self.output_padding or (), self.strides, strict=False)):
            raise ConfigError(f"{type(self).__name__}(output_padding={output_padding!r}) must be "
                              f"less than strides={self.strides} along each axis")
        self.kernel_initializer = kernel_initializer

    def build(self, input_shape: Shape) -> None:
        self.kernel = self.add_weight(
            "kernel", (*self.kernel_size, self.filters, self.channels(input_shape)),
            self.kernel_initializer)
        self.add_bias(self.filters)

    def last(self, x: Value, context: Context) -> Value:
        self.need_channels(x, self.kernel, self.kernel.shape[-1])
        y = OPS.conv_transpose(x, context.read(self.kernel), self.strides, self.padding,
                               self.dilation_rate, self.output_padding)
        return self.finish(y, context)


class Conv1DTranspose(BaseConvTranspose, names=("Convolution1DTranspose",)):
    """A transposed convolution, which lengthens sequences.

    Args:
        filters: Number of filters, which is the number of output channels.
        kernel_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for the whole result, or `"same"` for `steps * strides` outputs. Default:
            `"valid"`.
        output_padding: Number of extra outputs at the end, less than `strides`. `None` derives it
            from `padding`. Default: `None`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        dilation_rate: Distance between the elements that a window reads: an integer, or one for
            each axis. Default: `1`.
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
        >>> Sequential([Input((10, 3)), Conv1DTranspose(8, 4, 2, padding="same")]).output_shape
        (None, 20, 8)
    """

    axes = 1


class Conv2DTranspose(BaseConvTranspose, names=("Convolution2DTranspose",)):
    """A transposed convolution, which enlarges images.

    Args:
        filters: Number of filters, which is the number of output channels.
        kernel_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for the whole result, or `"same"` for `length * strides` outputs along
            each axis. Default: `"valid"`.
        output_padding: Number of extra outputs at the end of each axis, less than `strides`. `None`
            derives it from `padding`. Default: `None`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        dilation_rate: Distance between the elements that a window reads: an integer, or one for
            each axis. Default: `1`.
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
        >>> model = Sequential([Input((7, 7, 3)), Conv2DTranspose(8, 3, 2, padding="same")])
        >>> model.output_shape, model.weights[0].shape
        ((None, 14, 14, 8), (3, 3, 8, 3))
    """
