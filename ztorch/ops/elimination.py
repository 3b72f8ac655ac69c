"""Elimination with partial pivoting, a block of columns at a time.

Columns are eliminated one by one within a panel. The other columns of its block follow by products
of matrices, in a loop over panels, and all other columns, which are most of the work, by larger
products. There are few blocks, since each has code of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ops.control import scan
from ztorch.ops.triangular import extended, inverse_of_blocks, inverse_of_lower

PANEL = 32  # columns that are eliminated one by one
BLOCKS = 8  # at most; half as many compile in two thirds of the time and run a fifth longer


class EliminatedBlock(NamedTuple):
    """The elimination of a block of columns."""

    upper: Value  # the transpose of its upper factor
    pivots: Value  # the row of each pivot among those that remained
    right: Value  # the rows of pivots in the columns beyond the block, with all eliminated


def eliminated(a: Value, b: Value) -> Value:
    """x with `a @ x = b`, for batches of one shape.

    Args:
        a: Square matrices.
        b: Matrices of as many rows.
    """
    n, columns = b.shape[-2:]
    blocks = blocks_of(a, b)
    width = blocks[0].upper.shape[-1]
    inverses = inverse_of_lower(OPS.stack(*(extended(x.upper, width) for x in blocks), axis=-3))
    x: Value | None = None
    for k, block in reversed([*enumerate(blocks)]):
        width = block.upper.shape[-1]
        beside = block.right.shape[-1] - columns
        y = block.right[..., beside:]
        if x is not None:
            y = y - OPS.matmul(block.right[..., :beside], x)
        y = OPS.matmul(OPS.matrix_transpose(inverses[..., k, :width, :width]), y)
        x = y if x is None else OPS.concat(y, x, axis=-2)
    assert x is not None
    return x[..., :n, :]


def blocks_of(a: Value, b: Value | None = None) -> list[EliminatedBlock]:
    """The elimination of square matrices, and of other columns beside them.

    Those with blocks of several panels are extended to whole panels by ones on the diagonal.
    """
    *batch, n, _ = a.shape
    width = PANEL
    while width * BLOCKS < n:
        width *= 2
    if width > PANEL and n % PANEL:
        more = -n % PANEL
        a, n = extended(a, n + more), n + more
        b = None if b is None else OPS.pad(b, (0,) * b.rank, (*(0,) * len(batch), more, 0))
    rest, blocks = a if b is None else OPS.concat(a, b, axis=-1), list[EliminatedBlock]()
    for start in range(0, n, width):
        width = min(width, n - start)
        factors, columns, pivots, inverse = _block(OPS.matrix_transpose(rest[..., :width]))
        upper = OPS.take_along_axis(columns, OPS.expand_dims(pivots, -2), -1)
        order = OPS.concat(pivots, _others(pivots, n - start - width), axis=-1)
        rows = OPS.take_along_axis(rest[..., width:], OPS.expand_dims(order, -1), -2)
        right = OPS.matmul(inverse, rows[..., :width, :]) if rows.shape[-1] else rows
        blocks.append(EliminatedBlock(upper, pivots, right))
        if start + width < n:
            below = OPS.take_along_axis(factors, OPS.expand_dims(order[..., width:], -2), -1)
            rest = rows[..., width:, :] - OPS.matmul(OPS.matrix_transpose(below), right)
    return blocks


def odd_order(pivots: Value) -> Value:
    """The number of exchanges of rows that bring those of pivots to the front, odd or even."""
    places = OPS.iota((pivots.shape[-1],) * 2, 0)
    earlier = OPS.less(OPS.expand_dims(pivots, -2), OPS.expand_dims(pivots, -1))
    earlier = OPS.bitwise_and(earlier, OPS.less(OPS.swapaxes(places, 0, 1), places))
    return OPS.sum(pivots, axis=-1) + OPS.sum(OPS.cast(earlier, "int32"), axis=(-2, -1))


def _others(pivots: Value, count: int) -> Value:
    """The rows beside those of pivots, in order."""
    row = OPS.iota((count + pivots.shape[-1], 1), 0)
    at = OPS.expand_dims(pivots, -2)
    earlier = OPS.sum(OPS.cast(OPS.less(at, row), "int32"), axis=-1, keepdims=True)
    place = OPS.where(OPS.any(OPS.equal(at, row), axis=-1, keepdims=True), -1, row - earlier)
    own = OPS.equal(OPS.matrix_transpose(place), OPS.iota((count, 1), 0))
    return OPS.sum(OPS.where(own, OPS.matrix_transpose(row), 0), axis=-1)


def _block(x: Value) -> tuple[Value, Value, Value, Value]:
    """The factors of columns, which are the rows of x, the columns after elimination, the row of
    each pivot, and the inverse of the factors in these rows.

    Rows stay where they are; those of pivots do not change any more.
    """
    *batch, width, m = x.shape
    unused = OPS.full((*batch, 1, m), False, "bool")
    if width <= PANEL:
        factors, rest, _, pivots = _panel(x, unused)
        return factors, rest, pivots, inverse_of_lower(_lower(factors, pivots))
    column = OPS.iota((width, 1), 0)

    def turn(state: tuple[Value, Value], start: Value
             ) -> tuple[tuple[Value, Value], tuple[Value, Value, Value]]:
        rest, used = state
        factors, panel, used, pivots = _panel(
            OPS.take(rest, start + OPS.iota((PANEL,), 0), -2), used)
        inverse = inverse_of_lower(_lower(factors, pivots))
        right = OPS.take_along_axis(rest, OPS.expand_dims(pivots, -2), -1)
        right = OPS.matmul(right, OPS.matrix_transpose(inverse))
        own = OPS.take(panel, OPS.clip(OPS.reshape(column - start, (width,)), 0, PANEL - 1), -2)
        later = rest - OPS.matmul(right, factors)
        rest = OPS.where(column < start, rest, OPS.where(column < start + PANEL, own, later))
        return (rest, used), (factors, pivots, inverse)

    starts = OPS.iota((width // PANEL,), 0) * PANEL
    (rest, _), (factors, pivots, inverses) = scan(turn, (x, unused), starts)
    factors = OPS.reshape(OPS.moveaxis(factors, 0, -3), x.shape)
    pivots = OPS.reshape(OPS.moveaxis(pivots, 0, -2), (*batch, width))
    inverses = OPS.moveaxis(inverses, 0, -3)
    return factors, rest, pivots, inverse_of_blocks(_lower(factors, pivots), inverses)


def _lower(factors: Value, pivots: Value) -> Value:
    """The factors in the rows of pivots, with a diagonal of ones."""
    lower = OPS.take_along_axis(factors, OPS.expand_dims(pivots, -2), -1)
    return OPS.matrix_transpose(lower) + OPS.eye(lower.shape[-1], dtype=lower.dtype)


def _panel(x: Value, used: Value) -> tuple[Value, Value, Value, Value]:
    """The same for few columns, one by one, where some rows are used, and which are used then: each
    pivot is the largest element of a column, outside of them."""
    *batch, width, m = x.shape
    at = OPS.iota((m,), 0, "int32")

    def turn(state: tuple[Value, Value], j: Value
             ) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
        rest, used = state
        column = OPS.take(rest, OPS.reshape(j, (1,)), -2)
        place = OPS.argmax(OPS.where(used, -1.0, OPS.abs(column)), axis=-1, keepdims=True)
        used = OPS.bitwise_or(used, OPS.equal(at, place))
        pivot = OPS.take_along_axis(column, place, -1)
        factors = OPS.where(used, 0.0, column) / OPS.where(OPS.equal(pivot, 0.0), 1.0, pivot)
        row = OPS.take_along_axis(rest, OPS.broadcast_to(place, (*batch, width, 1)), -1)
        return (rest - row * factors, used), (factors, place)

    (rest, used), (factors, places) = scan(turn, (x, used), OPS.iota((width,), 0, "int32"))
    factors = OPS.reshape(OPS.moveaxis(factors, 0, -3), x.shape)
    pivots = OPS.cast(OPS.reshape(OPS.moveaxis(places, 0, -1), (*batch, width)), "int32")
    return factors, rest, used, pivots
