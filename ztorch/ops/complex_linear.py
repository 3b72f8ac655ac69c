"""Linear algebra of complex matrices.

A complex matrix a + ib is treated as the real matrix [[a, -b], [b, a]], whose inverses and
solutions have the same form.
"""

from __future__ import annotations

from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.ops.complex_elements import divide, log_size, sign, size
from ztorch.ops.complex_parts import number
from ztorch.ops.complex_totals import prod, where_nonzero
from ztorch.ops.complex_values import ComplexValue, choose, complex_op
from ztorch.ops.control import scan
from ztorch.ops.linear_algebra import LARGEST, beside, column_at, columns_of, row_at


def _embedded(name: str, x: ComplexValue, square: bool = True) -> Value:
    """The real form of a complex matrix, with twice as many rows and columns."""
    if x.rank < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise shape_error(f"ops.{name} needs {'square ' if square else ''}matrices, not", x.shape)
    if 2 * min(x.shape[-2:]) > LARGEST:
        raise Unsupported(f"ops.{name} of complex {x.shape[-2]} x {x.shape[-1]} matrices: "
                          f"at most {LARGEST // 2} columns are supported; use NumPy on the array")
    y: Value = OPS.concat(OPS.concat(x.real, -x.imag, axis=-1),
                          OPS.concat(x.imag, x.real, axis=-1), axis=-2)
    return y


def _from_embedded(x: Value) -> ComplexValue:
    """The complex matrix of a real one in that form."""
    rows, columns = x.shape[-2] // 2, x.shape[-1] // 2
    return ComplexValue(x[..., :rows, :columns], x[..., rows:, :columns])


@complex_op()
def inv(x: ComplexValue) -> ComplexValue:
    return _from_embedded(OPS.inv(_embedded("inv", x)))


@complex_op()
def pinv(x: ComplexValue, rcond: float | None = None, rtol: float | None = None) -> ComplexValue:
    least = rtol if rtol is not None else rcond
    if least is None:  # of the complex matrix, not of the real form
        d = x.real.dtype
        least = max(x.shape[-2:]) * 2.0 ** (1 - d.significand)
    return _from_embedded(OPS.pinv(_embedded("pinv", x, square=False), rtol=least))


@complex_op()
def solve(a: ComplexValue, b: ComplexValue) -> ComplexValue:
    if b.rank == 1:
        y = solve(a, b[:, None])
        result: ComplexValue = y[..., 0]
        return result
    right = OPS.concat(b.real, b.imag, axis=-2)
    y = OPS.solve(_embedded("solve", a), right)
    n = a.shape[-1]
    return ComplexValue(y[..., :n, :], y[..., n:, :])


@complex_op()
def cholesky(x: ComplexValue, upper: bool = False) -> ComplexValue:
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise shape_error("ops.cholesky needs square matrices, not", x.shape)
    if x.shape[-1] > LARGEST:
        raise Unsupported(f"ops.cholesky of complex {x.shape[-1]} x {x.shape[-1]} matrices: "
                          f"at most {LARGEST} columns are supported; use NumPy on the array")

    def turn(rest: ComplexValue, j: Value) -> tuple[ComplexValue, ComplexValue]:
        column = ComplexValue(column_at(rest.real, j), column_at(rest.imag, j))
        pivot = OPS.take(column.real, OPS.reshape(j, (1,)), -2)
        column = column.on_parts("divide", OPS.sqrt(pivot))
        row = ComplexValue(column.real, -column.imag).on_parts("matrix_transpose")
        return rest - column * row, column

    if not x.shape[-1]:
        return x
    _, columns = scan(turn, x, columns_of(x.real))
    y = ComplexValue(beside(columns.real), beside(columns.imag)).on_parts("tril")
    return ComplexValue(y.real, -y.imag).on_parts("matrix_transpose") if upper else y


@complex_op()
def matrix_power(x: ComplexValue, n: int) -> ComplexValue:
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise shape_error("ops.matrix_power needs square matrices, not", x.shape)
    base = inv(x) if n < 0 else x
    eye = OPS.broadcast_to(OPS.eye(x.shape[-1], dtype=x.real.dtype), x.shape)
    y, bits = ComplexValue(eye, OPS.zeros_like(eye)), abs(n)
    while bits:
        if bits & 1:
            y = y @ base
        bits >>= 1
        base = base @ base if bits else base
    return y


def _pivots(name: str, x: ComplexValue) -> tuple[ComplexValue, Value]:
    """The pivots of elimination as the last axis, and the sign of the row permutation."""
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise shape_error(f"ops.{name} needs square matrices, not", x.shape)
    *batch, n, _ = x.shape
    d = x.real.dtype
    if n > LARGEST:
        raise Unsupported(f"ops.{name} of complex {n} x {n} matrices: at most {LARGEST} columns "
                          "are supported; use NumPy on the array")
    if not n:
        return number(OPS.zeros((*batch, 0), d), 1), OPS.full(tuple(batch), 1, d)

    def turn(state: tuple[ComplexValue, Value, Value], j: Value
             ) -> tuple[tuple[ComplexValue, Value, Value], ComplexValue]:
        rest, used, odd = state
        column = ComplexValue(column_at(rest.real, j), column_at(rest.imag, j))
        length = OPS.where(used, -1.0, OPS.stop_gradient(size(column)))
        at = OPS.argmax(length, axis=-2, keepdims=True)
        mask = OPS.equal(OPS.iota((n, 1), 0), at)
        before = OPS.bitwise_and(OPS.bitwise_not(used), OPS.less(OPS.iota((n, 1), 0), at))
        odd = odd + OPS.sum(OPS.cast(before, "int32"), axis=-2, keepdims=True)
        row = ComplexValue(row_at(rest.real, mask), row_at(rest.imag, mask))
        pivot = ComplexValue(column_at(row.real, j), column_at(row.imag, j))
        used = OPS.bitwise_or(used, mask)
        over = choose(used, number(column.real, 0), column)
        safe = where_nonzero(pivot, number(pivot.real, 1))
        ratio = divide(over, safe.on_parts("broadcast_to", over.shape))
        rest = rest - ratio * row
        return (rest, used, odd), pivot

    unused = OPS.full((*batch, n, 1), False, "bool")
    even = OPS.full((*batch, 1, 1), 0, "int32")
    (_, _, odd), pivots = scan(turn, (x, unused, even), columns_of(x.real))
    order = OPS.cast(1 - OPS.bitwise_and(odd, 1) * 2, d)
    return (ComplexValue(beside(pivots.real), beside(pivots.imag)).on_parts("reshape", (*batch, n)),
            OPS.reshape(order, tuple(batch)))


@complex_op()
def det(x: ComplexValue) -> ComplexValue:
    pivots, order = _pivots("det", x)
    result: ComplexValue = prod(pivots, axis=-1) * order
    return result


@complex_op()
def slogdet(x: ComplexValue) -> tuple[ComplexValue, Value]:
    pivots, order = _pivots("slogdet", x)
    length: Value = OPS.sum(log_size(pivots.real, pivots.imag), axis=-1)
    return prod(sign(pivots), axis=-1) * order, length
