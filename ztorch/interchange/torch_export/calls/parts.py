"""Operators that read parts of a tensor, and operators that write into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ztorch.dtypes import boolean, i64
from ztorch.interchange.torch_export.calls.movement import END, axis_of, part
from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call


@dataclass(frozen=True)
class TensorPart:
    """Elements of a tensor along one axis."""

    axis: int
    start: int | CallTensor
    end: int | CallTensor
    step: int = 1
    is_one: bool = False  # one position; the part lacks its axis


def parts_of(c: OperatorCall) -> list[TensorPart]:
    """The part of its tensor that each result of a call is."""
    x = c.tensor()
    axis = {"hsplit": min(x.rank - 1, 1), "vsplit": 0, "dsplit": 2}.get(c.op, axis_of(c, x))
    if c.op.startswith("slice"):
        return [TensorPart(axis, c.get("start", 0), c.get("end", END), c.get("step", 1))]
    if c.op.startswith("narrow"):
        [start], [length] = c.integers("start"), c.integers("length")
        return [TensorPart(axis, start, start + length)]
    if c.op.startswith("select"):
        index = c.get("index")
        return [_at_position(axis, index)]
    if c.op.startswith("unbind"):
        return [_at_position(axis, k) for k in range(len(c.result_names))]
    sizes = _sizes(c, x, axis)
    return [TensorPart(axis, end - n, end) for n, end in zip(sizes, accumulate(sizes), strict=True)]


def _at_position(axis: int, index: int | CallTensor) -> TensorPart:
    return TensorPart(axis, index, (index + 1 or END) if isinstance(index, int) else index, 1, True)


def _sizes(c: OperatorCall, x: CallTensor, axis: int) -> list[int]:
    """The size of each part of a split."""
    size: Any = c.get("split_size", c.get("split_sizes"))
    if size is None:
        axis_size = x.dims[axis]
        if not isinstance(axis_size, int):
            c.unsupported("chunks of an open axis")
        if (ends := c.get("indices")) is not None:
            boundaries = [0, *(slice(n).indices(axis_size)[1] for n in ends), axis_size]
            return [b - a for a, b in pairwise(boundaries)]
        if (count := c.get("sections")) is not None:
            return [axis_size // count + (k < axis_size % count) for k in range(count)]
        size = -(-axis_size // c.get("chunks"))
    if isinstance(size, int):
        size = [size] * len(c.result_names)
    if not all(isinstance(n, int) for n in size):
        c.unsupported("parts whose sizes depend on shapes")
    return list(size)


@call("slice.Tensor", "narrow", "select.int", "unbind.int", "split.Tensor", "split_with_sizes",
      "split.sizes", "chunk", "slice_copy.Tensor", "narrow_copy", "select_copy.int",
      "unbind_copy.int", "split_copy.Tensor", "split_with_sizes_copy", "unsafe_split.Tensor",
      "unsafe_split_with_sizes", "unsafe_chunk", *(f"{op}.{form}" for op, forms in (
          ("tensor_split", ("sections", "indices")), ("hsplit", ("int", "array")),
          ("vsplit", ("int", "array")), ("dsplit", ("int", "array"))) for form in forms))
def _parts(c: OperatorCall) -> Result:
    return [_read_part(c, c.x(), at) for at in parts_of(c)]


def _read_part(c: OperatorCall, x: str, at: TensorPart) -> str:
    if at.is_one:
        index = at.start.name if isinstance(at.start, CallTensor) else c.constant(
            np.int64(at.start))
        return c.node("Gather", x, index, axis=at.axis)
    return part(c, x, at.axis, at.start, at.end, at.step)


# -- writing ---------------------------------------------------------------------------------------


def with_part(c: OperatorCall, x: CallTensor, y: str, at: TensorPart) -> str:
    """A tensor with y written into a part of it."""
    size, first = x.dims[at.axis], c.ints(0)
    if at.is_one:
        y = c.node("Unsqueeze", y, c.ints(at.axis))
    if isinstance(size, int) and isinstance(at.start, int) and isinstance(at.end, int):
        start, end, step = slice(at.start, at.end, at.step).indices(size)
        if step == 1:
            before = [part(c, x.name, at.axis, 0, start)] if start else []
            after = [part(c, x.name, at.axis, end, size)] if end < size else []
            return c.node("Concat", *before, y, *after, axis=at.axis) if before or after else y
    axis_size = c.node("Gather", c.node("Shape", x.name), c.constant(np.int64(at.axis)), axis=0)
    axis_positions = c.node("Range", c.constant(np.int64(0)), axis_size, c.constant(np.int64(1)))
    if at.is_one and isinstance(at.start, CallTensor):
        indices = c.node("Unsqueeze", at.start.name, first)
    else:
        indices = part(c, axis_positions, 0, at.start, at.end, at.step)
    order = [at.axis, *(k for k in range(x.rank) if k != at.axis)]
    result = c.node("ScatterND", c.node("Transpose", x.name, perm=order),
                    c.node("Unsqueeze", indices, c.ints(1)), c.node("Transpose", y, perm=order))
    return c.node("Transpose", result, perm=np.argsort(order).tolist())


@call("slice_scatter", "select_scatter")
def _scattered(c: OperatorCall) -> Result:
    x, source = c.tensor(), c.tensor("src")
    return with_part(c, x, c.cast(source, x.dtype), parts_of(c)[0])


@call("copy")
def _copy(c: OperatorCall) -> Result:
    x = c.tensor()
    return c.node("Expand", c.cast(c.tensor("src"), x.dtype), c.node("Shape", x.name))


@call("fill.Scalar", "fill.Tensor", "zero")
def _fill(c: OperatorCall) -> Result:
    x = c.tensor()
    return c.node("Expand", c.number(c.get("value", 0), x.dtype), c.node("Shape", x.name))


def positions(c: OperatorCall, indices: Sequence[CallTensor]) -> tuple[str, str]:
    """Positions along several axes, as GatherND and ScatterND take them, and zeros in the shape
    that the indices broadcast to."""
    zero = c.constant(np.int64(0))
    names = [c.cast(index, i64) for index in indices]
    zeros = c.node("Expand", zero, c.node("Shape", names[0]))
    for name in names[1:]:
        zeros = c.node("Add", zeros, c.node("Expand", zero, c.node("Shape", name)))
    last = c.ints(-1)
    parts = [c.node("Unsqueeze", c.node("Add", name, zeros), last) for name in names]
    return c.node("Concat", *parts, axis=-1), zeros


@call("index.Tensor")
def _index(c: OperatorCall) -> Result:
    x, indices = c.tensor(), c.get("indices")
    used = [(k, index) for k, index in enumerate(indices) if index is not None]
    is_mask = any(not index.dtype.is_int for _, index in used)
    if is_mask and (len(used) > 1 or used[0][1].rank > 1):
        c.unsupported("a boolean index of several axes, or beside others")
    if len(used) == 1:
        [(axis, index)] = used
        if is_mask:  # a constant one, or Compress is unsupported
            return c.node("Compress", x.name, index.name, axis=axis)
        return c.node("Gather", x.name, index.name, axis=axis)
    axes = [k for k, _ in used]
    other_axes = [k for k in range(x.rank) if k not in axes]
    front = x.name if axes == list(range(len(axes))) else c.node(
        "Transpose", x.name, perm=[*axes, *other_axes])
    y = c.node("GatherND", front, positions(c, [index for _, index in used])[0])
    before = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    if not before:  # positions come first if their axes are separated
        return y
    rank = max(index.rank for _, index in used)
    return c.node("Transpose", y, perm=[
        *range(rank, rank + before), *range(rank), *range(rank + before, rank + len(other_axes))])


@call("index_put")
def _index_put(c: OperatorCall) -> Result:
    x, indices, values = c.tensor(), c.get("indices"), c.tensor("values")
    if len(indices) == 1 and indices[0].dtype is boolean:
        if values.rank:
            c.unsupported("a boolean index, whose number of elements depends on the data")
        mask = indices[0]
        last = c.ints(*range(mask.rank, x.rank))
        wide = c.node("Unsqueeze", mask.name, last) if mask.rank < x.rank else mask.name
        return c.node("Where", wide, c.cast(values, x.dtype), x.name)
    axes = [k for k, index in enumerate(indices) if index is not None]
    used = [indices[k] for k in axes]
    if not all(index.dtype.is_int for index in used):
        c.unsupported("a boolean index, whose number of elements depends on the data")
    other_axes = [k for k in range(x.rank) if k not in axes]
    at, zeros = positions(c, used)
    rank = max(index.rank for index in used)
    before = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    sizes = [c.node("Gather", c.node("Shape", x.name), c.ints(*ks), axis=0) if ks else c.ints()
             for ks in (other_axes[:before], other_axes[before:])]
    shape = c.node("Concat", sizes[0], c.node("Shape", zeros), sizes[1], axis=0)
    update = c.node("Expand", c.cast(values, x.dtype), shape)
    ordered = c.node("Transpose", update, perm=[*range(before, before + rank), *range(before),
                                                *range(before + rank, rank + len(other_axes))])
    order = [*axes, *other_axes]
    y = c.node("ScatterND", c.node("Transpose", x.name, perm=order), at, ordered,
               reduction="add" if c.get("accumulate", False) else None)
    return c.node("Transpose", y, perm=np.argsort(order).tolist())


@call("scatter.src", "scatter.value", "scatter_add")
def _scatter(c: OperatorCall) -> Result:
    x, index = c.tensor(), c.tensor("index")
    update: str = (c.node("Expand", c.number(c.get("value"), x.dtype), c.node("Shape", index.name))
                   if c.op == "scatter" and "value" in c.spec.inputs else c.x("src"))
    source = c.get("src")
    if isinstance(source, CallTensor) and source.dims != index.dims:
        ends = c.node("Shape", index.name)
        update = c.node("Slice", update, c.ints(*[0] * index.rank), ends)
    return c.node("ScatterElements", x.name, index.name, update, axis=axis_of(c, x),
                  reduction="add" if c.op == "scatter_add" else None)


_REDUCTIONS = {"sum": ("add", 0.0), "prod": ("mul", 1.0), "mean": ("add", 0.0),
               "amax": ("max", -np.inf), "amin": ("min", np.inf)}


@call("scatter_reduce.two")
def _scatter_reduce(c: OperatorCall) -> Result:
    x, index, source = c.tensor(), c.tensor("index"), c.tensor("src")
    (reduction, neutral), axis = _REDUCTIONS[c.get("reduce")], axis_of(c, x)
    mean, includes_self = c.get("reduce") == "mean", c.get("include_self", True)
    if not x.dtype.is_float and (mean or not includes_self):
        c.unsupported("a mean of integers, or include_self=False with integers")
    update, base = source.name, x.name
    if source.dims != index.dims:
        update = c.node("Slice", update, c.ints(*[0] * index.rank), c.node("Shape", index.name))
    one, zero = c.number(1, x.dtype), c.number(0, x.dtype)
    if mean or not includes_self:
        start = c.node("Expand", one if includes_self else zero, c.node("Shape", x.name))
        ones = c.node("Expand", one, c.node("Shape", index.name))
        counts = c.node("ScatterElements", start, index.name, ones, axis=axis, reduction="add")
    if not includes_self:
        base = c.node("Where", c.node("Greater", counts, zero), c.number(neutral, x.dtype), base)
    y = c.node("ScatterElements", base, index.name, update, axis=axis, reduction=reduction)
    return c.node("Div", y, c.node("Max", counts, one)) if mean else y


@call("index_add", "index_copy")
def _index_add(c: OperatorCall) -> Result:
    x, index, source = c.tensor(), c.tensor("index"), c.tensor("source")
    axis, alpha = axis_of(c, x), c.get("alpha", 1)
    added = source.name if alpha == 1 else c.node(
        "Mul", source.name, c.number(alpha, source.dtype))
    order = [axis, *(k for k in range(x.rank) if k != axis)]
    y = c.node("ScatterND", c.node("Transpose", x.name, perm=order),
               c.node("Unsqueeze", index.name, c.ints(-1)),
               c.node("Transpose", added, perm=order),
               reduction="add" if c.op == "index_add" else None)
    return c.node("Transpose", y, perm=np.argsort(order).tolist())
