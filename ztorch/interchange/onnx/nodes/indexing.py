"""Gather, scatter and other ops that read or write elements at positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ztorch.dtypes import boolean
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.known import numbers_now
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.padded_tensors import is_padded, part_of
from ztorch.ir.opcodes import identity

MOST_COMPARISONS = 1 << 26  # of update and position pairs, in a scatter with a reduction


def _from_front(indices: Value, size: int) -> Value:
    """Positions counted from the start; negative ones count from the end."""
    return OPS.where(OPS.less(indices, 0), indices + size, indices)


@node("Gather", but="positions that depend on the data are clipped to the axis")
def _gather(n: Node) -> Result:
    x, indices = n.value(0), n.input(1)
    axis = range(x.rank)[n.attr("axis", 0)]
    size = x.shape[axis]
    if isinstance(indices, Value):
        n.context.need_range(indices, -size, size - 1)
        return OPS.take(x, _from_front(indices, size), axis=axis)
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
    return OPS.take_along_axis(x[inside], _from_front(indices, x.shape[axis]), axis)


def _flat_positions(indices: Value, sizes: Sequence[int]) -> Value:
    """Positions along several axes as one flat position each."""
    at = OPS.full(indices.shape[:-1], 0, indices.dtype)
    for k, size in enumerate(sizes):
        at = at * size + _from_front(indices[..., k], size)
    return at


@node("GatherND", but="positions that depend on the data must be in range")
def _gather_nd(n: Node) -> Result:
    x, indices, batch = n.value(0), n.value(1), n.attr("batch_dims", 0)
    depth = indices.shape[-1]
    sizes, inner = x.shape[batch:batch + depth], x.shape[batch + depth:]
    rows, count = math.prod(x.shape[:batch]), math.prod(sizes)
    at = OPS.reshape(_flat_positions(indices, sizes), (rows, -1))
    at = OPS.reshape(at + OPS.iota(at.shape, 0, at.dtype) * count, (-1,))
    y = OPS.take(OPS.reshape(x, (rows * count, -1)), at, 0)
    return OPS.reshape(y, (*indices.shape[:-1], *inner))


# -- writing ---------------------------------------------------------------------------------------


def scattered(n: Node, x: Value, positions: Value | np.ndarray, updates: Value,
              reduction: str = "none") -> Value:
    """Rows of x, (count, row), with updates, (m, row), at positions, (m,).

    Equal positions take the last update, or are reduced: `"add"`, `"mul"`, `"max"` or `"min"`.
    """
    if x.dtype is boolean and reduction != "none":
        x, updates = OPS.cast(x, "int32"), OPS.cast(updates, "int32")
        return OPS.not_equal(scattered(n, x, positions, updates, reduction), 0)
    if reduction == "add":
        at = constant(positions) if isinstance(positions, np.ndarray) else positions
        return OPS.scatter_add(x, at, updates, 0)
    count, m = x.shape[0], updates.shape[0]
    if m == 0 or count == 0:
        return x
    if reduction == "none":
        is_written, last = _last_updates(positions, count, m)
        return OPS.where(OPS.reshape(is_written, (count, 1)), OPS.take(updates, last, 0), x)
    names = {"mul": ("prod", "mul"), "max": ("max", "maximum"), "min": ("min", "minimum")}
    if reduction not in names:
        n.unsupported(f"reduction={reduction!r}")
    if count * updates.size > MOST_COMPARISONS:
        n.unsupported(f"reduction={reduction!r} of {m} updates into {count} positions")
    along, pairwise = names[reduction]
    at = constant(positions) if isinstance(positions, np.ndarray) else positions
    hit = OPS.equal(OPS.reshape(at, (1, m, 1)), OPS.iota((count, 1, 1), 0, at.dtype))
    first = OPS.reshape(x, (count, 1, -1))
    neutral = OPS.ones_like(first) if reduction == "mul" else first
    reduced = getattr(OPS, along)(OPS.where(hit, updates, neutral), axis=1)
    return getattr(OPS, pairwise)(x, reduced)


def _last_updates(positions: Value | np.ndarray, count: int, m: int) -> tuple[Value, Value]:
    """For each of `count` rows: whether one of m updates is written there, and the last of them."""
    if isinstance(positions, np.ndarray):
        source = np.full(count, -1, np.int32)
        source[positions] = np.arange(m)  # the last one stays
        return constant(source >= 0), constant(np.maximum(source, 0))
    order = OPS.argsort(positions)
    ordered = OPS.take(positions, order, 0)
    rows = OPS.iota((count,), 0, ordered.dtype)
    rank = OPS.maximum(OPS.searchsorted(ordered, rows, "right") - 1, 0)
    return OPS.equal(OPS.take(ordered, rank, 0), rows), OPS.take(order, rank, 0)


def _known(positions: Value) -> Value | np.ndarray:
    """Positions as numbers if they depend only on constants."""
    array = numbers_now(positions)
    return positions if array is None else array


@node("ScatterND", but="positions that depend on the data must be in range")
def _scatter_nd(n: Node) -> Result:
    x, indices, updates = n.value(0), n.value(1), n.value(2)
    depth = indices.shape[-1]
    sizes, inner = x.shape[:depth], math.prod(x.shape[depth:])
    at = _known(OPS.reshape(_flat_positions(indices, sizes), (-1,)))
    y = scattered(n, OPS.reshape(x, (math.prod(sizes), inner)), at,
                  OPS.reshape(updates, (-1, inner)), n.attr("reduction", "none"))
    return OPS.reshape(y, x.shape)


@node("ScatterElements", "Scatter", but="positions that depend on the data must be in range")
def _scatter_elements(n: Node) -> Result:
    x, indices, updates = n.value(0), n.value(1), n.value(2)
    axis = range(x.rank)[n.attr("axis", 0)]
    at = OPS.full(indices.shape, 0, indices.dtype)
    for k, size in enumerate(x.shape):
        along = (_from_front(indices, size) if k == axis else
                 OPS.iota(indices.shape, k, indices.dtype))
        at = at * size + along
    y = scattered(n, OPS.reshape(x, (x.size, 1)), _known(OPS.reshape(at, (-1,))),
                  OPS.reshape(updates, (-1, 1)), n.attr("reduction", "none"))
    return OPS.reshape(y, x.shape)


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


@node("EmbeddingBag", domain="ztorch")
def _bags(n: Node) -> Result:
    """The sum, mean or maximum of the rows of a table from each offset to the next one, for
    programs of torch.export."""
    table, at, mode = n.value(0), n.value(1), n.attr("mode")
    starts = OPS.cast(n.value(2), "int32")[:n.shape(2)[0] - n.attr("ends", 0)]
    rows, count, bags = OPS.take(table, at, 0), at.shape[0], starts.shape[0]
    rows = rows * OPS.expand_dims(n.value(3), 1) if n.has(3) else rows
    bag = OPS.searchsorted(starts, OPS.iota((count,), 0, "int32"), "right") - 1
    real = OPS.not_equal(at, n.attr("padding")) if n.attr("padding", -1) >= 0 else (
        OPS.ones((count,), "bool"))
    real = OPS.expand_dims(real, 1)
    counts = scattered(n, OPS.zeros((bags, 1), table.dtype), _known(bag),
                       OPS.cast(real, table.dtype), "add")
    if mode == "max":
        lowest = identity("max", table.dtype)
        largest = scattered(n, OPS.full((bags, table.shape[1]), lowest, table.dtype), _known(bag),
                            OPS.where(real, rows, lowest), "max")
        return OPS.where(counts > 0.0, largest, 0.0)
    total = scattered(n, OPS.zeros((bags, table.shape[1]), table.dtype), _known(bag),
                      OPS.where(real, rows, 0.0), "add")
    return total if mode == "sum" else total / OPS.maximum(counts, 1.0)


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
    return np.array(np.nonzero(n.array(0)), np.int64).reshape(len(n.shape(0)), -1)


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
