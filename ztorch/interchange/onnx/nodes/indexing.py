"""Gather and other ops that read elements at positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.known import constant_numbers
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.padded_tensors import is_padded, part_of


def from_front(indices: Value, size: int) -> Value:
    """Positions counted from the start; negative ones count from the end."""
    return OPS.where(OPS.less(indices, 0), indices + size, indices)


@node("Gather", but="positions that depend on the data are clipped to the axis")
def _gather(n: Node) -> Result:
    x, indices = n.value(0), n.input(1)
    axis = range(x.rank)[n.attr("axis", 0)]
    size = x.shape[axis]
    if isinstance(indices, Value):
        n.context.need_range(indices, -size, size - 1)
        return OPS.take(x, from_front(indices, size), axis=axis)
    index = n.array(1)
    if index.size == 1 and is_padded(n, x, {axis}):
        at, from_end = int(index.reshape(())), bool(n.varies_with_sizes(1, 1)[0])
        first = at % size
        y = part_of(n, x, axis, first, first + 1, 1, (from_end or at < 0, at < 0 or from_end))
        return OPS.reshape(y, (*x.shape[:axis], *index.shape, *x.shape[axis + 1:]))
    if index.size and not (-size <= index.min() and index.max() < size):
        raise ValueError(f"positions {index.min()} to {index.max()} on an axis of {size}")
    index = np.where(index < 0, index + size, index).astype(np.int32)
    if index.ndim == 0:
        before = (slice(None),) * axis
        key = (*before, int(index))
        return x[key]
    return OPS.take(x, constant(index), axis=axis)


@node("GatherElements", but="positions that depend on the data are clipped to the axis")
def _gather_elements(n: Node) -> Result:
    x, indices = n.value(0), n.value(1)
    axis = range(x.rank)[n.attr("axis", 0)]
    inside = tuple(slice(0, m if k != axis else None) for k, m in enumerate(indices.shape))
    return OPS.take_along_axis(x[inside], from_front(indices, x.shape[axis]), axis)


def flat_positions(indices: Value, sizes: Sequence[int]) -> Value:
    """Positions along several axes as one flat position each."""
    at = OPS.full(indices.shape[:-1], 0, indices.dtype)
    for k, size in enumerate(sizes):
        at = at * size + from_front(indices[..., k], size)
    return at


def own_axes(x: Value, indices: Value, batch: int = 0) -> int:
    """How many axes behind those of the batch the indices share with x: each of their lines reads
    or writes its own line there, as in `x[arange(rows), at]`."""
    columns = indices.args if indices.op.name == "concat" else (indices,)
    if not x.size or len(columns) != indices.shape[-1]:
        return 0
    rank = indices.rank - 1
    for k, (axis, column) in enumerate(zip(range(batch, rank), columns, strict=False)):
        size = indices.shape[axis]
        at = constant_numbers(column) if size == x.shape[axis] else None
        ramp = np.arange(size).reshape(-1, *(1,) * (rank - axis))
        if at is None or not (at == ramp).all():
            return k
    return max(0, min(len(columns), rank - batch))


@node("GatherND", but="positions that depend on the data must be in range")
def _gather_nd(n: Node) -> Result:
    x, indices, batch = n.value(0), n.value(1), n.attr("batch_dims", 0)
    depth = indices.shape[-1]
    own = own_axes(x, indices, batch)
    sizes, inner = x.shape[batch + own:batch + depth], x.shape[batch + depth:]
    rows, count = math.prod(x.shape[:batch + own]), math.prod(sizes)
    at = OPS.reshape(flat_positions(indices[..., own:], sizes), (rows, -1))
    at = OPS.reshape(at + OPS.iota(at.shape, 0, at.dtype) * count, (-1,))
    y = OPS.take(OPS.reshape(x, (rows * count, -1)), at, 0)
    return OPS.reshape(y, (*indices.shape[:-1], *inner))


# -- parts ---------------------------------------------------------------------------------------


@node("TensorScatter", moves=True)
def _tensor_scatter(n: Node) -> Result:
    cache, update = n.value(0), n.value(1)
    axis, mode = range(cache.rank)[n.attr("axis", -2)], n.attr("mode", "linear")
    longest, length = cache.shape[axis], update.shape[axis]
    shape = tuple(m if k in (0, axis) else 1 for k, m in enumerate(cache.shape))
    start = (OPS.cast(n.value(2), "int32") if n.has(2) else OPS.zeros((cache.shape[0],), "int32"))
    start = OPS.reshape(start, (-1, *(1,) * (cache.rank - 1)))
    from_start = OPS.iota(shape, axis) - start
    if mode == "circular":
        from_start = OPS.remainder(from_start, longest)
    inside = OPS.bitwise_and(OPS.greater_equal(from_start, 0), OPS.less(from_start, length))
    at = OPS.broadcast_to(OPS.clip(from_start, 0, length - 1), cache.shape)
    return OPS.where(inside, OPS.take_along_axis(update, at, axis), cache)


@node("ReverseSequence")
def _reverse_sequence(n: Node) -> Result:
    x, lengths = n.value(0), OPS.cast(n.value(1), "int32")
    rows, time = n.attr("batch_axis", 1), n.attr("time_axis", 0)
    at = OPS.iota(x.shape, time)
    lengths = OPS.reshape(lengths, tuple(-1 if k == rows else 1 for k in range(x.rank)))
    reversed_positions = OPS.where(OPS.less(at, lengths), lengths - 1 - at, at)
    return OPS.take_along_axis(x, reversed_positions, time)


# -- positions that must be constant ---------------------------------------------------------------


@node("Compress", but="a constant condition")
def _compress(n: Node) -> Result:
    x, positions = n.value(0), np.flatnonzero(n.array(1)).astype(np.int32)
    axis = n.attr("axis")
    if axis is None:
        x, axis = OPS.reshape(x, (-1,)), 0
    return OPS.take(x, constant(positions), range(x.rank)[axis])


@node("NonZero", but="of a constant tensor")
def _non_zero(n: Node) -> Result:
    return np.argwhere(n.array(0)).T.astype(np.int64)


@node("Unique", but="of a constant tensor")
def _unique(n: Node) -> Result:
    axis = n.attr("axis")
    values, first, inverse, counts = np.unique(n.array(0), True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not n.attr("sorted", 1):
        order = np.argsort(first)
        rank = np.argsort(order)
        values = np.take(values, order, axis or 0)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return n.numbers_like(0, values), *(a.astype(np.int64) for a in (first, inverse, counts))


@node("SearchSorted", domain="ztorch")
def _search_sorted(n: Node) -> Result:
    """For programs of torch.export."""
    return OPS.searchsorted(*n.values(), side=n.attr("side"))
