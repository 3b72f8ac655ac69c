"""Convolutions and pooling. ONNX has channels first: inputs are turned on the way in and out."""

from __future__ import annotations

import math

import numpy as np

from ztorch.dtypes import boolean
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import LIMIT, Node, Result, node
from ztorch.interchange.onnx.nodes.casts import requantized, shifted
from ztorch.interchange.onnx.nodes.indexing import scattered
from ztorch.ir.opcodes import identity
from ztorch.ops.windows import pad_axes, spans

Shape = tuple[int, ...]
Pairs = list[tuple[int, int]]


def channels_last(x: Value) -> Value:
    return OPS.transpose(x, (0, *range(2, x.rank), 1))


def channels_first(x: Value) -> Value:
    return OPS.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def _each(n: Node, name: str, count: int) -> Shape:
    numbers = n.ints(name) or (1,) * count
    if len(numbers) != count or not 1 <= min(numbers) <= max(numbers) <= LIMIT:
        raise ValueError(f"{name}={numbers} for {count} axes")
    return numbers


def _pads(n: Node, lengths: Shape, span: Shape, stride: Shape) -> Pairs:
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
    whole = requantized(n, y, n.value(1) * n.value(4), 6)
    assert isinstance(whole, Value)  # the standard has no codes here
    return channels_first(whole)


def convolved(n: Node, x: Value, kernel: Value) -> Value:
    """The convolution, channels last."""
    x, count = channels_last(x), kernel.rank - 2
    if x.rank != kernel.rank:
        raise ValueError(f"inputs of {x.rank} axes and a kernel of {kernel.rank}")
    stride, dilation = _each(n, "strides", count), _each(n, "dilations", count)
    pads = _pads(n, x.shape[1:-1], spans(kernel.shape[2:], dilation), stride)
    kernel = OPS.transpose(kernel, (*range(2, kernel.rank), 1, 0))
    y: Value = OPS.conv(x, kernel, stride, pads, dilation, n.attr("group", 1))
    return y


def _cut_off(n: Node, lengths: Shape, whole: Shape, stride: Shape) -> Pairs:
    """How many elements a transposed convolution loses at both ends of each axis; below zero: how
    many zeros it gains."""
    shape, auto_pad = n.ints("output_shape"), n.attr("auto_pad", "NOTSET")
    if shape is None and auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        return _pads(n, (0,) * len(lengths), (0,) * len(lengths), stride)
    shape = (shape[-len(lengths):] if shape is not None else
             tuple(m * s for m, s in zip(lengths, stride, strict=True)))
    total = [m - wanted for m, wanted in zip(whole, shape, strict=True)]
    upper = auto_pad == "SAME_UPPER"
    return [(t // 2, t - t // 2) if upper and t > 0 else (t - t // 2, t // 2) for t in total]


@node("ConvTranspose")
def _conv_transpose(n: Node) -> Result:
    x, kernel = channels_last(n.value(0)), n.value(1)
    count, groups = kernel.rank - 2, n.attr("group", 1)
    stride, dilation = _each(n, "strides", count), _each(n, "dilations", count)
    extra = n.ints("output_padding") or (0,) * count
    if x.rank != kernel.rank or x.shape[-1] != kernel.shape[0] or x.shape[-1] % groups:
        raise ValueError(f"inputs {n.shape(0)} and kernel {kernel.shape} in {groups} groups")
    kernel = OPS.transpose(kernel, (*range(2, kernel.rank), 1, 0))
    each = x.shape[-1] // groups
    parts = [OPS.conv_transpose(x[..., k:k + each], kernel[..., k:k + each], stride, "valid",
                                dilation, extra) for k in range(0, x.shape[-1], each)]
    y = OPS.concat(*parts, axis=-1)
    cut = _cut_off(n, x.shape[1:-1], y.shape[1:-1], stride)
    kept = tuple(slice(max(a, 0), m - max(b, 0))
                 for m, (a, b) in zip(y.shape[1:-1], cut, strict=True))
    key = (slice(None), *kept, slice(None))
    low, high = (tuple(max(-pair[k], 0) for pair in cut) for k in (0, 1))
    y = pad_axes(y[key], low, high, 0)
    return channels_first(y + n.value(2) if n.has(2) else y)


# -- pooling ---------------------------------------------------------------------------------------


def _windows(n: Node, x: Value, value: float) -> tuple[Value, Shape, Value | float]:
    """x (channels last) as (batch, *positions, *window, channels), the axes of the window, and the
    number of elements that an average counts at each position."""
    count = x.rank - 2
    size = _each(n, "kernel_shape", count)
    stride, dilation = _each(n, "strides", count), _each(n, "dilations", count)
    span, lengths = spans(size, dilation), x.shape[1:-1]
    pads = _pads(n, lengths, span, stride)
    more = []  # elements that ceil_mode adds so that a last window fits
    for m, k, s, (a, b) in zip(lengths, span, stride, pads, strict=True):
        room = m + a + b - k
        if room < 0:
            raise ValueError(f"windows of {span} do not fit inputs of {lengths}")
        last = -(-room // s) if n.attr("ceil_mode", 0) else room // s
        if last * s >= m + a and last > 0:  # it would begin behind the inputs
            last -= 1 if n.attr("ceil_mode", 0) else 0
        more.append(max(last * s - room, 0))
    low = tuple(a for a, _ in pads)
    high = tuple(b + c for (_, b), c in zip(pads, more, strict=True))
    seen = OPS.windows(pad_axes(x, low, high, value), tuple(range(1, count + 1)), size, stride,
                       dilation)
    last = x.rank - 1
    seen = OPS.transpose(seen, (*range(last), *range(last + 1, seen.rank), last))
    counts: np.ndarray = np.ones((1,) * x.rank)
    for axis, (m, k, s, d, (a, b)) in enumerate(
            zip(lengths, size, stride, dilation, pads, strict=True), 1):
        if seen.shape[axis] * k > 16 * LIMIT:
            raise ValueError(f"{seen.shape[axis]} windows of {k}")
        at = np.arange(seen.shape[axis])[:, None] * s - a + np.arange(k) * d
        real = (at >= -a) & (at < m + b) if n.attr("count_include_pad", 0) else (at >= 0) & (at < m)
        counts = counts * real.sum(1).reshape([-1 if a == axis else 1 for a in range(x.rank)])
    alike = counts.min() == counts.max()
    return seen, tuple(range(last, seen.rank - 1)), (
        float(counts.max()) if alike else constant(counts, x.dtype))


@node("MaxPool")
def _max_pool(n: Node) -> Result:
    x = channels_last(n.value(0))
    seen, places, _ = _windows(n, x, identity("max", x.dtype))
    y = channels_first(OPS.max(seen, axis=places))
    if not any(n.spec.outputs[1:]):
        return y
    sizes = n.shape(0)[2:]
    number = np.arange(math.prod(sizes)).reshape(sizes, order="F" if n.attr("storage_order", 0)
                                                 else "C")
    positions, _, _ = _windows(n, constant(number[None, ..., None], "int64"), 0)
    first = OPS.equal(seen, OPS.max(seen, axis=places, keepdims=True))
    before = OPS.iota((*n.shape(0)[:2], *(1,) * len(sizes)), 0, "int64") * n.shape(0)[1]
    before = before + OPS.iota((*n.shape(0)[:2], *(1,) * len(sizes)), 1, "int64")
    last = math.prod(sizes)
    at = OPS.min(OPS.where(first, positions, last), axis=places)
    return y, channels_first(at) + before * last


@node("MaxUnpool")
def _max_unpool(n: Node) -> Result:
    x, at = n.value(0), n.value(1)
    count = x.rank - 2
    size, stride = _each(n, "kernel_shape", count), _each(n, "strides", count)
    pads = _pads(n, (0,) * count, (0,) * count, stride)
    sizes = tuple((m - 1) * s - a - b + k for m, s, (a, b), k in zip(
        x.shape[2:], stride, pads, size, strict=True))
    shape = (*x.shape[:2], *sizes)
    empty = OPS.zeros((math.prod(shape), 1), x.dtype)
    y = OPS.reshape(scattered(n, empty, OPS.reshape(at, (-1,)), OPS.reshape(x, (-1, 1))), shape)
    if not n.has(2):
        return y
    more = tuple(int(a) - b for a, b in zip(n.array(2), shape, strict=True))
    return OPS.pad(y, (0,) * y.rank, more)


@node("LpPool")
def _lp_pool(n: Node) -> Result:
    p = n.attr("p", 2)
    x = OPS.abs(channels_last(n.value(0)))
    seen, places, _ = _windows(n, x * x if p == 2 else OPS.power(x, float(p)), 0)
    return channels_first(_root(OPS.sum(seen, axis=places), p))


@node("GlobalLpPool")
def _global_lp_pool(n: Node) -> Result:
    x, p = OPS.abs(n.value(0)), n.attr("p", 2)
    powers = x * x if p == 2 else OPS.power(x, float(p))
    return _root(OPS.sum(powers, axis=tuple(range(2, x.rank)), keepdims=True), p)


def _root(x: Value, p: int) -> Value:
    y: Value = x if p == 1 else OPS.sqrt(x) if p == 2 else OPS.power(x, 1 / p)
    return y


@node("Col2Im")
def _col2im(n: Node) -> Result:
    if n.value(0).dtype is boolean:  # whether any of them is true
        return OPS.not_equal(_added_up(n, OPS.cast(n.value(0), "int32")), 0)
    return _added_up(n, n.value(0))


def _added_up(n: Node, x: Value) -> Value:
    """Sums of the columns of windows where they come from."""
    image, block = (tuple(int(m) for m in n.array(k)) for k in (1, 2))
    count = len(image)
    dilation, stride = _each(n, "dilations", count), _each(n, "strides", count)
    pads = n.ints("pads") or (0,) * (2 * count)
    wide = tuple(m + a + b for m, a, b in zip(image, pads[:count], pads[count:], strict=True))
    moves = tuple((m - k) // s + 1 for m, k, s in zip(wide, spans(block, dilation), stride,
                                                      strict=True))
    x = OPS.reshape(x, (x.shape[0], -1, *block, *moves))
    order = (0, 1, *range(2 + count, 2 + 2 * count), *range(2, 2 + count))
    y = OPS.fold(OPS.transpose(x, order), tuple(range(2, 2 + count)), wide, stride, dilation)
    kept = tuple(slice(a, a + m) for a, m in zip(pads[:count], image, strict=True))
    key = (slice(None), slice(None), *kept)
    return y[key]


def average_pooled(n: Node, x: Value) -> Value:
    """The means of windows over positions, channels first."""
    seen, places, counts = _windows(n, channels_last(x), 0)
    return channels_first(OPS.sum(seen, axis=places) / counts)


@node("AveragePool")
def _average_pool(n: Node) -> Result:
    return average_pooled(n, n.value(0))


@node("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(n: Node) -> Result:
    x = n.value(0)
    along = OPS.mean if n.op == "GlobalAveragePool" else OPS.max
    return along(x, axis=tuple(range(2, x.rank)), keepdims=True)


@node("DepthToSpace", "SpaceToDepth")
def _blocks(n: Node) -> Result:
    x, b = n.value(0), n.attr("blocksize")
    batch, channels, height, width = x.shape
    if n.op == "SpaceToDepth":
        parts = OPS.reshape(x, (batch, channels, height // b, b, width // b, b))
        by_block = n.attr("mode", "DCR") == "DCR"
        return OPS.reshape(OPS.transpose(parts, (0, 3, 5, 1, 2, 4) if by_block else
                                         (0, 1, 3, 5, 2, 4)),
                           (batch, channels * b * b, height // b, width // b))
    if n.attr("mode", "DCR") == "DCR":
        parts, order = OPS.reshape(x, (batch, b, b, -1, height, width)), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = OPS.reshape(x, (batch, -1, b, b, height, width)), (0, 1, 4, 2, 5, 3)
    return OPS.reshape(OPS.transpose(parts, order), (batch, -1, height * b, width * b))
