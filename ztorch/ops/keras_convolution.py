"""Convolutions of sequences and images, with Keras' argument names and data formats."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.convolution import conv, conv_numpy
from ztorch.ops.windows import Sizes


def _keras_conv_numpy(inputs: Any, kernel: Any, strides: Sizes = 1, padding: Any = "valid",
                      data_format: str = "channels_last", dilation_rate: Sizes = 1,
                      groups: int = 1) -> Any:
    first = data_format == "channels_first"
    x = np.moveaxis(inputs, 1, -1) if first else inputs
    y = conv_numpy(x, kernel, strides, padding, dilation_rate, groups)
    return np.moveaxis(y, -1, 1) if first else y


def _keras_conv(axes: int, inputs: Value, kernel: Value, strides: Sizes, padding: Any,
                data_format: str, dilation_rate: Sizes, groups: int) -> Value:
    if inputs.rank != axes + 2 or kernel.rank != axes + 2:
        raise shape_error(f"ops.conv{axes}d needs inputs and a kernel of rank {axes + 2}, not",
                          inputs.shape, kernel.shape)
    if data_format not in ("channels_last", "channels_first"):
        raise shape_error(f"data_format {data_format!r} is neither 'channels_last' nor "
                          "'channels_first'")
    if data_format == "channels_last":
        return conv(inputs, kernel, strides, padding, dilation_rate, groups)
    places = tuple(range(2, axes + 2))
    y = conv(OPS.transpose(inputs, (0, *places, 1)), kernel, strides, padding, dilation_rate,
             groups)
    return OPS.transpose(y, (0, axes + 1, *(p - 1 for p in places)))


@op(Sample(((2, 6, 3), (3, 3, 4)), {"padding": "same", "strides": 2}),
    Sample(((1, 2, 7), (3, 2, 2)), {"data_format": "channels_first", "dilation_rate": 2}),
    numpy=_keras_conv_numpy)
def conv1d(inputs: Value, kernel: Value, strides: Sizes = 1, padding: Any = "valid",
           data_format: str = "channels_last", dilation_rate: Sizes = 1,
           groups: int = 1) -> Value:
    """A convolution of sequences, with Keras' argument names.

    Args:
        inputs: Sequences `(batch, length, channels)`, or `(batch, channels, length)` with channels
            first.
        kernel: Kernel `(size, channels / groups, filters)`, of the same dtype.
        strides: Step of the window: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for no padding, `"same"` for `ceil(length / strides)` outputs, or a pair
            (before, after) for each axis. Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            Default: `"channels_last"`.
        dilation_rate: Distance between the elements that a window reads: an integer, or one for
            each axis. Default: `1`.
        groups: Number of groups. Each group of filters reads its own group of channels.
            Default: `1`.

    Returns:
        A tensor `(batch, new length, filters)`, or `(batch, filters, new length)` with channels
        first.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.conv1d(np.arange(5.0).reshape(1, 5, 1), np.ones((2, 1, 1))).reshape(-1)
        array([1., 3., 5., 7.])
    """
    return _keras_conv(1, inputs, kernel, strides, padding, data_format, dilation_rate, groups)


@op(Sample(((2, 5, 6, 2), (3, 2, 2, 3)), {"strides": (2, 1), "padding": "same"}),
    Sample(((1, 4, 5, 4), (2, 2, 2, 6)), {"groups": 2, "data_format": "channels_first"}),
    numpy=_keras_conv_numpy)
def conv2d(inputs: Value, kernel: Value, strides: Sizes = 1, padding: Any = "valid",
           data_format: str = "channels_last", dilation_rate: Sizes = 1,
           groups: int = 1) -> Value:
    """A convolution of images, with Keras' argument names.

    Args:
        inputs: Images `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)`
            with channels first.
        kernel: Kernel `(height, width, channels / groups, filters)`, of the same dtype.
        strides: Step of the window: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for no padding, `"same"` for `ceil(length / strides)` outputs, or a pair
            (before, after) for each axis. Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            Default: `"channels_last"`.
        dilation_rate: Distance between the elements that a window reads: an integer, or one for
            each axis. Default: `1`.
        groups: Number of groups. Each group of filters reads its own group of channels.
            Default: `1`.

    Returns:
        A tensor `(batch, new rows, new columns, filters)`, or with channels first `(batch, filters,
        new rows, new columns)`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.conv2d(np.ones((1, 28, 28, 3)), np.ones((5, 5, 3, 8)), strides=2).shape
        (1, 12, 12, 8)
    """
    return _keras_conv(2, inputs, kernel, strides, padding, data_format, dilation_rate, groups)
