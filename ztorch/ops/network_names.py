"""Neural network ops with Keras' names and arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, shape_error
from ztorch.graph.value import Value
from ztorch.ops.attention import repeated_heads, scores_of, weights_of_scores
from ztorch.ops.convolution import conv
from ztorch.ops.windows import Sizes, for_each

MOST_WINDOWS = 1024  # of different sizes: each is a separate part of the graph
EPSILON = 1e-7  # of Keras


@composition(Sample(((3, 4), (4,), np.linspace(0.2, 2.0, 4)), {"axis": -1}))
def batch_normalization(x: Value, mean: Value, variance: Value, axis: int,
                        offset: Value | None = None, scale: Value | None = None,
                        epsilon: float = 1e-3) -> Value:
    """`batch_norm` with the arguments in Keras' order.

    Args:
        x: Float tensor.
        mean: Mean of each feature.
        variance: Variance of each feature.
        axis: Axis of the features.
        offset: Added to each feature. `None` omits it. Default: `None`.
        scale: Factor of each feature. `None` omits it. Default: `None`.
        epsilon: Added to the variance. Default: `0.001`.

    Returns:
        A tensor of the shape of `x`.
    """
    return OPS.batch_norm(x, mean, variance, scale, offset, axis, epsilon)


@composition(Sample(((3, 4), (4,), (4,))))
def layer_normalization(x: Value, gamma: Value | None = None, beta: Value | None = None,
                        axis: Any = -1, epsilon: float | None = None) -> Value:
    """`layer_norm` with Keras' arguments.

    Args:
        x: Float tensor.
        gamma: Factor of each feature. `None` omits it. Default: `None`.
        beta: Added to each feature. `None` omits it. Default: `None`.
        axis: Axis or axes of the features. Default: `-1`.
        epsilon: Added to the variance. `None` means 1e-7. Default: `None`.

    Returns:
        A tensor of the shape of `x`.
    """
    return OPS.layer_norm(x, gamma, beta, axis, EPSILON if epsilon is None else epsilon)


@composition(Sample(((3, 4), (4,))))
def rms_normalization(x: Value, scale: Value | None = None, axis: Any = -1,
                      epsilon: float | None = None) -> Value:
    """`rms_norm` with Keras' arguments.

    Args:
        x: Float tensor.
        scale: Factor of each feature. `None` omits it. Default: `None`.
        axis: Axis or axes of the features. Default: `-1`.
        epsilon: Added to the mean square. `None` means 1e-7. Default: `None`.

    Returns:
        A tensor of the shape of `x`.
    """
    return OPS.rms_norm(x, scale, axis, EPSILON if epsilon is None else epsilon)


def _adaptive(name: str, reduce: str, inputs: Value, output_size: Any, data_format: str | None
              ) -> Value:
    """Output k of n reads from `floor(k * size / n)` to below `ceil((k + 1) * size / n)`."""
    first = data_format == "channels_first"
    for k, count in enumerate(for_each("output_size", output_size, inputs.rank - 2)):
        axis = k + (2 if first else 1)
        size, x = inputs.shape[axis], inputs
        if size % count == 0:
            shape = (*x.shape[:axis], count, size // count, *x.shape[axis + 1:])
            inputs = getattr(OPS, reduce)(OPS.reshape(x, shape), axis + 1)
            continue
        if count > MOST_WINDOWS:
            raise Unsupported(f"ops.{name}(output_size={count}) of {size} elements: windows of "
                              f"different sizes are limited to {MOST_WINDOWS}; choose a divisor of "
                              f"{size}")
        parts = [getattr(OPS, reduce)(x[(slice(None),) * axis + (slice(
            n * size // count, -(-(n + 1) * size // count)),)], axis, keepdims=True)
            for n in range(count)]
        inputs = OPS.concat(*parts, axis=axis)
    return inputs


@composition(Sample(((1, 5, 4, 2),), {"output_size": 2}))
def adaptive_average_pool(inputs: Value, output_size: Sizes, data_format: str | None = None
                          ) -> Value:
    """The mean of each of a given number of windows.

    Args:
        inputs: Sequences, images or volumes, with a batch and channels.
        output_size: Number of windows: an integer, or one for each axis.
        data_format: `"channels_last"` or `"channels_first"`. `None` means `"channels_last"`.
            Default: `None`.

    Returns:
        A tensor with `output_size` elements along those axes.
    """
    return _adaptive("adaptive_average_pool", "mean", inputs, output_size, data_format)


@composition(Sample(((1, 5, 4, 2),), {"output_size": 2}))
def adaptive_max_pool(inputs: Value, output_size: Sizes, data_format: str | None = None) -> Value:
    """The maximum of each of a given number of windows.

    Args:
        inputs: Sequences, images or volumes, with a batch and channels.
        output_size: Number of windows: an integer, or one for each axis.
        data_format: `"channels_last"` or `"channels_first"`. `None` means `"channels_last"`.
            Default: `None`.

    Returns:
        A tensor with `output_size` elements along those axes.
    """
    return _adaptive("adaptive_max_pool", "max", inputs, output_size, data_format)


@composition(Sample(((1, 5, 4, 2), (3, 3, 2, 2)), {"padding": "same"}))
def depthwise_conv(inputs: Value, kernel: Value, strides: Sizes = 1, padding: Any = "valid",
                   data_format: str | None = None, dilation_rate: Sizes = 1) -> Value:
    """A convolution of each channel with separate filters.

    Args:
        inputs: Sequences, images or volumes, with a batch and channels.
        kernel: Kernel `(*size, channels, filters per channel)`.
        strides: Step of the window. Default: `1`.
        padding: `"valid"` or `"same"`. Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`. `None` means `"channels_last"`.
            Default: `None`.
        dilation_rate: Distance between the elements that a window reads. Default: `1`.

    Returns:
        A tensor with the filters of the first channel, then those of the second, and so on.
    """
    channels, rank = kernel.shape[-2], inputs.rank
    first = data_format == "channels_first"
    x = OPS.transpose(inputs, (0, *range(2, rank), 1)) if first else inputs
    flat = OPS.reshape(kernel, (*kernel.shape[:-2], 1, channels * kernel.shape[-1]))
    y = conv(x, flat, strides, padding, dilation_rate, channels)
    return OPS.transpose(y, (0, rank - 1, *range(1, rank - 1))) if first else y


@composition(Sample(((1, 5, 4, 2), (3, 3, 2, 1), (1, 1, 2, 3))))
def separable_conv(inputs: Value, depthwise_kernel: Value, pointwise_kernel: Value,
                   strides: Sizes = 1, padding: Any = "valid", data_format: str | None = None,
                   dilation_rate: Sizes = 1) -> Value:
    """A convolution of each channel, followed by one that mixes channels at each position.

    Args:
        inputs: Sequences, images or volumes, with a batch and channels.
        depthwise_kernel: Kernel `(*size, channels, filters per channel)`.
        pointwise_kernel: Kernel `(1, ..., channels * filters per channel, filters)`.
        strides: Step of the first window. Default: `1`.
        padding: `"valid"` or `"same"`. Default: `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`. `None` means `"channels_last"`.
            Default: `None`.
        dilation_rate: Distance between the elements that the first window reads. Default: `1`.

    Returns:
        A tensor with as many channels as filters.
    """
    y = depthwise_conv(inputs, depthwise_kernel, strides, padding, data_format, dilation_rate)
    rank = inputs.rank
    if data_format != "channels_first":
        return conv(y, pointwise_kernel, 1, "valid", 1, 1)
    y = conv(OPS.transpose(y, (0, *range(2, rank), 1)), pointwise_kernel, 1, "valid", 1, 1)
    return OPS.transpose(y, (0, rank - 1, *range(1, rank - 1)))


@composition(Sample(((1, 3, 2, 4), (1, 5, 2, 4), (1, 5, 2, 4)), {"is_causal": True}))
def dot_product_attention(query: Value, key: Value, value: Value, bias: Value | None = None,
                          mask: Value | None = None, scale: float | None = None,
                          is_causal: bool = False, flash_attention: bool | None = None,
                          attn_logits_soft_cap: float | None = None) -> Value:
    """Attention with the heads as the second-last axis, as in Keras.

    Args:
        query: Queries `(batch, queries, heads, dim)`.
        key: Keys `(batch, keys, heads, dim)`. `query` may have a multiple of these heads.
        value: Values `(batch, keys, heads, dim)`.
        bias: Added to the scores `(batch, heads, queries, keys)`. `None` omits it. Default:
            `None`.
        mask: Bool tensor of that shape: true where a query may see a key. The result of a query
            that sees none is zero. Default: `None`.
        scale: Factor of the scores. `None` means `1 / sqrt(dim)`. Default: `None`.
        is_causal: Whether later keys are hidden from a query. Default: `False`.
        flash_attention: Has no effect: the compiler decides. Default: `None`.
        attn_logits_soft_cap: Soft limit of the scores, by tanh. `None` means no limit. Default:
            `None`.

    Returns:
        A tensor of the shape of `query`.
    """
    if query.rank != 4:
        raise shape_error("ops.dot_product_attention takes (batch, length, heads, dim), not",
                          query.shape)
    q, k, v = (OPS.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    if bias is None and attn_logits_soft_cap is None:
        return OPS.transpose(OPS.attention(q, k, v, mask, is_causal, scale), (0, 2, 1, 3))
    scores = scores_of(q, k, scale)
    if bias is not None:
        scores = scores + OPS.cast(bias, scores.dtype)
    if attn_logits_soft_cap is not None:
        scores = OPS.tanh(scores / attn_logits_soft_cap) * float(attn_logits_soft_cap)
    weights = weights_of_scores(scores, mask, is_causal)
    return OPS.transpose(OPS.matmul(weights, repeated_heads(v, q)), (0, 2, 1, 3))


@composition(Sample(((6,), (3,))))
def correlate(x1: Value, x2: Value, mode: str = "valid") -> Value:
    """The cross-correlation of two vectors.

    Args:
        x1: Vector of numbers.
        x2: Vector of the same dtype.
        mode: `"valid"` where both overlap completely, `"same"`, or `"full"`. Default: `"valid"`.

    Returns:
        A vector.
    """
    if mode not in ("valid", "same", "full") or x1.rank != 1 or x2.rank != 1:
        raise shape_error(f"ops.correlate(mode={mode!r}) takes vectors, and mode 'valid', 'same' "
                          "or 'full', not", x1.shape, x2.shape)
    long, short = (x1, x2) if x1.size >= x2.size else (x2, x1)
    m = short.size
    more = {"valid": (0, 0), "full": (m - 1, m - 1), "same": (m // 2, (m - 1) // 2)}[mode]
    y = OPS.matmul(OPS.windows(OPS.pad(long, more[:1], more[1:]), (0,), m), short)
    return y if long is x1 else OPS.flip(y, 0)
