"""Determinants and factorizations of small matrices, by elimination with partial pivoting."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.graph.autodiff import gradients
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, op
from ztorch.graph.value import Value
from ztorch.ops.control import scan
from ztorch.ops.elimination import blocks_of, odd_order
from ztorch.ops.formulas import as_floats
from ztorch.ops.linear_algebra import (
    COLUMNS,
    beside,
    column_at,
    columns_of,
    largest_unused,
    matrices,
    row_at,
)
from ztorch.ops.triangular import inverse_of_lower

_POSITIVE = np.array([[[4.0, 1.0], [1.0, 3.0]], [[2.0, 0.2], [0.2, 1.0]]])
_REGULAR = np.array([[0.1, 2.0], [3.0, 0.5]])


def _of_pivots(name: str, x: Value, function: Callable[[Value, Value], list[Value]]
               ) -> list[Value]:
    """A function of the pivots of elimination, as the last axis, and of the sign of the row
    permutation. The gradient holds for singular matrices, too, which have no inverse."""
    wide = matrices(name, x)
    *batch, n, _ = wide.shape
    if not n:
        return function(OPS.full((*batch, 0), 1, wide.dtype), OPS.full(tuple(batch), 1, wide.dtype))
    if n <= COLUMNS:
        return function(*_pivots(wide))
    blocks = blocks_of(OPS.stop_gradient(wide))
    pivots = OPS.concat(*(OPS.diagonal(block.upper, 0, -2, -1) for block in blocks), axis=-1)
    exchanges = functools.reduce(operator.add, (odd_order(block.pivots) for block in blocks))
    sign = _sign(exchanges, wide)

    def gradient(upstreams: Sequence[Value], args: Sequence[Value],
                 shared: Sequence[Value]) -> list[Value]:
        results = function(*_pivots(args[0]))
        total = functools.reduce(operator.add, (
            OPS.sum(y * slope) for y, slope in zip(results, upstreams, strict=True)))
        return gradients(total, [args[0]])

    return with_gradient(function(pivots, sign), [wide], [], gradient)


def _sign(exchanges: Value, x: Value) -> Value:
    return OPS.cast(1 - OPS.bitwise_and(exchanges, 1) * 2, x.dtype)


def _pivots(x: Value) -> tuple[Value, Value]:
    """The pivots of elimination column by column, and the sign."""
    *batch, n, _ = x.shape

    def turn(state: tuple[Value, Value, Value], j: Value
             ) -> tuple[tuple[Value, Value, Value], Value]:
        rest, used, odd = state
        column = column_at(rest, j)
        at, mask = largest_unused(column, used)
        before = OPS.bitwise_and(OPS.bitwise_not(used), OPS.less(OPS.iota((n, 1), 0), at))
        odd = odd + OPS.sum(OPS.cast(before, "int32"), axis=-2, keepdims=True)
        row = row_at(rest, mask)
        pivot = column_at(row, j)
        used = OPS.bitwise_or(used, mask)
        over = OPS.where(OPS.bitwise_or(used, OPS.equal(pivot, 0.0)), 0.0, column)
        rest = rest - over / OPS.where(OPS.equal(pivot, 0.0), 1.0, pivot) * row
        return (rest, used, odd), pivot

    unused = OPS.full((*batch, n, 1), False, "bool")
    even = OPS.full((*batch, 1, 1), 0, "int32")
    (_, _, odd), pivots = scan(turn, (x, unused, even), columns_of(x))
    return OPS.reshape(beside(pivots), (*batch, n)), _sign(OPS.reshape(odd, tuple(batch)), x)


@op(Sample((_POSITIVE,)), numpy=np.linalg.det)
def det(x: Value) -> Value:
    """The determinant of each matrix.

    Args:
        x: Matrices `(..., n, n)` with n up to 512.

    Returns:
        A tensor without the last two axes.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.det(np.array([[0.0, 2.0], [3.0, 1.0]]))
        array(-6.)
    """
    [x] = as_floats(x)
    [y] = _of_pivots("det", x, lambda pivots, sign: [OPS.prod(pivots, axis=-1) * sign])
    return OPS.cast(y, x.dtype)


@op(Sample((_REGULAR,)), results=("sign", "logabsdet"), numpy=lambda x: tuple(np.linalg.slogdet(x)))
def slogdet(x: Value) -> tuple[Value, Value]:
    """The sign of the determinant of each matrix, and the logarithm of its absolute value.

    Args:
        x: Matrices `(..., n, n)` with n up to 512.

    Returns:
        `(sign, logabsdet)`: tensors without the last two axes. Singular matrices give 0 and
        minus infinity.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.slogdet(np.array([[0.0, 1.0], [1.0, 0.0]]))
        (array(-1.), array(0.))
    """
    [x] = as_floats(x)
    sign, size = _of_pivots("slogdet", x, lambda pivots, sign: [
        OPS.prod(OPS.sign(pivots), axis=-1) * sign, OPS.sum(OPS.log(OPS.abs(pivots)), axis=-1)])
    return OPS.cast(sign, x.dtype), OPS.cast(size, x.dtype)


def _lu_numpy(x: Any) -> Any:
    """The same in float64, without a library for factorizations."""
    lu = np.array(x, np.float64)
    n = min(lu.shape[-2:])
    pivots = np.zeros((*lu.shape[:-2], n), np.int32)
    for index in np.ndindex(*lu.shape[:-2]):
        m = lu[index]
        for j in range(n):
            p = j + int(np.argmax(np.abs(m[j:, j])))
            m[[j, p]] = m[[p, j]]
            pivots[index][j] = p
            m[j + 1:, j] /= m[j, j]
            m[j + 1:, j + 1:] -= np.outer(m[j + 1:, j], m[j, j + 1:])
    return lu, pivots


@op(Sample((_REGULAR,)), results=("lu", "pivots"), numpy=_lu_numpy)
def lu_factor(x: Value) -> tuple[Value, Value]:
    """The LU factorization of each matrix with row exchanges: `P @ x = L @ U`.

    Args:
        x: Matrices `(..., m, n)` whose smaller dimension is up to 512. Only square matrices have a
            gradient.

    Returns:
        `(lu, pivots)`: U in the upper triangle, and L with a diagonal of ones below it; and, for
        each row in turn, the row with which it was exchanged, int32.

    Examples:
        >>> import ztorch as zt
        >>> lu, pivots = zt.ops.lu_factor(np.array([[1.0, 2.0], [4.0, 2.0]]))
        >>> lu.tolist(), pivots.tolist()
        ([[4.0, 2.0], [0.25, 1.5]], [1, 1])
    """
    wide = matrices("lu_factor", x, square=False)
    *batch, rows, columns = wide.shape
    count = min(rows, columns)
    row_of, column_of = OPS.iota((rows, 1), 0), OPS.iota((1, columns), 1)

    def turn(state: tuple[Value, Value], j: Value) -> tuple[tuple[Value, Value], Value]:
        work, order = state
        at = OPS.reshape(j, (1, 1))
        own_row = OPS.equal(row_of, at)
        place, pivot_row = largest_unused(column_at(work, j), OPS.less(row_of, at))

        def exchanged(x: Value) -> Value:
            return OPS.where(own_row, row_at(x, pivot_row),
                             OPS.where(pivot_row, row_at(x, own_row), x))

        work, order = exchanged(work), exchanged(order)
        chosen, column = row_at(work, own_row), column_at(work, j)
        pivot = column_at(chosen, j)
        factor = column / OPS.where(OPS.equal(pivot, 0.0), 1.0, pivot)
        reduced = OPS.where(OPS.less(at, column_of), work - factor * chosen,
                            OPS.where(OPS.equal(column_of, at), factor, work))
        return (OPS.where(OPS.less(at, row_of), reduced, work), order), OPS.cast(place, "int32")

    if not count:
        return x, OPS.full((*batch, 0), 0, "int32")
    order = OPS.broadcast_to(OPS.cast(row_of, wide.dtype), (*batch, rows, 1))
    (lu, order), pivots = scan(turn, (OPS.stop_gradient(wide), order),
                               columns_of(wide, count))
    [lu] = with_gradient([lu], [wide], [lu, order], _lu_gradient)
    pivots = OPS.reshape(OPS.moveaxis(pivots, 0, -1), (*batch, count))
    return (OPS.cast(lu, x.dtype) if x.dtype.is_float else lu), pivots


def _lu_gradient(upstreams: Sequence[Value], args: Sequence[Value],
                 shared: Sequence[Value]) -> list[Value]:
    lu, order = shared
    n, rows = lu.shape[-1], lu.shape[-2]
    if n != rows:
        raise Unsupported(f"ops.lu_factor has no gradient for {rows} x {n} matrices, which are not "
                          "square")
    lower, upper = OPS.tril(lu, -1) + OPS.eye(n, dtype=lu.dtype), OPS.triu(lu)
    [slope] = upstreams
    inner = (OPS.tril(OPS.matmul(OPS.matrix_transpose(lower), OPS.tril(slope, -1)), -1)
             + OPS.triu(OPS.matmul(OPS.triu(slope), OPS.matrix_transpose(upper))))
    left = OPS.matrix_transpose(inverse_of_lower(lower))
    right = inverse_of_lower(OPS.matrix_transpose(upper))
    of_rows = OPS.matmul(left, OPS.matmul(inner, right))
    places = OPS.cast(OPS.equal(order, OPS.cast(OPS.iota((1, n), 1), order.dtype)), lu.dtype)
    return [OPS.matmul(OPS.matrix_transpose(places), of_rows)]
