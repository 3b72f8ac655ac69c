"""Systems of equations with triangular matrices, by their inverses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, constant, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import widened

_SMALL = 16  # rows of matrices that are inverted by products of whole ones

_LOWER = np.array([[2.0, 0.0, 0.0], [1.0, 3.0, 0.0], [-0.5, 0.7, 1.5]])


def inverse_of_lower(x: Value) -> Value:
    """The inverses of lower triangular matrices; elements above the diagonal are not read.

    Those of blocks of 16 rows, then of 32, 64 ... rows, each from two inverses of half the size:
    products of matrices alone, whose number grows with the logarithm of the size.
    """
    [y] = with_gradient([_inverse(OPS.stop_gradient(x))], [x], [], _inverse_gradient)
    return y


def _inverse_gradient(upstreams: Sequence[Value], args: Sequence[Value],
                      shared: Sequence[Value]) -> list[Value]:
    y = OPS.matrix_transpose(inverse_of_lower(args[0]))
    return [-OPS.tril(OPS.matmul(y, OPS.matmul(upstreams[0], y)))]


def _inverse(x: Value) -> Value:
    n = x.shape[-1]
    if n <= _SMALL:
        return _inverse_of_small(x)
    wide = extended(x, _SMALL << (-(-n // _SMALL) - 1).bit_length())
    blocks = _inverse_of_small(_diagonal_blocks(wide, _SMALL))
    return inverse_of_blocks(wide, blocks)[..., :n, :n]


def extended(x: Value, n: int) -> Value:
    """Square matrices with n rows, by ones on the diagonal."""
    more = n - x.shape[-1]
    if not more:
        return x
    x = OPS.pad(x, (0,) * x.rank, (*(0,) * (x.rank - 2), more, more))
    return x + OPS.diag(OPS.cast(OPS.iota((n,), 0) >= n - more, x.dtype))


def inverse_of_blocks(x: Value, inverse: Value) -> Value:
    """The inverses of lower triangular matrices, from those of the blocks on the diagonal.

    Args:
        x: The matrices, whose elements above the diagonal are not read.
        inverse: Inverses `(..., count, rows, rows)`.
    """
    *batch, n, _ = x.shape
    count, size = inverse.shape[-3:-1]
    more = (1 << (count - 1).bit_length()) - count
    if more:
        x = extended(x, n + more * size)
        unit = OPS.broadcast_to(OPS.eye(size, dtype=x.dtype), (*batch, more, size, size))
        inverse = OPS.concat(inverse, unit, axis=-3)
    wide = x.shape[-1]
    while size < wide:
        count, rows = wide // (2 * size), 2 * size
        blocks = _diagonal_blocks(x, rows)[..., size:, :size]
        pairs = OPS.reshape(inverse, (*batch, count, 2, size, size))
        first, second = pairs[..., 0, :, :], pairs[..., 1, :, :]
        beside = -OPS.matmul(second, OPS.matmul(blocks, first))
        above = OPS.concat(first, OPS.zeros_like(first), axis=-1)
        inverse = OPS.concat(above, OPS.concat(beside, second, axis=-1), axis=-2)
        size = rows
    return OPS.reshape(inverse, (*batch, wide, wide))[..., :n, :n]


def _diagonal_blocks(x: Value, size: int) -> Value:
    """The blocks `(..., count, size, size)` on the diagonal of matrices."""
    *batch, n, _ = x.shape
    blocks = OPS.reshape(x, (*batch, n // size, size, n // size, size))
    return OPS.moveaxis(OPS.diagonal(blocks, 0, -4, -2), -1, -3)


def _inverse_of_small(x: Value) -> Value:
    """The inverses, by products of whole matrices.

    Of D, blocks of s rows on the diagonal, and B, the blocks below that join each two of them, the
    inverse of D + B is D' - D' B D' with the inverse D' of D.
    """
    n = x.shape[-1]
    if not n:
        return x
    row, column = np.indices((n, n))
    block = np.where(row > column, row ^ column, 0)  # from s to 2 s - 1 in the blocks that join
    reciprocal = 1.0 / OPS.diagonal(x, 0, -2, -1)
    scaled = OPS.expand_dims(reciprocal, -1) * x * OPS.expand_dims(reciprocal, -2)
    y = OPS.where(constant(block == 1), -scaled, 0.0)
    y = OPS.where(constant(row == column), OPS.expand_dims(reciprocal, -1), y)
    size = 2
    while size < n:
        joining = OPS.where(constant(block // size == 1), x, 0.0)
        y = y - OPS.matmul(y, OPS.matmul(joining, y))
        size *= 2
    return y


def _solve_numpy(a: Any, b: Any, lower: bool = False) -> Any:
    a = np.tril(a) if lower else np.triu(a)
    return np.linalg.solve(a, b[:, None])[:, 0] if b.ndim == 1 else np.linalg.solve(a, b)


@op(Sample((_LOWER, (3, 2)), {"lower": True}), Sample((_LOWER.T, (3,))), numpy=_solve_numpy)
def solve_triangular(a: Value, b: Value, lower: bool = False) -> Value:
    """x with `a @ x = b` for triangular a.

    Args:
        a: Float matrices `(..., n, n)`, of which one triangle is read.
        b: Matrices `(..., n, m)`, or a vector `(n,)`, of the same dtype.
        lower: Whether to read the lower triangle, else the upper one. Default: `False`.

    Returns:
        A tensor `(..., n, m)`, or `(n,)`. It has infinities or NaN where the diagonal has zeros.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.solve_triangular(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))
        array([1., 2.])
    """
    if b.rank == 1:
        return OPS.squeeze(solve_triangular(a, OPS.expand_dims(b, -1), lower), -1)
    [left], [right] = as_floats(a), as_floats(b)
    if left.rank < 2 or left.shape[-1] != left.shape[-2]:
        raise shape_error("ops.solve_triangular needs square matrices, not", a.shape)
    if right.rank == 0 or right.shape[-2] != left.shape[-1]:
        raise shape_error("ops.solve_triangular needs the same number of rows in", a.shape, b.shape)
    left = widened(left)
    if lower:
        inverse = inverse_of_lower(left)
    else:
        inverse = OPS.matrix_transpose(inverse_of_lower(OPS.matrix_transpose(left)))
    return OPS.cast(OPS.matmul(inverse, widened(right)), right.dtype)


def _cholesky_inverse_numpy(x: Any, upper: bool = False) -> Any:
    return np.linalg.inv(np.triu(x).T @ np.triu(x) if upper else np.tril(x) @ np.tril(x).T)


@op(Sample((_LOWER,)), Sample((_LOWER.T,), {"upper": True}), numpy=_cholesky_inverse_numpy)
def cholesky_inverse(x: Value, upper: bool = False) -> Value:
    """The inverse of the matrices of which x is the Cholesky decomposition.

    Args:
        x: Triangular float matrices `(..., n, n)`, as from `cholesky`.
        upper: Whether x is upper triangular, else lower. Default: `False`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.cholesky_inverse(np.array([[2.0, 0.0], [0.0, 4.0]]))
        array([[0.25  , 0.    ],
               [0.    , 0.0625]])
    """
    [wide] = as_floats(x)
    if wide.rank < 2 or wide.shape[-1] != wide.shape[-2]:
        raise shape_error("ops.cholesky_inverse needs square matrices, not", x.shape)
    wide = widened(wide)
    inverse = inverse_of_lower(OPS.matrix_transpose(wide) if upper else wide)
    y = OPS.matmul(OPS.matrix_transpose(inverse), inverse)
    return OPS.cast(y, x.dtype) if x.dtype.is_float else y
