"""Convolutions and pooling. ONNX has channels first: inputs are turned on the way in and out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import LIMIT, Node, Result, node
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
    x, kernel = channels_last(n.value(0)), n.value(1)
    count = kernel.rank - 2
    if x.rank != kernel.rank:
        raise ValueError(f"inputs of {x.rank} axes and a kernel of {kernel.rank}")
    stride, dilation = _each(n, "strides", count), _each(n, "dilations", count)
    pads = _pads(n, x.shape[1:-1], spans(kernel.shape[2:], dilation), stride)
    kernel = OPS.transpose(kernel, (*range(2, kernel.rank), 1, 0))
    y = OPS.conv(x, kernel, stride, pads, dilation, n.attr("group", 1))
    return channels_first(y + n.value(2) if n.has(2) else y)


@node("ConvTranspose", but="no auto_pad or output_shape")
def _conv_transpose(n: Node) -> Result:
    n.only(auto_pad="NOTSET", output_shape=None)
    x, kernel = channels_last(n.value(0)), n.value(1)
    count, groups = kernel.rank - 2, n.attr("group", 1)
    stride, dilation = _each(n, "strides", count), _each(n, "dilations", count)
    extra = n.ints("output_padding") or (0,) * count
    pads = _pads(n, (0,) * count, (0,) * count, stride)
    if x.rank != kernel.rank or x.shape[-1] != kernel.shape[0] or x.shape[-1] % groups:
        raise ValueError(f"inputs {n.shape(0)} and kernel {kernel.shape} in {groups} groups")
    kernel = OPS.transpose(kernel, (*range(2, kernel.rank), 1, 0))
    each = x.shape[-1] // groups
    parts = [OPS.conv_transpose(x[..., k:k + each], kernel[..., k:k + each], stride, "valid",
                                dilation, extra) for k in range(0, x.shape[-1], each)]
    y = OPS.concat(*parts, axis=-1)
    kept = tuple(slice(a, m - b) for m, (a, b) in zip(y.shape[1:-1], pads, strict=True))
    key = (slice(None), *kept, slice(None))
    y = y[key]
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


@node("MaxPool", but="no indices, row-major only")
def _max_pool(n: Node) -> Result:
    n.only_first_output()
    x = channels_last(n.value(0))
    seen, places, _ = _windows(n, x, identity("max", x.dtype))
    return channels_first(OPS.max(seen, axis=places))


@node("AveragePool")
def _average_pool(n: Node) -> Result:
    seen, places, counts = _windows(n, channels_last(n.value(0)), 0)
    return channels_first(OPS.sum(seen, axis=places) / counts)


@node("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(n: Node) -> Result:
    x = n.value(0)
    along = OPS.mean if n.op == "GlobalAveragePool" else OPS.max
    return along(x, axis=tuple(range(2, x.rank)), keepdims=True)


# -- larger ----------------------------------------------------------------------------------------


@node("Resize", but="nearest and linear; no antialias, no crop and resize")
def _resize(n: Node) -> Result:
    n.only(antialias=0, exclude_outside=0, keep_aspect_ratio_policy="stretch")
    x, mode = n.value(0), n.attr("mode", "nearest")
    if mode not in ("nearest", "linear"):
        n.unsupported(f"mode={mode!r}; only 'nearest' and 'linear' are taken")
    axes = [range(x.rank)[a] for a in n.ints("axes") or range(x.rank)]
    if n.has(3) and n.array(3).size:
        lengths = [int(m) for m in n.array(3).reshape(-1)]
        scales = [m / x.shape[a] for m, a in zip(lengths, axes, strict=True)]
    else:
        scales = [float(s) for s in n.array(2).reshape(-1)]
        lengths = [math.floor(x.shape[a] * s) for s, a in zip(scales, axes, strict=True)]
    for axis, length, scale in zip(axes, lengths, scales, strict=True):
        if length < 1 or length * x.shape[axis] > 16 * LIMIT:
            raise ValueError(f"{x.shape[axis]} elements of an axis made {length}")
        if length != x.shape[axis] or scale != 1.0:
            at = _sources(n, x.shape[axis], length, scale)
            x = _nearest(n, x, axis, at) if mode == "nearest" else _linear(n, x, axis, at)
    return x


def _sources(n: Node, old: int, new: int, scale: Any) -> np.ndarray:
    """Where each new element lies among the old ones; in float32, as ONNX Runtime has it, for
    rounding decides which of two neighbours is the nearest."""
    mode = n.attr("coordinate_transformation_mode", "half_pixel")
    k, scale = np.arange(new, dtype=np.float32), np.float32(scale)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and new > 1):
        return (k + np.float32(0.5)) / scale - np.float32(0.5)
    if mode == "pytorch_half_pixel":
        return np.zeros(1)
    if mode == "asymmetric":
        return k / scale
    if mode == "align_corners":
        return k * ((old - 1) / (new - 1) if new > 1 else 0.0)
    n.unsupported(f"coordinate_transformation_mode={mode!r}")


def _nearest(n: Node, x: Value, axis: int, at: np.ndarray) -> Value:
    mode = n.attr("nearest_mode", "round_prefer_floor")
    rounded: dict[str, Callable[..., Any]] = {
        "floor": np.floor, "ceil": np.ceil, "round_prefer_floor": lambda a: np.ceil(a - 0.5),
        "round_prefer_ceil": lambda a: np.floor(a + 0.5)}
    if mode not in rounded:
        raise ValueError(f"nearest_mode={mode!r}")
    index = np.clip(rounded[mode](at), 0, x.shape[axis] - 1).astype(np.int32)
    times, rest = divmod(len(index), x.shape[axis])
    if not rest and np.array_equal(index, np.repeat(np.arange(x.shape[axis]), times)):
        before, m, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1:]
        wide = OPS.broadcast_to(OPS.expand_dims(x, axis + 1), (*before, m, times, *after))
        return OPS.reshape(wide, (*before, m * times, *after))
    return OPS.take(x, constant(index), axis=axis)


def _linear(n: Node, x: Value, axis: int, at: np.ndarray) -> Value:
    """Multiplies by a matrix with the share of each old element in each new one."""
    old = x.shape[axis]
    at = np.clip(at, 0, old - 1)
    low = np.floor(at).astype(int)
    matrix, rows = np.zeros((len(at), old)), np.arange(len(at))
    matrix[rows, low] += 1 - (at - low)
    matrix[rows, np.minimum(low + 1, old - 1)] += at - low
    before, after = x.shape[:axis], x.shape[axis + 1:]
    flat = OPS.reshape(x, (math.prod(before), old, math.prod(after)))
    return OPS.reshape(OPS.matmul(constant(matrix, x.dtype), flat), (*before, len(at), *after))


@node("DepthToSpace", "SpaceToDepth")
def _blocks(n: Node) -> Result:
    x, b = n.value(0), n.attr("blocksize")
    batch, channels, height, width = x.shape
    if n.op == "SpaceToDepth":
        parts = OPS.reshape(x, (batch, channels, height // b, b, width // b, b))
        return OPS.reshape(OPS.transpose(parts, (0, 3, 5, 1, 2, 4)),
                           (batch, channels * b * b, height // b, width // b))
    if n.attr("mode", "DCR") == "DCR":
        parts, order = OPS.reshape(x, (batch, b, b, -1, height, width)), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = OPS.reshape(x, (batch, -1, b, b, height, width)), (0, 1, 4, 2, 5, 3)
    return OPS.reshape(OPS.transpose(parts, order), (batch, -1, height * b, width * b))
