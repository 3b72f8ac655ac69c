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
    Pairs,
    Shape,
    channels_first,
    channels_last,
    pads_of,
    per_axis,
    with_ends,
)
from ztorch.interchange.onnx.padded_tensors import is_padded, masked, real_count
from ztorch.ir.opcodes import identity
from ztorch.layers.padded_axes import Mask
from ztorch.layers.real_positions import spread
from ztorch.ops.statistics import root
from ztorch.ops.windows import pad_axes, spans


@dataclass(frozen=True)
class _Geometry:
    """The attributes of a pool, a number for each axis of positions."""

    size: Shape
    stride: Shape
    dilation: Shape
    pads: Pairs
    rounds_up: bool  # ceil_mode: a last window may end beyond the input
    counts_padding: bool  # an average counts the elements of `pads`

    @property
    def span(self) -> Shape:
        """Positions from the first to the last element of a window."""
        return spans(self.size, self.dilation)


@dataclass(frozen=True)
class _Windows:
    """Windows over positions."""

    values: Value  # (batch, *positions, *window, channels)
    axes: Shape  # of the window
    counts: Value | float  # of elements that an average counts at each position
    padded: dict[int, Mask] | None  # the padded axes of positions; None: rows are not padded

    def reduced(self, n: Node, y: Value) -> Value:
        """The reduction of windows, channels first."""
        return channels_first(y if self.padded is None else
                              n.context.padding.declare(y, self.padded))


def _geometry(n: Node, lengths: Shape) -> _Geometry:
    count = len(lengths)
    size = per_axis(n, "kernel_shape", count)
    stride, dilation = per_axis(n, "strides", count), per_axis(n, "dilations", count)
    return _Geometry(size, stride, dilation, pads_of(n, lengths, spans(size, dilation), stride),
                     bool(n.attr("ceil_mode", 0)), bool(n.attr("count_include_pad", 0)))


def _windows(n: Node, x: Value, fill: float) -> _Windows:
    """The windows of x (channels last), padded with a number."""
    g, count = _geometry(n, x.shape[1:-1]), x.rank - 2
    is_open = is_padded(n, x, range(1, x.rank - 1))
    reach = [(a, min(b + s - 1, k - 1) if g.rounds_up and is_open else b)
             for (a, b), k, s in zip(g.pads, g.span, g.stride, strict=True)]
    wide, pads, padded = with_ends(n, x, g.span, g.stride, reach, fill)
    added = _last_windows(g, wide.shape[1:-1], pads, g.rounds_up and not is_open)
    low = tuple(a for a, _ in pads)
    high = tuple(b + c for (_, b), c in zip(pads, added, strict=True))
    values = OPS.windows(pad_axes(wide, low, high, fill), tuple(range(1, count + 1)), g.size,
                         g.stride, g.dilation)
    last = x.rank - 1
    values = OPS.transpose(values, (*range(last), *range(last + 1, values.rank), last))
    return _Windows(values, tuple(range(last, values.rank - 1)),
                    _counts(n, x, g, values.shape, is_open), padded)


def _last_windows(g: _Geometry, lengths: Shape, pads: Pairs, rounds_up: bool) -> list[int]:
    """How many elements each axis needs after its pads so that its last window fits."""
    added = []
    for m, k, s, (a, b) in zip(lengths, g.span, g.stride, pads, strict=True):
        room = m + a + b - k
        if room < 0:
            raise ValueError(f"windows of {g.span} do not fit inputs of {lengths}")
        last = -(-room // s) if rounds_up else room // s
        if rounds_up and last * s >= m + a and last > 0:  # it would start after the input
            last -= 1
        added.append(max(last * s - room, 0))
    return added


def _counts(n: Node, x: Value, g: _Geometry, shape: Shape, is_open: bool) -> Value | float:
    """How many elements an average counts at each position; `shape`: of the windows."""
    counts: np.ndarray = np.ones((1,) * x.rank)
    row_counts: Value | float = 1.0  # along axes where rows end at different positions
    for axis, (m, k, s, d, (before, after)) in enumerate(
            zip(x.shape[1:-1], g.size, g.stride, g.dilation, g.pads, strict=True), 1):
        if shape[axis] * k > 16 * LIMIT:
            raise ValueError(f"{shape[axis]} windows of {k}")
        at = np.arange(shape[axis])[:, None] * s - before + np.arange(k) * d
        real = at < m + after if g.counts_padding else (at >= 0) & (at < m)
        mask = n.context.padding.of(x).get(axis) if is_open else None
        if mask is not None and g.counts_padding:
            if g.rounds_up:
                n.mixes("count_include_pad=1 with ceil_mode=1: leave one of them out")
            real = np.ones_like(real)
        elif mask is not None:
            ends = OPS.reshape(OPS.sum(OPS.cast(mask.value, "int32"), 1), (-1, 1, 1))
            inside = OPS.bitwise_and(constant(at >= 0),
                                     OPS.less(constant(at.astype(np.int32)), ends))
            row_counts = row_counts * OPS.maximum(
                spread(OPS.sum(OPS.cast(inside, x.dtype), 2), x.rank, axis), 1.0)
            continue
        counts = counts * real.sum(1).reshape([-1 if a == axis else 1 for a in range(x.rank)])
    is_constant = counts.min() == counts.max()
    return row_counts * (float(counts.max()) if is_constant else constant(counts, x.dtype))


@node("MaxPool")
def _max_pool(n: Node) -> Result:
    x = channels_last(n.value(0))
    windows = _windows(n, x, identity("max", x.dtype))
    values, axes = windows.values, windows.axes
    y = windows.reduced(n, OPS.max(values, axis=axes))
    if not any(n.spec.outputs[1:]):
        return y
    if windows.padded:
        n.mixes("positions of the largest elements, which count through the whole image")
    sizes = n.shape(0)[2:]
    number = np.arange(math.prod(sizes)).reshape(sizes, order="F" if n.attr("storage_order", 0)
                                                 else "C")
    last = math.prod(sizes)  # of padding: after all positions, as its number may be the largest
    positions = _windows(n, constant(number[None, ..., None], "int64"), last).values
    first = OPS.equal(values, OPS.max(values, axis=axes, keepdims=True))
    before = OPS.iota((*n.shape(0)[:2], *(1,) * len(sizes)), 0, "int64") * n.shape(0)[1]
    before = before + OPS.iota((*n.shape(0)[:2], *(1,) * len(sizes)), 1, "int64")
    at = OPS.min(OPS.where(first, positions, last), axis=axes)
    return y, channels_first(at) + before * last


@node("LpPool")
def _lp_pool(n: Node) -> Result:
    p = n.attr("p", 2)
    x = OPS.abs(channels_last(n.value(0)))
    windows = _windows(n, x * x if p == 2 else OPS.power(x, float(p)), 0)
    return windows.reduced(n, _root(OPS.sum(windows.values, axis=windows.axes), p))


@node("GlobalLpPool")
def _global_lp_pool(n: Node) -> Result:
    x, p = OPS.abs(n.value(0)), n.attr("p", 2)
    x = masked(n, x, range(2, x.rank), 0)
    powers = x * x if p == 2 else OPS.power(x, float(p))
    return _root(OPS.sum(powers, axis=tuple(range(2, x.rank)), keepdims=True), p)


def _root(x: Value, p: int) -> Value:
    return x if p == 1 else root(x, p)


def average_pooled(n: Node, x: Value) -> Value:
    """The means of windows over positions, channels first."""
    windows = _windows(n, channels_last(x), 0)
    return windows.reduced(n, OPS.sum(windows.values, axis=windows.axes) / windows.counts)


@node("AveragePool")
def _average_pool(n: Node) -> Result:
    return average_pooled(n, n.value(0))


@node("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(n: Node) -> Result:
    x = n.value(0)
    axes = tuple(range(2, x.rank))
    if n.op == "GlobalMaxPool":
        return OPS.max(masked(n, x, axes, identity("max", x.dtype)), axis=axes, keepdims=True)
    if not is_padded(n, x, axes):
        return OPS.mean(x, axis=axes, keepdims=True)
    return OPS.sum(masked(n, x, axes, 0), axis=axes, keepdims=True) / real_count(n, x, axes)
