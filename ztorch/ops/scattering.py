"""Sums, products and extremes at places that are data: ops of their own, and the same by others.

On processors each is a loop over updates, each combined with its place in a table. So that workers
can share it and each sum has one order, updates come in chunks with a table each, whose number
depends on sizes alone. For other machines either each place goes through all updates, or, where
that is too much work, updates are sorted by place and runs of equal places are combined in steps
of 1, 2, 4 ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ztorch.dtypes import DType, dtype
from ztorch.graph.batching import Examples
from ztorch.graph.op import OPS
from ztorch.graph.value import Op, Value
from ztorch.ir.opcodes import identity
from ztorch.ops.orders import LONGEST, effort
from ztorch.ops.reduction import widened
from ztorch.ops.sorting import count_before

Shape = tuple[int, ...]

SCAN_LIMIT = 1 << 22  # comparisons up to which going through all readers needs no alternative
FEW = 256  # comparisons up to which going through all readers needs no table
CHUNKS_MAX = 16  # tables of one sum: more would not keep more workers busy
CHUNK_UPDATES = 4096  # elements of updates that are worth a table of their own
WIDE = 64  # elements of an update from which workers share these instead


def summed_at(updates: Value, places: Value, n: int) -> Value:
    """Updates (outer, m, inner) summed at places (1 or outer, m, 1 or inner): (outer, n, inner).
    Places outside of the table count nowhere."""
    return combined_at("add", updates, places, n)


def combined_at(opcode: str, updates: Value, places: Value, n: int) -> Value:
    """The same, combined by an opcode: add, mul, max or min. Only sums have a gradient."""
    outer, m, inner = updates.shape
    way, empty = WAYS[opcode], identity(opcode, updates.dtype)
    if not updates.size or not n:
        return OPS.full((outer, n, inner), empty, updates.dtype)
    if outer * inner * n * m <= FEW:
        return _by_search(updates, places, n, way)
    chunks = 1
    if outer < CHUNKS_MAX and inner < WIDE:
        chunks = max(1, min(CHUNKS_MAX, m // (2 * n), m * inner // CHUNK_UPDATES))
    table = way.op(widened(updates), places, n=n, chunks=chunks)
    result = OPS.reshape(table, (outer, n, inner)) if chunks == 1 else way.reduced(table, axis=1)
    return OPS.cast(result, updates.dtype)


# -- the ops ---------------------------------------------------------------------------------------


def _infer(updates: Value, places: Value, n: int, chunks: int) -> tuple[Shape, DType]:
    outer, _, inner = updates.shape
    return (outer, chunks, n, inner), updates.dtype


def chunk_of(m: int, chunks: int) -> int:
    """The updates of a chunk; the last one may have fewer."""
    return -(-m // chunks)


def _numpy(opcode: str, combine: np.ufunc) -> Callable[..., Any]:
    def table_of(updates: Any, places: Any, n: int, chunks: int) -> Any:
        outer, m, inner = updates.shape
        empty = identity(opcode, dtype(updates.dtype))
        table = np.full((outer, chunks, n, inner), empty, updates.dtype)
        at = np.broadcast_to(places, (outer, m, inner))
        o, k, j = np.nonzero((at >= 0) & (at < n))
        combine.at(table, (o, k // chunk_of(m, chunks), at[o, k, j], j), updates[o, k, j])
        return table

    return table_of


def _grad(o: Any, g: Value, y: Value, updates: Value, places: Value, n: int, chunks: int) -> tuple:
    outer, m, inner = updates.shape
    chunk = o.floor_divide(o.iota((1, m, 1), 1, places.dtype), chunk_of(m, chunks))
    inside = o.logical_and(o.greater_equal(places, 0), o.less(places, n))
    at = o.clip(places, 0, n - 1) + chunk * n
    return o.where(inside, _rows(o.reshape(g, (outer, chunks * n, inner)), at), 0), None


def _batch(one: Value, many: Examples, n: int, chunks: int) -> Value:
    outer, m, inner = one.args[0].shape
    updates, places = many.args[0], many.args[1]
    if not many.batched[0]:
        updates = many.spread()[0]
    updates = OPS.reshape(updates, (many.count * outer, m, inner))
    if many.batched[1] or places.shape[0] > 1:
        wide = many.spread()[1]
        wide = OPS.broadcast_to(wide, (many.count, outer, *wide.shape[2:]))
        places = OPS.reshape(wide, (many.count * outer, *wide.shape[2:]))
    return OPS.reshape(one.op(updates, places, n=n, chunks=chunks), (many.count, *one.shape))


def _others(opcode: str) -> Callable[..., Value]:
    """The same by other ops: all in the first table."""

    def table_of(updates: Value, places: Value, n: int, chunks: int) -> Value:
        outer, _, inner = updates.shape
        result = _by_others(updates, places, n, WAYS[opcode])
        result = OPS.reshape(result, (outer, 1, n, inner))
        more = (0, chunks - 1, 0, 0)
        return OPS.pad(result, (0, 0, 0, 0), more, identity(opcode, updates.dtype)) if (
            chunks > 1) else result

    return table_of


def _op(name: str, opcode: str, combine: np.ufunc, grad: Any = None) -> Op:
    return Op(name, "scatter", _infer, _numpy(opcode, combine), grad, cost=8, opcode=opcode,
              batch=_batch, others=_others(opcode))


SUMS_AT = _op("sums_at", "add", np.add, _grad)


class Way(NamedTuple):
    """How numbers at one place are combined: by the op, in pairs, and along axes."""

    op: Op
    combined: Callable[[Value, Value], Value]
    reduced: Callable[..., Value]


WAYS = {
    "add": Way(SUMS_AT, lambda a, b: OPS.add(a, b), lambda x, axis: OPS.sum(x, axis)),
    "mul": Way(_op("products_at", "mul", np.multiply),
               lambda a, b: OPS.mul(a, b), lambda x, axis: OPS.prod(x, axis)),
    "max": Way(_op("maxima_at", "max", np.maximum),
               lambda a, b: OPS.maximum(a, b), lambda x, axis: OPS.max(x, axis)),
    "min": Way(_op("minima_at", "min", np.minimum),
               lambda a, b: OPS.minimum(a, b), lambda x, axis: OPS.min(x, axis))}


# -- by other ops ----------------------------------------------------------------------------------


def _by_others(updates: Value, places: Value, n: int, way: Way) -> Value:
    """Updates (outer, m, inner) combined at places (1 or outer, m, 1 or inner): (outer, n, inner).
    """
    outer, m, inner = updates.shape
    if m > LONGEST:
        half = m // 2
        return way.combined(_by_others(updates[:, :half], places[:, :half], n, way),
                            _by_others(updates[:, half:], places[:, half:], n, way))
    rows, bits = places.shape[0] * places.shape[2], m.bit_length()
    sorting = rows * (effort(m) + 16 * n * bits) + outer * inner * (3 * m * bits + n)
    searching = outer * inner * n * m
    if searching <= max(sorting, SCAN_LIMIT):
        return _by_search(updates, places, n, way)
    return _by_sorting(updates, places, n, way)


def _by_search(updates: Value, places: Value, n: int, way: Way) -> Value:
    """The table, where each place goes through all updates."""
    outer, m, inner = updates.shape
    at = OPS.reshape(places, (places.shape[0], 1, m, places.shape[2]))
    hit = OPS.equal(at, OPS.iota((1, n, 1, 1), 1, places.dtype))
    spread = OPS.reshape(updates, (outer, 1, m, inner))
    empty = OPS.full(spread.shape, identity(way.op.opcode, spread.dtype), spread.dtype)
    return way.reduced(OPS.where(hit, spread, empty), axis=2)


def _by_sorting(updates: Value, places: Value, n: int, way: Way) -> Value:
    """The table, with updates sorted by place: after steps of 1, 2, 4, ... the last update of a run
    of equal places holds the result of the run."""
    m = updates.shape[1]
    order = OPS.argsort(places, 1)
    place = OPS.take_along_axis(places, order, 1)
    total = widened(_rows(updates, order))
    empty = identity(way.op.opcode, total.dtype)
    for bit in range((m - 1).bit_length()):
        step = 1 << bit
        back = ((0, step, 0), (0, 0, 0))
        same = OPS.equal(OPS.pad(place[:, :m - step], *back), place)
        earlier = OPS.pad(total[:, :m - step], *back, value=empty)
        total = way.combined(total, OPS.where(same, earlier, empty))
    rows = OPS.broadcast_to(OPS.iota((1, n, 1), 1, place.dtype),
                            (place.shape[0], n, place.shape[2]))
    last = OPS.maximum(count_before(place, rows, "right") - 1, 0)
    present = OPS.equal(OPS.take_along_axis(place, last, 1), rows)
    return OPS.cast(OPS.where(present, _rows(total, last), empty), updates.dtype)


def _rows(x: Value, at: Value) -> Value:
    """Elements along the middle axis; whole rows at once if all rows share their places."""
    return OPS.take(x, OPS.reshape(at, (at.size,)), 1) if at.shape[::2] == (1, 1) else (
        OPS.take_along_axis(x, at, 1))
