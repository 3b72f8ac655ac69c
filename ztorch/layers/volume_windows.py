"""Moving windows over volumes: convolutions and pooling along three axes."""

from __future__ import annotations

from typing import Any

from ztorch.layers.activation import ActivationLike
from ztorch.layers.convolution import BaseConv
from ztorch.layers.pooling import BaseMaxPooling, BasePooling
from ztorch.layers.transposed import BaseConvTranspose


class Conv3D(BaseConv, names=("Convolution3D",)):
    """A convolution over volumes, such as stacks of images or videos.

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
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        `(batch, new depth, new rows, new columns, filters)`, or with the filters first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 6, 6, 2)), Conv3D(4, 3, padding="same")]).output_shape
        (None, 8, 6, 6, 4)
    """

    axes = 3


class Conv3DTranspose(BaseConvTranspose, names=("Convolution3DTranspose",)):
    """A transposed convolution, which enlarges volumes.

    Args:
        filters: Number of filters, which is the number of output channels.
        kernel_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for the whole result, or `"same"` for `length * strides` outputs.
            Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        output_padding: Number of extra outputs at the end of each axis, less than `strides`. `None`
            derives it from `padding`. Default: `None`.
        dilation_rate: Distance between the elements that a window writes: an integer, or one for
            each axis. Default: `1`.
        activation: Activation of the output: a name such as `"relu"`, a function of a tensor, or
            `None` for no activation. Default: `None`.
        use_bias: Whether to add a bias. Default: `True`.
        kernel_initializer: Initializer of the kernel: a name or an `Initializer`. Default:
            `"glorot_uniform"`.
        bias_initializer: Initializer of the bias: a name or an `Initializer`. Default: `"zeros"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        `(batch, new depth, new rows, new columns, filters)`, or with the filters first.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 6, 6, 2)), Conv3DTranspose(4, 2, strides=2)]).output_shape
        (None, 16, 12, 12, 4)
    """

    axes = 3

    def __init__(self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
                 data_format: str | None = None, output_padding: Any = None,
                 dilation_rate: Any = 1, activation: ActivationLike = None, use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
                 **common: Any):  # Keras' order, which differs from that of two axes
        super().__init__(filters, kernel_size, strides, padding, output_padding, data_format,
                         dilation_rate, activation, use_bias, kernel_initializer,
                         bias_initializer, **common)


class MaxPooling3D(BaseMaxPooling, names=("MaxPool3D",)):
    """The largest element of each window of a volume.

    Args:
        pool_size: Size of the window: an integer, or one for each axis. Default: `2`.
        strides: Step of the window. `None` means `pool_size`, so that windows do not overlap.
            Default: `None`.
        padding: `"valid"` for no padding, or `"same"` for `ceil(length / strides)` outputs along
            each axis. Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        The input shape with a smaller depth, fewer rows and columns.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 6, 6, 2)), MaxPooling3D()]).output_shape
        (None, 4, 3, 3, 2)
    """

    axes = 3


class AveragePooling3D(BasePooling, names=("AvgPool3D",)):
    """The mean of each window of a volume. Padding does not count.

    Args:
        pool_size: Size of the window: an integer, or one for each axis.
        strides: Step of the window. `None` means `pool_size`, so that windows do not overlap.
            Default: `None`.
        padding: `"valid"` for no padding, or `"same"` for `ceil(length / strides)` outputs along
            each axis. Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, depth, rows, columns, channels)`, or `(batch, channels, depth, rows, columns)` with
        channels first.

    Output shape:
        The input shape with a smaller depth, fewer rows and columns.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 6, 6, 2)), AveragePooling3D(2)]).output_shape
        (None, 4, 3, 3, 2)
    """

    axes, op, needs_floats = 3, "average_pool", True
