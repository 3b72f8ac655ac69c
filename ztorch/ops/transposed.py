"""Transposed convolutions of any number of axes, channels last: convolutions for each phase of the
stride, one of all phases for few filters, or a matrix product, then a fold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.convolution import ROWS, WIDE, need_ranks, window_slices
from ztorch.ops.phases import transposed, transposed_at_once
from ztorch.ops.windows import Shape, Sizes, for_each, spans


def transpose_crops(size: int, stride: int, padding: str, extra: int | None) -> Shape:
    """(before, after) that Keras cuts from all that the windows reach; less than 0 adds zeros."""
    if padding == "valid":
        return 0, -max(stride - size, 0) if extra is None else -extra
    total = stride + size - 2 if extra is None else size + size % 2 - 2 + extra
    before = min(total - total // 2, size - 1)
    return size - 1 - before, size - 1 - (total - before)


def _conv_transpose_numpy(x: Any, kernel: Any, stride: Sizes = 1, padding: str = "valid",
                          dilation: Sizes = 1, output_padding: Sizes | None = None) -> Any:
    size = kernel.shape[:-2]
    stride, dilation = (for_each("", n, len(size)) for n in (stride, dilation))
    span, lengths = spans(size, dilation), x.shape[1:-1]
    extra = (output_padding,) * len(size) if not isinstance(output_padding, tuple) else (
        output_padding)
    ends = [(n - 1) * s + k for n, s, k in zip(lengths, stride, span, strict=True)]
    y = np.zeros((len(x), *(n + s for n, s in zip(ends, stride, strict=True)), kernel.shape[-2]),
                 x.dtype)
    for place in np.ndindex(*size):
        y[window_slices(place, lengths, stride, dilation)] += x @ kernel[place].T
    cuts = [transpose_crops(k, s, padding, o) for k, s, o in zip(span, stride, extra, strict=True)]
    middle = (slice(None), *(slice(a, n - b) for n, (a, b) in zip(ends, cuts, strict=True)))
    return y[middle]


@op(Sample(((2, 4, 3), (3, 2, 3)), {"stride": 2}),
    Sample(((1, 3, 4, 2), (3, 2, 3, 2)), {"stride": (2, 3), "padding": "same"}),
    Sample(((1, 3, 2, 2), (2, 3, 1, 2)), {"dilation": 2, "padding": "same"}),
    Sample(((1, 3, 3, 1), (3, 3, 2, 1)), {"stride": 2, "padding": "same", "output_padding": 1}),
    Sample(((1, 3, 4, 2), (3, 2, 8, 2)), {"stride": (2, 3), "padding": "same"}),
    Sample(((1, 5, 2), (3, 8, 2)), {"dilation": 2, "padding": "same"}),
    Sample(((2, 3, 2), (4, 9, 2)), {"stride": 2, "output_padding": 1}),
    Sample(((1, 3, 2, 2), (4, 2, 2, 2)), {"stride": 2, "output_padding": (1, 0)}),
    numpy=_conv_transpose_numpy)
def conv_transpose(x: Value, kernel: Value, stride: Sizes = 1, padding: str = "valid",
                   dilation: Sizes = 1, output_padding: Sizes | None = None) -> Value:
    """A transposed convolution: the gradient of `conv` with respect to its input.

    Each element of x adds its multiple of the kernel to the result, `stride` apart.

    Args:
        x: Inputs `(batch, *axes, channels)`, floats.
        kernel: Kernel `(*window, filters, channels)`, of the same dtype.
        stride: Distance between the windows of neighbors: an integer, or one for each axis.
            Default: `1`.
        padding: `"valid"` for all that windows reach, or `"same"` for `length * stride` outputs.
            Default: `"valid"`.
        dilation: Distance between the elements that a window writes: an integer, or one for each
            axis. Default: `1`.
        output_padding: Number of outputs beyond the fewest: an integer, or one for each axis.
            `None` derives it from `padding`. Default: `None`.

    Returns:
        A tensor `(batch, *new axes, filters)`.

    Examples:
        >>> from ztorch.graph.op import leaf
        >>> x = leaf("input", "x", (1, 7, 7, 8), "float32")
        >>> conv_transpose(x, leaf("state", "k", (3, 3, 4, 8), "float32"), 2, "same").shape
        (1, 14, 14, 4)
    """
    need_ranks(x, kernel)
    *size, filters, into = kernel.shape
    count = len(size)
    stride, dilation = (for_each(label, sizes, count)
                        for label, sizes in (("stride", stride), ("dilation", dilation)))
    if x.shape[-1] != into:
        raise shape_error("channels of inputs and kernel do not fit:", x.shape, kernel.shape,
                          fix=f"the inputs' last axis must be {into}")
    if padding not in ("valid", "same"):
        raise shape_error(f"padding {padding!r} is neither 'valid' nor 'same'")
    extra = output_padding if isinstance(output_padding, tuple) else (output_padding,) * count
    span = spans(tuple(size), dilation)
    cuts = [transpose_crops(k, s, padding, o) for k, s, o in zip(span, stride, extra, strict=True)]
    low = tuple(a for a, _ in cuts)
    lengths = tuple((n - 1) * s + k - a - b for n, s, k, (a, b) in zip(
        x.shape[1:-1], stride, span, cuts, strict=True))
    if filters >= WIDE and (set(stride) == {1} or set(dilation) == {1}):
        return transposed(x, kernel, low, lengths, stride, dilation, 1)
    whole = all(k % s == 0 for k, s in zip(size, stride, strict=True)) and tuple(size) != stride
    if whole and filters * math.prod(stride) >= WIDE and set(dilation) == {1}:
        return transposed_at_once(x, kernel, low, lengths, stride)
    matrix = OPS.transpose(OPS.reshape(kernel, (math.prod(size) * filters, into)))
    left = ROWS(OPS.reshape(OPS.matmul(x, matrix), (*x.shape[:-1], *size, filters)))
    last = x.rank - 1
    left = OPS.transpose(left, (*range(last), left.rank - 1, *range(last, left.rank - 1)))
    lengths = tuple((n - 1) * s + k + max(0, -cut[1])
                    for n, s, k, cut in zip(x.shape[1:-1], stride, span, cuts, strict=True))
    result = OPS.overlap_add(left, tuple(range(1, last)), lengths, stride, dilation)
    start = (0, *(a for a, _ in cuts), 0)
    cropped = tuple(n - a - max(0, b) for n, (a, b) in zip(lengths, cuts, strict=True))
    return OPS.slice(result, start, (1,) * x.rank, (x.shape[0], *cropped, filters))
