"""Reductions along axes, running sums, and positions of the largest elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.padded_tensors import is_padded, masked, padded_like, real_count
from ztorch.ops.statistics import root

_PLAIN = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min",
          "ReduceProd": "prod", "ReduceLogSumExp": "logsumexp", "ReduceSumSquare": "sum",
          "ReduceL1": "sum", "ReduceL2": "sum", "ReduceLogSum": "sum"}
# Computed in floats, also for integers; the result is rounded towards zero.
_IN_FLOATS = {"ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"}


def _end(d: DType, highest: bool) -> Any:
    """The largest or the smallest number of a dtype."""
    if d is boolean:
        return highest
    if d.is_float:
        return math.inf if highest else -math.inf
    return int(getattr(np.iinfo(d.numpy), "max" if highest else "min"))


# Results of reductions of no elements, which ztorch's ops refuse.
_EMPTY: dict[str, Callable[[DType], Any]] = {
    "ReduceMax": lambda d: _end(d, False), "ReduceMin": lambda d: _end(d, True),
    "ReduceLogSumExp": lambda d: -math.inf}

# The neutral element of each reduction; 0 for all others.
_NEUTRAL: dict[str, Callable[[DType], Any]] = {
    "ReduceMax": lambda d: _end(d, False), "ReduceMin": lambda d: _end(d, True),
    "ReduceProd": lambda d: 1, "ReduceLogSumExp": lambda d: _lowest(d)}


def _lowest(d: DType) -> float:
    """The smallest finite number."""
    return float(np.finfo(d.working).min)


def _positive(x: Value, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis % x.rank for axis in axes)


@node(*_PLAIN)
def _reduce(n: Node) -> Result:
    x, axes = n.value(0), n.ints("axes", 1)
    keep, noop = bool(n.attr("keepdims", 1)), n.attr("noop_with_empty_axes", 0)
    axes = axes or (() if noop else tuple(range(x.rank)))
    if n.op in _EMPTY and any(x.shape[a] == 0 for a in axes):
        empty = OPS.sum(x if x.dtype.kind != "b" else OPS.cast(x, "int32"), axis=axes,
                        keepdims=keep)
        return OPS.full(empty.shape, _EMPTY[n.op](x.dtype), x.dtype)
    if x.dtype is boolean:
        x = masked(n, x, _positive(x, axes), n.op != "ReduceMax")
        return (OPS.any if n.op == "ReduceMax" else OPS.all)(x, axis=axes, keepdims=keep)
    dtype = x.dtype
    if n.op in _IN_FLOATS and not dtype.is_float:
        x = OPS.cast(x, "float64")
    if n.op in ("ReduceSumSquare", "ReduceL2"):
        x = x * x
    elif n.op == "ReduceL1":
        x = OPS.abs(x)
    if n.op == "ReduceMean" and is_padded(n, x, _positive(x, axes)):
        count = real_count(n, x, _positive(x, axes))
        y = OPS.sum(masked(n, x, _positive(x, axes), 0), axis=axes, keepdims=True) / count
        y = y if keep else OPS.sum(y, axis=axes)
    else:
        x = masked(n, x, _positive(x, axes), _NEUTRAL.get(n.op, lambda d: 0)(x.dtype))
        y = getattr(OPS, _PLAIN[n.op])(x, axis=axes, keepdims=keep)
    y = root(y) if n.op == "ReduceL2" else OPS.log(y) if n.op == "ReduceLogSum" else y
    return OPS.cast(y, dtype) if n.op in _IN_FLOATS else y


@node("ArgMax", "ArgMin")
def _position(n: Node) -> Result:
    x, axis = n.value(0), n.attr("axis", 0)
    last = n.attr("select_last_index", 0)
    x = masked(n, x, (axis % x.rank,), _end(x.dtype, n.op == "ArgMin"))
    x = OPS.flip(x, axis) if last else x
    y = OPS.cast((OPS.argmax if n.op == "ArgMax" else OPS.argmin)(x, axis=axis), "int64")
    y = x.shape[axis] - 1 - y if last else y
    return OPS.expand_dims(y, axis % x.rank) if n.attr("keepdims", 1) else y


@node("CumSum", "CumProd")
def _cumulative(n: Node) -> Result:
    x, axis = n.value(0), range(n.value(0).rank)[n.number(1)]
    backwards, unmasked = n.attr("reverse", 0), x
    x = masked(n, x, (axis,), 0 if n.op == "CumSum" else 1)
    x = OPS.flip(x, axis) if backwards else x
    y = (OPS.cumsum if n.op == "CumSum" else OPS.cumprod)(x, axis)
    if n.attr("exclusive", 0):
        front, length = tuple(int(k == axis) for k in range(x.rank)), x.shape[axis]
        shorter = tuple(slice(0, length - 1) if k == axis else slice(None) for k in range(x.rank))
        y = OPS.pad(y[shorter], front, (0,) * x.rank, 0 if n.op == "CumSum" else 1)
    y = OPS.flip(y, axis) if backwards else y
    return padded_like(n, y, unmasked)


@node("TopK", but="always sorted")
def _top(n: Node) -> Result:
    n.attr("sorted", 1)
    x, axis = n.value(0), range(n.value(0).rank)[n.attr("axis", -1)]
    count = int(n.number(1)) if n.opset >= 10 else n.attr("k")
    x = masked(n, x, (axis,), _end(x.dtype, not n.attr("largest", 1)))
    if n.attr("largest", 1):
        values, positions = OPS.top_k(x, count, axis=axis)
    else:
        positions = OPS.argsort(x, axis)[(slice(None),) * axis + (slice(0, count),)]
        values = OPS.take_along_axis(x, positions, axis)
    return values, OPS.cast(positions, "int64")


@node("Hardmax")
def _hardmax(n: Node) -> Result:
    x = n.value(0)
    return by_rows(n, x, lambda rows, axis: OPS.cast(OPS.equal(
        OPS.iota(rows.shape, axis), OPS.argmax(rows, axis=axis, keepdims=True)), rows.dtype))


def by_rows(n: Node, x: Value, function: Callable[[Value, int], Value]) -> Value:
    """A function along an axis; before opset 13 along all axes from that one on."""
    axis = n.attr("axis", 1 if n.opset < 13 else -1)
    axis = axis + x.rank if axis < 0 else axis
    if n.opset >= 13 or axis == x.rank - 1:
        axis = range(x.rank)[axis]
        if not is_padded(n, x, (axis,)):
            return function(x, axis)
        return padded_like(n, function(masked(n, x, (axis,), _lowest(x.dtype)), axis), x)
    flat = OPS.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return OPS.reshape(function(flat, 1), x.shape)
