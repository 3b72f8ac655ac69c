"""Systems of equations by elimination with partial pivoting, a block of columns at a time.

The columns of a block are eliminated one by one; all other columns, which are most of the work, by
products of matrices.
"""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ops.control import scan
from ztorch.ops.triangular import inverse_of_lower

PANEL = 32  # columns of a block


def eliminated(a: Value, b: Value) -> Value:
    """x with `a @ x = b`, for batches of one shape.

    Args:
        a: Square matrices.
        b: Matrices of as many rows.
    """
    n = a.shape[-1]
    rest, steps = OPS.concat(a, b, axis=-1), list[tuple[Value, Value]]()
    for start in range(0, n, PANEL):
        width = min(PANEL, n - start)
        lower, upper, order = _panel(rest[..., :width])
        rows = OPS.take_along_axis(rest[..., width:], OPS.expand_dims(order, -1), -2)
        right = OPS.matmul(inverse_of_lower(lower[..., :width, :]), rows[..., :width, :])
        steps.append((upper, right))
        if start + width < n:
            rest = rows[..., width:, :] - OPS.matmul(lower[..., width:, :], right)
    x: Value | None = None
    for upper, right in reversed(steps):
        beside = right.shape[-1] - b.shape[-1]
        y = right[..., beside:]
        if x is not None:
            y = y - OPS.matmul(right[..., :beside], x)
        y = OPS.matmul(OPS.matrix_transpose(inverse_of_lower(upper)), y)
        x = y if x is None else OPS.concat(y, x, axis=-2)
    assert x is not None
    return x


def _panel(x: Value) -> tuple[Value, Value, Value]:
    """The lower factor of a block of columns, the transpose of the upper one, and the order of rows
    that they are for: each pivot is the largest element of a column, outside of rows with a pivot.

    Columns are contiguous here. Rows stay where they are; those of pivots do not change any more.
    """
    *batch, m, width = x.shape
    at = OPS.iota((m,), 0, "int32")

    def turn(state: tuple[Value, Value], j: Value
             ) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
        rest, used = state
        column = OPS.take(rest, OPS.reshape(j, (1,)), -2)
        place = OPS.argmax(OPS.where(used, -1.0, OPS.abs(column)), axis=-1, keepdims=True)
        used = OPS.bitwise_or(used, OPS.equal(at, place))
        pivot = OPS.take_along_axis(column, place, -1)
        factors = OPS.where(used, 0.0, column / pivot)
        row = OPS.take_along_axis(rest, OPS.broadcast_to(place, (*batch, width, 1)), -1)
        return (rest - row * factors, used), (factors, place)

    unused = OPS.full((*batch, 1, m), False, "bool")
    (rest, used), (factors, places) = scan(
        turn, (OPS.matrix_transpose(x), unused), OPS.iota((width,), 0, "int32"))
    pivots = OPS.reshape(OPS.moveaxis(places, 0, -1), (*batch, width))
    others = OPS.argsort(OPS.cast(used, "int32"), axis=-1)[..., 0, :m - width]
    order = OPS.concat(pivots, OPS.cast(others, pivots.dtype), axis=-1)
    lower = OPS.moveaxis(factors[..., 0, :], 0, -1)
    lower = OPS.take_along_axis(lower, OPS.expand_dims(order, -1), -2)
    upper = OPS.take_along_axis(rest, OPS.expand_dims(pivots, -2), -1)
    return lower + OPS.eye(m, width, dtype=x.dtype), upper, order
