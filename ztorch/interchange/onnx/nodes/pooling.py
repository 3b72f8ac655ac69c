"""Pooling: reductions of windows over positions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.known import LIMIT
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.nodes.convolution import (
    Shape,
    channels_first,
    channels_last,
    each,
    pads_of,
    with_ends,
)
from ztorch.interchange.onnx.real_parts import hidden, is_padded, real_count
from ztorch.ir.opcodes import identity
from ztorch.layers.padded_axes import Mask
from ztorch.layers.real_positions import spread
from ztorch.ops.windows import pad_axes, spans


@dataclass(frozen=True)
class _Windows:
    """Windows over positions."""

    values: Value  # (batch, *positions, *window, channels)
    places: Shape  # the axes of the window
    counts: Value | float  # of elements that an average counts at each position
    padded: dict[int, Mask] | None  # axes of positions that are filled up, if any may be

    def reduced(self, n: Node, y: Value) -> Value:
        """The reduction of windows, channels first."""
        return channels_first(y if self.padded is None else
                              n.context.padding.declare(y, self.padded))


def _windows(n: Node, x: Value, value: float) -> _Windows:
    """The windows of x (channels last), with a number around it."""
    count = x.rank - 2
    size = each(n, "kernel_shape", count)
    stride, dilation = each(n, "strides", count), each(n, "dilations", count)
    span, lengths = spans(size, dilation), x.shape[1:-1]
    pads = pads_of(n, lengths, span, stride)
    rounds_up = bool(n.attr("ceil_mode", 0))
    filled = is_padded(n, x, range(1, x.rank - 1))
    reach = [(a, min(b + s - 1, k - 1) if rounds_up and filled else b)
             for (a, b), k, s in zip(pads, span, stride, strict=True)]
    framed_x, rest, padded = with_ends(n, x, span, stride, reach, value)
    more = []  # elements that ceil_mode adds so that a last window fits
    for m, k, s, (a, b) in zip(framed_x.shape[1:-1], span, stride, rest, strict=True):
        room = m + a + b - k
        if room < 0:
            raise ValueError(f"windows of {span} do not fit inputs of {lengths}")
        last = -(-room // s) if rounds_up and not filled else room // s
        if last * s >= m + a and last > 0:  # it would begin behind the inputs
            last -= 1 if rounds_up and not filled else 0
        more.append(max(last * s - room, 0))
    low = tuple(a for a, _ in rest)
    high = tuple(b + c for (_, b), c in zip(rest, more, strict=True))
    seen = OPS.windows(pad_axes(framed_x, low, high, value), tuple(range(1, count + 1)), size,
                       stride, dilation)
    last = x.rank - 1
    seen = OPS.transpose(seen, (*range(last), *range(last + 1, seen.rank), last))
    counts: np.ndarray = np.ones((1,) * x.rank)
    of_rows: Value | float = 1.0  # where rows end at different places
    for axis, (m, k, s, d, pair) in enumerate(
            zip(lengths, size, stride, dilation, pads, strict=True), 1):
        if seen.shape[axis] * k > 16 * LIMIT:
            raise ValueError(f"{seen.shape[axis]} windows of {k}")
        at = np.arange(seen.shape[axis])[:, None] * s - pair[0] + np.arange(k) * d
        real = at < m + pair[1] if n.attr("count_include_pad", 0) else (at >= 0) & (at < m)
        mask = n.context.padding.of(x).get(axis) if filled else None
        if mask is not None and n.attr("count_include_pad", 0):
            if rounds_up:
                n.mixes("count_include_pad=1 with ceil_mode=1: leave one of them out")
            real = real | True
        elif mask is not None:
            ends = OPS.reshape(OPS.sum(OPS.cast(mask.value, "int32"), 1), (-1, 1, 1))
            inside = OPS.bitwise_and(constant(at >= 0), OPS.less(constant(at.astype(np.int32)),
                                                                 ends))
            of_rows = of_rows * OPS.maximum(spread(OPS.sum(OPS.cast(inside, x.dtype), 2),
                                                   x.rank, axis), 1.0)
            continue
        counts = counts * real.sum(1).reshape([-1 if a == axis else 1 for a in range(x.rank)])
    alike = counts.min() == counts.max()
    return _Windows(seen, tuple(range(last, seen.rank - 1)), of_rows * (
        float(counts.max()) if alike else constant(counts, x.dtype)), padded)


@node("MaxPool")
def _max_pool(n: Node) -> Result:
    x = channels_last(n.value(0))
    windows = _windows(n, x, identity("max", x.dtype))
    seen, places = windows.values, windows.places
    y = windows.reduced(n, OPS.max(seen, axis=places))
    if not any(n.spec.outputs[1:]):
        return y
    if windows.padded:
        n.mixes("positions of largest elements: they count all of an image")
    sizes = n.shape(0)[2:]
    number = np.arange(math.prod(sizes)).reshape(sizes, order="F" if n.attr("storage_order", 0)
                                                 else "C")
    positions = _windows(n, constant(number[None, ..., None], "int64"), 0).values
    first = OPS.equal(seen, OPS.max(seen, axis=places, keepdims=True))
    before = OPS.iota((*n.shape(0)[:2], *(1,) * len(sizes)), 0, "int64") * n.shape(0)[1]
    before = before + OPS.iota((*n.shape(0)[:2], *(1,) * len(sizes)), 1, "int64")
    last = math.prod(sizes)
    at = OPS.min(OPS.where(first, positions, last), axis=places)
    return y, channels_first(at) + before * last


@node("LpPool")
def _lp_pool(n: Node) -> Result:
    p = n.attr("p", 2)
    x = OPS.abs(channels_last(n.value(0)))
    windows = _windows(n, x * x if p == 2 else OPS.power(x, float(p)), 0)
    return windows.reduced(n, _root(OPS.sum(windows.values, axis=windows.places), p))


@node("GlobalLpPool")
def _global_lp_pool(n: Node) -> Result:
    x, p = OPS.abs(n.value(0)), n.attr("p", 2)
    x = hidden(n, x, range(2, x.rank), 0)
    powers = x * x if p == 2 else OPS.power(x, float(p))
    return _root(OPS.sum(powers, axis=tuple(range(2, x.rank)), keepdims=True), p)


def _root(x: Value, p: int) -> Value:
    y: Value = x if p == 1 else OPS.sqrt(x) if p == 2 else OPS.power(x, 1 / p)
    return y


def average_pooled(n: Node, x: Value) -> Value:
    """The means of windows over positions, channels first."""
    windows = _windows(n, channels_last(x), 0)
    return windows.reduced(n, OPS.sum(windows.values, axis=windows.places) / windows.counts)


@node("AveragePool")
def _average_pool(n: Node) -> Result:
    return average_pooled(n, n.value(0))


@node("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(n: Node) -> Result:
    x = n.value(0)
    axes = tuple(range(2, x.rank))
    if n.op == "GlobalMaxPool":
        return OPS.max(hidden(n, x, axes, identity("max", x.dtype)), axis=axes, keepdims=True)
    if not is_padded(n, x, axes):
        return OPS.mean(x, axis=axes, keepdims=True)
    return OPS.sum(hidden(n, x, axes, 0), axis=axes, keepdims=True) / real_count(n, x, axes)
