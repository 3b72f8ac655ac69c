"""Adaptive pools, unpooling, windows, differences, histograms and masks."""

from __future__ import annotations

import math

import numpy as np

from ztorch.interchange.torch_export.calls.movement import END, axis_of, part
from ztorch.interchange.torch_export.translation import OperatorCall, Result, call


@call(*(f"{way}adaptive_{kind}_pool{axes}d" for way, kind in (
    ("", "avg"), ("_", "avg"), ("", "max")) for axes in (1, 2, 3) if not way or axes > 1))
def _adaptive_pool(c: OperatorCall) -> Result:
    """Pools one axis after another, with windows whose sizes may differ by one."""
    x, axes = c.tensor(), int(c.op[-2])
    sizes = c.integers("output_size")
    sizes = sizes * axes if len(sizes) == 1 else sizes
    kind, last = "Max" if "max" in c.op else "Average", range(x.rank - axes, x.rank)
    if set(sizes) == {1} and x.rank == axes + 2:
        return c.node(f"Global{kind}Pool", x.name)
    before = [n for n in x.dims[-axes:] if isinstance(n, int)]
    if len(before) < axes:
        c.unsupported("windows of an open axis")
    if x.rank == axes + 2 and not any(n % size for n, size in zip(before, sizes, strict=True)):
        window = [n // size for n, size in zip(before, sizes, strict=True)]
        return c.node(f"{kind}Pool", x.name, kernel_shape=window, strides=window)
    y = x.name
    for axis, n, size in zip(last, before, sizes, strict=True):
        spans = [(k * n // size, -(-(k + 1) * n // size)) for k in range(size)]
        if kind == "Max":
            widest = max(end - start for start, end in spans)
            at = np.array([np.minimum(np.arange(start, start + widest), end - 1)
                           for start, end in spans])
            y = c.node("ReduceMax", c.node("Gather", y, c.constant(at), axis=axis),
                       c.ints(axis + 1), keepdims=0)
        else:
            shares = np.zeros((n, size), x.dtype.working)
            for k, (start, end) in enumerate(spans):
                shares[start:end, k] = 1 / (end - start)
            order = list(range(x.rank))
            order[axis], order[-1] = order[-1], order[axis]
            product = c.node("MatMul", c.node("Transpose", y, perm=order), c.constant(shares))
            y = c.node("Transpose", product, perm=order)
    return y


@call("max_unpool2d", "max_unpool3d")
def _max_unpool(c: OperatorCall) -> Result:
    x, sizes = c.tensor(), c.integers("output_size")
    front = x.rank - len(sizes)
    ahead = c.node("Shape", x.name, start=0, end=front)
    flat = c.node("Concat", ahead, c.ints(-1), axis=0)
    empty = c.node("Expand", c.number(0, x.dtype), c.node(
        "Concat", ahead, c.ints(math.prod(sizes)), axis=0))
    y = c.node("ScatterElements", empty, c.node("Reshape", c.x("indices"), flat),
               c.node("Reshape", x.name, flat), axis=front)
    return c.node("Reshape", y, c.node("Concat", ahead, c.ints(*sizes), axis=0))


@call("unfold", "unfold_copy")
def _windows(c: OperatorCall) -> Result:
    x, axis = c.tensor(), axis_of(c, c.tensor(), "dimension")
    length, [size], [step] = x.dims[axis], c.integers("size"), c.integers("step")
    if not isinstance(length, int):
        c.unsupported("windows along an open axis")
    starts = np.arange(0, length - size + 1, step)
    y = c.node("Gather", x.name, c.constant(starts[:, None] + np.arange(size)), axis=axis)
    others = [k for k in range(x.rank + 1) if k != axis + 1]
    return c.node("Transpose", y, perm=[*others, axis + 1])


@call("diff")
def _differences(c: OperatorCall) -> Result:
    x, axis = c.tensor(), axis_of(c, c.tensor(), default=-1)
    if not (x.dtype.is_float or x.dtype.is_int):
        c.unsupported("differences of booleans")
    ends = [c.get("prepend"), x, c.get("append")]
    y = c.node("Concat", *(v.name for v in ends if v is not None), axis=axis)
    for _ in range(c.get("n", 1)):
        y = c.node("Sub", part(c, y, axis, 1, END), part(c, y, axis, 0, -1))
    return y


@call("histc")
def _histogram(c: OperatorCall) -> Result:
    x, bins, low, high = c.tensor(), c.get("bins", 100), c.get("min", 0), c.get("max", 0)
    if low >= high:
        c.unsupported("bins between the smallest and the largest element; pass min= and max=")
    flat, end = c.node("Reshape", x.name, c.ints(-1, 1)), c.number(high, x.dtype)
    share = c.node("Mul", c.node("Sub", flat, c.number(low, x.dtype)),
                   c.number(bins / (high - low), x.dtype))
    last = c.node("Equal", flat, end)  # belongs to the last bin
    at = c.node("Where", last, c.number(bins - 1, x.dtype), c.node("Floor", share))
    same = c.node("Equal", at, c.constant(np.arange(bins).astype(x.dtype.working)))
    return c.node("ReduceSum", c.node("Cast", same, to=x.dtype.onnx), c.ints(0), keepdims=0)


@call("masked_scatter")
def _masked_scatter(c: OperatorCall) -> Result:
    """The k-th element where the mask is true becomes the k-th element of the source."""
    x, flat_shape = c.tensor(), c.ints(-1)
    shape = c.node("Shape", x.name)
    mask = c.node("Expand", c.x("mask"), shape)
    count = c.node("CumSum", c.node("Reshape", c.node("Cast", mask, to=7), flat_shape),
                   c.constant(np.int64(0)))
    at = c.node("Max", c.node("Sub", count, c.constant(np.int64(1))), c.constant(np.int64(0)))
    values = c.node("Gather", c.node("Reshape", c.x("source"), flat_shape), at, axis=0)
    return c.node("Where", mask, c.node("Reshape", values, shape), x.name)


@call("renorm")
def _renormalized(c: OperatorCall) -> Result:
    """Scales parts along an axis down to a maximum norm."""
    x, order, axis = c.tensor(), c.get("p"), axis_of(c, c.tensor())
    if order not in (1, 2):
        c.unsupported(f"a norm of order {order}")
    other_axes = c.ints(*(k for k in range(x.rank) if k != axis))
    norm = c.node(f"ReduceL{int(order)}", x.name, other_axes, keepdims=1)
    max_norm = c.get("maxnorm")
    scale = c.node("Div", c.number(max_norm, x.dtype), c.node("Add", norm, c.number(1e-7, x.dtype)))
    large = c.node("Greater", norm, c.number(max_norm, x.dtype))
    return c.node("Mul", x.name, c.node("Where", large, scale, c.number(1, x.dtype)))
