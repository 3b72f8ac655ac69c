"""Convolutions. ONNX has channels first, so their inputs and results are transposed."""

from __future__ import annotations

import math

from ztorch.dtypes import boolean
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.known import LIMIT
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.nodes.casts import requantized, shifted
from ztorch.interchange.onnx.nodes.scattering import scattered
from ztorch.interchange.onnx.padded_tensors import is_padded, masked, resized
from ztorch.layers.padded_axes import Mask
from ztorch.layers.windows import Window, framed
from ztorch.ops.windows import pad_axes, spans

Shape = tuple[int, ...]
Pairs = list[tuple[int, int]]


def channels_last(x: Value) -> Value:
    """(batch, channels, ...) as (batch, ..., channels)."""
    return OPS.transpose(x, (0, *range(2, x.rank), 1))


def channels_first(x: Value) -> Value:
    """(batch, ..., channels) as (batch, channels, ...)."""
    return OPS.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def per_axis(n: Node, name: str, count: int) -> Shape:
    """An attribute with a number for each of `count` axes; ones if the node lacks it."""
    numbers = n.ints(name) or (1,) * count
    if len(numbers) != count or not 1 <= min(numbers) <= max(numbers) <= LIMIT:
        raise ValueError(f"{name}={numbers} for {count} axes")
    return numbers


def pads_of(n: Node, lengths: Shape, span: Shape, stride: Shape) -> Pairs:
    """(before, after) of each axis, from `pads` or `auto_pad`."""
    count, auto_pad = len(lengths), n.attr("auto_pad", "NOTSET")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        total = [max((-(-m // s) - 1) * s + k - m, 0)
                 for m, k, s in zip(lengths, span, stride, strict=True)]
        return [(t // 2, t - t // 2) if auto_pad == "SAME_UPPER" else (t - t // 2, t // 2)
                for t in total]
    pads = (n.ints("pads") if auto_pad == "NOTSET" else None) or (0,) * (2 * count)
    if len(pads) != 2 * count or not 0 <= min(pads) <= max(pads) <= LIMIT:
        raise ValueError(f"pads={pads} for {count} axes")
    return list(zip(pads[:count], pads[count:], strict=True))


def with_ends(n: Node, x: Value, span: Shape, stride: Shape, pads: Pairs,
              fill: float) -> tuple[Value, Pairs, dict[int, Mask] | None]:
    """x (channels last), padded where windows read beyond the real ends of its rows; the pads that
    remain; and the padded axes of the result, or None if x has no padded rows."""
    if not is_padded(n, x, range(1, x.rank - 1)):
        return x, pads, None
    if n.attr("auto_pad", "NOTSET") == "SAME_LOWER" and max(stride) > 1:
        n.mixes("auto_pad='SAME_LOWER' with strides: export it with pads=")
    same = n.attr("auto_pad", "NOTSET") == "SAME_UPPER"
    windows = [Window(k, s, "same" if same else pair if any(pair) else "valid")
               for k, s, pair in zip(span, stride, pads, strict=True)]
    x, padded = framed(x, 1, windows, fill, n.context)
    return x, [(0, 0)] * len(pads), padded


@node("Conv")
def _conv(n: Node) -> Result:
    y = convolved(n, n.value(0), n.value(1))
    return channels_first(y + n.value(2) if n.has(2) else y)


@node("ConvInteger")
def _conv_integer(n: Node) -> Result:
    return channels_first(convolved(n, shifted(n, 0, 2), shifted(n, 1, 3, 0)))


@node("QLinearConv")
def _quantized_conv(n: Node) -> Result:
    y = convolved(n, shifted(n, 0, 2), shifted(n, 3, 5, 0))
    y = y + n.value(8) if n.has(8) else y
    quantized = requantized(n, y, n.value(1) * n.value(4), 6)
    assert isinstance(quantized, Value)  # the standard has no floats of few bits here
    return channels_first(quantized)


def convolved(n: Node, x: Value, kernel: Value) -> Value:
    """The convolution, channels last."""
    x, count = channels_last(x), kernel.rank - 2
    if x.rank != kernel.rank:
        raise ValueError(f"inputs of {x.rank} axes and a kernel of {kernel.rank}")
    stride, dilation = per_axis(n, "strides", count), per_axis(n, "dilations", count)
    span = spans(kernel.shape[2:], dilation)
    x, pads, padded = with_ends(n, x, span, stride, pads_of(n, x.shape[1:-1], span, stride), 0)
    kernel = OPS.transpose(kernel, (*range(2, kernel.rank), 1, 0))
    y: Value = OPS.conv(x, kernel, stride, pads, dilation, n.attr("group", 1))
    return y if padded is None else n.context.padding.declare(y, padded)


def _crops(n: Node, lengths: Shape, full_sizes: Shape, stride: Shape) -> Pairs:
    """How many elements of a transposed convolution are cut off at both ends of each axis; below
    zero: how many zeros are added."""
    shape, auto_pad = n.ints("output_shape"), n.attr("auto_pad", "NOTSET")
    if shape is None and auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        return pads_of(n, (0,) * len(lengths), (0,) * len(lengths), stride)
    shape = (shape[-len(lengths):] if shape is not None else
             tuple(m * s for m, s in zip(lengths, stride, strict=True)))
    total = [m - size for m, size in zip(full_sizes, shape, strict=True)]
    upper = auto_pad == "SAME_UPPER"
    return [(t // 2, t - t // 2) if upper and t > 0 else (t - t // 2, t // 2) for t in total]


@node("ConvTranspose")
def _conv_transpose(n: Node) -> Result:
    full_x, kernel = channels_last(n.value(0)), n.value(1)
    x = masked(n, full_x, range(1, full_x.rank - 1), 0)
    count, groups = kernel.rank - 2, n.attr("group", 1)
    stride, dilation = per_axis(n, "strides", count), per_axis(n, "dilations", count)
    extra = n.ints("output_padding") or (0,) * count
    if x.rank != kernel.rank or x.shape[-1] != kernel.shape[0] or x.shape[-1] % groups:
        raise ValueError(f"inputs {n.shape(0)} and kernel {kernel.shape} in {groups} groups")
    kernel = OPS.transpose(kernel, (*range(2, kernel.rank), 1, 0))
    width = x.shape[-1] // groups
    parts = [OPS.conv_transpose(x[..., k:k + width], kernel[..., k:k + width], stride, "valid",
                                dilation, extra) for k in range(0, x.shape[-1], width)]
    y = OPS.concat(*parts, axis=-1)
    crops = _crops(n, x.shape[1:-1], y.shape[1:-1], stride)
    inner = tuple(slice(max(a, 0), m - max(b, 0))
                  for m, (a, b) in zip(y.shape[1:-1], crops, strict=True))
    key = (slice(None), *inner, slice(None))
    low, high = (tuple(max(-pair[k], 0) for pair in crops) for k in (0, 1))
    y = pad_axes(y[key], low, high, 0)
    if n.ints("output_shape") is None:
        y = resized(n, y, full_x, {axis: (s, y.shape[axis] - s * full_x.shape[axis], 1)
                                   for axis, s in enumerate(stride, 1)})
    elif is_padded(n, full_x, range(1, full_x.rank - 1)):
        n.mixes("output_shape= along an open axis: export it with pads= and output_padding=")
    return channels_first(y + n.value(2) if n.has(2) else y)


@node("MaxUnpool")
def _max_unpool(n: Node) -> Result:
    x, at = n.value(0), n.value(1)
    count = x.rank - 2
    size, stride = per_axis(n, "kernel_shape", count), per_axis(n, "strides", count)
    pads = pads_of(n, (0,) * count, (0,) * count, stride)
    sizes = tuple((m - 1) * s - a - b + k for m, s, (a, b), k in zip(
        x.shape[2:], stride, pads, size, strict=True))
    shape = (*x.shape[:2], *sizes)
    empty = OPS.zeros((1, math.prod(shape), 1), x.dtype)
    at, x = (OPS.reshape(v, (1, -1, 1)) for v in (at, x))
    y = OPS.reshape(scattered(n, empty, at, x), shape)
    if not n.has(2):
        return y
    missing = tuple(int(a) - b for a, b in zip(n.array(2), shape, strict=True))
    return OPS.pad(y, (0,) * y.rank, missing)


@node("Col2Im")
def _col2im(n: Node) -> Result:
    if n.value(0).dtype is boolean:  # true where any of them is
        return OPS.not_equal(_fold(n, OPS.cast(n.value(0), "int32")), 0)
    return _fold(n, n.value(0))


def _fold(n: Node, x: Value) -> Value:
    """Adds up columns at the positions that their windows come from."""
    image, block = (tuple(int(m) for m in n.array(k)) for k in (1, 2))
    count = len(image)
    dilation, stride = per_axis(n, "dilations", count), per_axis(n, "strides", count)
    pads = n.ints("pads") or (0,) * (2 * count)
    wide = tuple(m + a + b for m, a, b in zip(image, pads[:count], pads[count:], strict=True))
    moves = tuple((m - k) // s + 1 for m, k, s in zip(wide, spans(block, dilation), stride,
                                                      strict=True))
    x = OPS.reshape(x, (x.shape[0], -1, *block, *moves))
    order = (0, 1, *range(2 + count, 2 + 2 * count), *range(2, 2 + count))
    y = OPS.overlap_add(OPS.transpose(x, order), tuple(range(2, 2 + count)), wide, stride, dilation)
    inner = tuple(slice(a, a + m) for a, m in zip(pads[:count], image, strict=True))
    key = (slice(None), slice(None), *inner)
    return y[key]


@node("DepthToSpace", "SpaceToDepth")
def _blocks(n: Node) -> Result:
    x, b = n.value(0), n.attr("blocksize")
    batch, channels, height, width = x.shape
    if n.op == "SpaceToDepth":
        parts = OPS.reshape(x, (batch, channels, height // b, b, width // b, b))
        by_block = n.attr("mode", "DCR") == "DCR"
        y = OPS.reshape(OPS.transpose(parts, (0, 3, 5, 1, 2, 4) if by_block else
                                      (0, 1, 3, 5, 2, 4)),
                        (batch, channels * b * b, height // b, width // b))
        return resized(n, y, x, {2: (1, 0, b), 3: (1, 0, b)})
    if n.attr("mode", "DCR") == "DCR":
        parts, order = OPS.reshape(x, (batch, b, b, -1, height, width)), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = OPS.reshape(x, (batch, -1, b, b, height, width)), (0, 1, 4, 2, 5, 3)
    y = OPS.reshape(OPS.transpose(parts, order), (batch, -1, height * b, width * b))
    return resized(n, y, x, {2: (b, 0, 1), 3: (b, 0, 1)})
