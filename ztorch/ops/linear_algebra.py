"""Solvers for batches of small matrices, composed of other ops, with gradients.

Each column is an iteration of a loop, in which all workers synchronize; larger matrices are an
error. The loop is over the whole matrix if this is small, else over a block of columns, and
products of matrices do the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, broadcast_shapes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.control import scan
from ztorch.ops.elimination import eliminated
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import widened
from ztorch.ops.triangular import inverse_of_lower

LARGEST = 512  # columns: each is an iteration over the whole matrix
COLUMNS = 16  # of the largest matrices that are eliminated whole, without blocks
BLOCK = 64  # columns of a block: the rest of a matrix changes by products with them
WHOLE = 32  # columns of matrices that are no blocks, at most

_POSITIVE = np.array([[[4.0, 1.0], [1.0, 3.0]], [[2.0, 0.2], [0.2, 1.0]]])
_REGULAR = np.array([[0.1, 2.0], [3.0, 0.5]])


def matrices(name: str, x: Value, square: bool = True) -> Value:
    """Float matrices of a supported size; 16-bit floats as float32."""
    [x] = as_floats(x)
    if x.rank < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise shape_error(f"ops.{name} needs {'square ' if square else ''}matrices, not", x.shape)
    n = min(x.shape[-2:])
    if n > LARGEST:
        raise Unsupported(f"ops.{name} of {x.shape[-2]} x {x.shape[-1]} matrices of {x.dtype}: "
                          f"at most {LARGEST} columns are supported, since each is a pass over the "
                          "matrix; use NumPy on the array")
    return widened(x)


@op(Sample((_POSITIVE,)), numpy=lambda x, upper=False: np.linalg.cholesky(x))
def cholesky(x: Value, upper: bool = False) -> Value:
    """The triangular matrix L with `x = L @ L.T`, for positive definite matrices.

    Args:
        x: Symmetric matrices `(..., n, n)` with n up to 512; only the lower triangle is read.
        upper: Whether to return the transpose of L. Default: `False`.

    Returns:
        A tensor of the shape and dtype of `x`. It has NaN where `x` is not positive definite.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        array([[2., 0.],
               [1., 2.]])
    """
    wide = matrices("cholesky", x)
    [y] = with_gradient([_cholesky(OPS.stop_gradient(wide))], [wide], [], _cholesky_gradient)
    y = OPS.matrix_transpose(y) if upper else y
    return OPS.cast(y, x.dtype) if x.dtype.is_float else y


def _cholesky(x: Value) -> Value:
    """The decomposition of the first columns, then that of the rest less their products."""
    n = x.shape[-1]
    if n <= WHOLE:
        return _cholesky_by_columns(x)
    block = BLOCK if n > BLOCK else WHOLE
    first = _cholesky_by_columns(x[..., :block, :block])
    inverse = OPS.matrix_transpose(inverse_of_lower(first))
    below = OPS.matmul(x[..., block:, :block], inverse)
    rest = x[..., block:, block:] - OPS.matmul(below, OPS.matrix_transpose(below))
    above = OPS.zeros_like(x[..., :block, block:])
    return OPS.concat(OPS.concat(first, above, axis=-1),
                      OPS.concat(below, _cholesky(rest), axis=-1), axis=-2)


def _cholesky_by_columns(x: Value) -> Value:
    def turn(rest: Value, j: Value) -> tuple[Value, Value]:
        column = column_at(rest, j)
        column = column / OPS.sqrt(OPS.take(column, OPS.reshape(j, (1,)), -2))
        return rest - column * OPS.matrix_transpose(column), column

    if not x.shape[-1]:
        return x
    _, columns = scan(turn, x, columns_of(x))
    return OPS.tril(beside(columns))


def columns_of(x: Value, count: int | None = None) -> Value:
    """The positions of the columns of x, or of the first ones, to scan."""
    return OPS.iota((x.shape[-1] if count is None else count,), 0, "int32")


def column_at(x: Value, j: Value) -> Value:
    """A column of x at a position that is known in each iteration."""
    return OPS.take(x, OPS.reshape(j, (1,)), -1)


def beside(columns: Value) -> Value:
    """Joins the columns that a scan returned."""
    return OPS.squeeze(OPS.moveaxis(columns, 0, -1), -2)


def _cholesky_gradient(upstreams: Sequence[Value], args: Sequence[Value],
                       shared: Sequence[Value]) -> list[Value]:
    """Murray, "Differentiation of the Cholesky decomposition", 2016; for the lower triangle."""
    y = OPS.cholesky(args[0])
    middle = OPS.tril(OPS.matmul(OPS.matrix_transpose(y), upstreams[0]))
    half = OPS.eye(y.shape[-1], dtype=y.dtype) * 0.5
    middle = middle * (1.0 - half)
    inverse = inverse_of_lower(y)
    slope = OPS.matmul(OPS.matrix_transpose(inverse), OPS.matmul(middle, inverse))
    return [OPS.tril(slope + OPS.matrix_transpose(slope)) * (1.0 - half)]


def largest_unused(column: Value, used: Value) -> tuple[Value, Value]:
    """The position of the largest element of a column among unused rows, and a mask of it."""
    size = OPS.where(used, -1.0, OPS.abs(OPS.stop_gradient(column)))
    at = OPS.argmax(size, axis=-2, keepdims=True)
    return at, OPS.equal(OPS.iota((column.shape[-2], 1), 0), at)


def row_at(x: Value, mask: Value) -> Value:
    """The row of x that a mask selects."""
    return OPS.sum(OPS.where(mask, x, 0.0), axis=-2, keepdims=True)


def _solve_numpy(a: Any, b: Any) -> Any:
    return np.linalg.solve(a, b[:, None])[:, 0] if b.ndim == 1 else np.linalg.solve(a, b)


@op(Sample((_REGULAR, (2,))), numpy=_solve_numpy)
def solve(a: Value, b: Value) -> Value:
    """x with `a @ x = b`, by elimination with partial pivoting.

    Args:
        a: Matrices `(..., n, n)` with n up to 512.
        b: Matrices `(..., n, m)`, or a vector `(n,)`, of the same dtype.

    Returns:
        A tensor `(..., n, m)`, or `(..., n)`. It has infinities or NaN where `a` is singular.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.solve(np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([2.0, 9.0]))
        array([1., 2.])
    """
    if b.rank == 1:
        y = solve(a, OPS.expand_dims(b, -1))
        return OPS.reshape(y, y.shape[:-1])
    left, [right] = matrices("solve", a), as_floats(b)
    n = left.shape[-1]
    if right.rank == 0 or right.shape[-2] != n:
        raise shape_error("ops.solve needs the same number of rows in", a.shape, b.shape)
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    pair = [OPS.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (left, widened(right))]
    [y] = with_gradient([_eliminated(*map(OPS.stop_gradient, pair))], pair, [], _solve_gradient)
    return OPS.cast(y, right.dtype)


def _eliminated(a: Value, b: Value) -> Value:
    """x with `a @ x = b`, for batches of one shape."""
    *batch, n, _ = a.shape

    def turn(state: tuple[Value, Value], j: Value) -> tuple[tuple[Value, Value], Value]:
        work, used = state
        column = column_at(work, j)
        at, mask = largest_unused(column, used)
        row = row_at(work, mask)
        row = row / column_at(row, j)
        work = OPS.where(mask, row, work - column * row)
        return (work, OPS.bitwise_or(used, mask)), at

    if not n:
        return b
    if n > COLUMNS:
        return eliminated(a, b)
    unused = OPS.full((*batch, n, 1), False, "bool")
    (work, _), places = scan(turn, (OPS.concat(a, b, axis=-1), unused), columns_of(a))
    return OPS.take_along_axis(work[..., :, n:], OPS.moveaxis(places, 0, -3)[..., 0], -2)


def _solve_gradient(upstreams: Sequence[Value], args: Sequence[Value],
                    shared: Sequence[Value]) -> list[Value]:
    a, b = args
    slope = OPS.solve(OPS.matrix_transpose(a), upstreams[0])
    return [-OPS.matmul(slope, OPS.matrix_transpose(OPS.solve(a, b))), slope]


@op(Sample((_REGULAR,)), numpy=np.linalg.inv)
def inv(x: Value) -> Value:
    """The inverse of each matrix.

    Args:
        x: Matrices `(..., n, n)` with n up to 512.

    Returns:
        A tensor of the shape and dtype of `x`. It has infinities or NaN where `x` is singular.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
        array([[0.5 , 0.  ],
               [0.  , 0.25]])
    """
    wide = matrices("inv", x)
    unit = OPS.broadcast_to(OPS.eye(wide.shape[-1], dtype=wide.dtype), wide.shape)
    y = _eliminated(OPS.stop_gradient(wide), unit)
    [y] = with_gradient([y], [wide], [], _inverse_gradient)
    return OPS.cast(y, x.dtype) if x.dtype.is_float else y


def _inverse_gradient(upstreams: Sequence[Value], args: Sequence[Value],
                      shared: Sequence[Value]) -> list[Value]:
    y = OPS.matrix_transpose(OPS.inv(args[0]))
    return [-OPS.matmul(y, OPS.matmul(upstreams[0], y))]
