"""Scatter and other ops that write elements at positions.

Tensors become (outer, count, inner), and positions count along the middle axis. Rows of the batch
lie in outer or inner, so that each writes only into its own.
"""

from __future__ import annotations

import math

import numpy as np

from ztorch.dtypes import boolean
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.known import constant_numbers
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.nodes.indexing import flat_positions, from_front, own_axes
from ztorch.ir.opcodes import identity
from ztorch.ops.kernel_bags import totals_of_bags
from ztorch.ops.scattering import summed_at

MOST_COMPARISONS = 1 << 26  # of updates and positions of a line, in a scatter with a reduction
FEW_UPDATES = 64  # of a line, up to which each position looks at all of them
Positions = Value | np.ndarray


def scattered(n: Node, x: Value, positions: Positions, updates: Value,
              reduction: str = "none") -> Value:
    """x, (outer, count, inner), with updates, (outer, m, inner), at positions along the middle
    axis, (1 or outer, m, 1 or inner).

    Equal positions take the last update, or are reduced: `"add"`, `"mul"`, `"max"` or `"min"`.
    """
    if x.dtype is boolean and reduction != "none":
        x, updates = OPS.cast(x, "int32"), OPS.cast(updates, "int32")
        return OPS.not_equal(scattered(n, x, positions, updates, reduction), 0)
    if not x.size or not updates.size:
        return x
    count, m = x.shape[1], updates.shape[1]
    at = constant(positions) if isinstance(positions, np.ndarray) else positions
    if reduction == "add":
        return x + summed_at(updates, at, count)
    if reduction == "none":
        last = _last_updates(positions, count)
        return OPS.where(OPS.greater_equal(last, 0), _at(updates, OPS.maximum(last, 0)), x)
    names = {"mul": ("prod", "mul"), "max": ("max", "maximum"), "min": ("min", "minimum")}
    if reduction not in names:
        n.unsupported(f"reduction={reduction!r}")
    if count * m > MOST_COMPARISONS:
        n.unsupported(f"reduction={reduction!r} of {m} updates into {count} positions")
    along, pairwise = names[reduction]
    first = OPS.expand_dims(x, 2)
    neutral = OPS.ones_like(first) if reduction == "mul" else first
    reduced = getattr(OPS, along)(
        OPS.where(_hits(at, count), OPS.expand_dims(updates, 1), neutral), axis=2)
    return getattr(OPS, pairwise)(x, reduced)


def _at(updates: Value, last: Value) -> Value:
    if last.shape[0] == last.shape[2] == 1:
        return OPS.take(updates, OPS.reshape(last, (-1,)), 1)
    return OPS.take_along_axis(updates, last, 1)


def _hits(at: Value, count: int) -> Value:
    """For each position, which updates are written there: (outer, count, m, inner)."""
    return OPS.equal(OPS.expand_dims(at, 1), OPS.iota((1, count, 1, 1), 1, at.dtype))


def _last_updates(positions: Positions, count: int) -> Value:
    """The number of the last update of each position, -1 where nothing is written."""
    if isinstance(positions, np.ndarray):
        outer, m, inner = positions.shape
        last = np.full((outer, count, inner), -1, np.int32)
        for k in range(m):
            np.put_along_axis(last, positions[:, k:k + 1], k, 1)
        return constant(last)
    m = positions.shape[1]
    if m <= FEW_UPDATES:
        return OPS.max(OPS.where(_hits(positions, count), OPS.iota((1, 1, m, 1), 2), -1), axis=2)
    order = OPS.argsort(positions, 1)
    ordered = OPS.take_along_axis(positions, order, 1, once=True)
    is_last = OPS.pad(OPS.not_equal(ordered[:, 1:], ordered[:, :-1]), (0, 0, 0), (0, 1, 0), True)
    return summed_at(OPS.where(is_last, order + 1, 0), ordered, count) - 1


def _known(positions: Value) -> Positions:
    """Positions as numbers if they depend only on constants; equal lines are one."""
    array = constant_numbers(positions)
    if array is None:
        return positions
    for axis in (0, 2):
        first = array.take([0], axis) if array.size else array
        array = first if (array == first).all() else array
    return array


@node("ScatterND", but="positions that depend on the data must be in range")
def _scatter_nd(n: Node) -> Result:
    x, indices, updates = n.value(0), n.value(1), n.value(2)
    depth = indices.shape[-1]
    own = own_axes(x, indices)
    outer, inner = math.prod(x.shape[:own]), math.prod(x.shape[depth:])
    at = flat_positions(indices[..., own:], x.shape[own:depth])
    y = scattered(n, OPS.reshape(x, (outer, -1, inner)), _known(OPS.reshape(at, (outer, -1, 1))),
                  OPS.reshape(updates, (outer, -1, inner)), n.attr("reduction", "none"))
    return OPS.reshape(y, x.shape)


@node("ScatterElements", "Scatter", but="positions that depend on the data must be in range")
def _scatter_elements(n: Node) -> Result:
    x, indices, updates = n.value(0), n.value(1), n.value(2)
    axis = range(x.rank)[n.attr("axis", 0)]
    part = x[tuple(slice(0, m if k != axis else None) for k, m in enumerate(indices.shape))]
    outer, inner = math.prod(part.shape[:axis]), math.prod(part.shape[axis + 1:])
    at = from_front(_narrow(indices, axis), x.shape[axis])
    y = scattered(n, OPS.reshape(part, (outer, -1, inner)),
                  _known(OPS.reshape(at, (outer, indices.shape[axis], -1))),
                  OPS.reshape(updates, (outer, -1, inner)), n.attr("reduction", "none"))
    y = OPS.reshape(y, part.shape)
    if part.shape == x.shape:
        return y
    missing = tuple(a - b for a, b in zip(x.shape, part.shape, strict=True))
    is_inside = constant(np.pad(np.ones(part.shape, bool), [(0, m) for m in missing]))
    return OPS.where(is_inside, OPS.pad(y, (0,) * x.rank, missing), x)


def _narrow(indices: Value, axis: int) -> Value:
    """Indices that are the same for all elements behind the axis, with sizes of 1 there."""
    if indices.op.name != "broadcast_to" or indices.args[0].rank != indices.rank:
        return indices
    few = indices.args[0]
    if math.prod(few.shape[axis + 1:]) > 1:
        return indices
    return OPS.broadcast_to(few, (*indices.shape[:axis + 1], *few.shape[axis + 1:]))


@node("EmbeddingBag", domain="ztorch")
def _bags(n: Node) -> Result:
    """The sum, mean or maximum of the rows of a table from each offset to the next one, for
    programs of torch.export."""
    table, at, mode = n.value(0), n.value(1), n.attr("mode")
    starts = OPS.cast(n.value(2), "int32")[:n.shape(2)[0] - n.attr("ends", 0)]
    if not n.has(3) and n.attr("padding", -1) < 0:
        total = totals_of_bags(table, at, starts, mode == "max")
        if mode != "mean":
            return total
        ends = OPS.concat(starts[1:], constant(np.array([at.shape[0]], np.int32)))
        return total / OPS.expand_dims(OPS.cast(OPS.maximum(ends - starts, 1), table.dtype), 1)
    rows, count, bags = OPS.take(table, at, 0), at.shape[0], starts.shape[0]
    rows = rows * OPS.expand_dims(n.value(3), 1) if n.has(3) else rows
    bag = OPS.searchsorted(starts, OPS.iota((count,), 0, "int32"), "right") - 1
    real = OPS.not_equal(at, n.attr("padding")) if n.attr("padding", -1) >= 0 else (
        OPS.ones((count,), "bool"))
    real, bag = OPS.expand_dims(real, 1), _known(OPS.reshape(bag, (1, -1, 1)))

    def of_bags(start: float, new: Value, reduction: str) -> Value:
        begin = OPS.full((1, bags, new.shape[1]), start, table.dtype)
        return OPS.squeeze(scattered(n, begin, bag, OPS.expand_dims(new, 0), reduction), 0)

    counts = of_bags(0.0, OPS.cast(real, table.dtype), "add")
    if mode == "max":
        lowest = identity("max", table.dtype)
        return OPS.where(counts > 0.0, of_bags(lowest, OPS.where(real, rows, lowest), "max"), 0.0)
    total = of_bags(0.0, OPS.where(real, rows, 0.0), "add")
    return total if mode == "sum" else total / OPS.maximum(counts, 1.0)
