"""Linear algebra of small matrices, made of other ops: batches of them, with gradients.

Every column is a step of its own, so steps are as many kernels; larger matrices are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, Sample, broadcast_shapes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import widened

LARGEST = 16  # columns: each one is a few kernels, and as many again for the gradient

_POSITIVE = np.array([[[4.0, 1.0], [1.0, 3.0]], [[2.0, 0.2], [0.2, 1.0]]])
_REGULAR = np.array([[0.1, 2.0], [3.0, 0.5]])


def _matrices(name: str, x: Value, square: bool = True) -> Value:
    """Float matrices of a size that is unrolled; 16-bit floats as float32."""
    [x] = as_floats(x)
    if x.rank < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise shape_error(f"ops.{name} needs {'square ' if square else ''}matrices, not", x.shape)
    n = min(x.shape[-2:])
    if n > LARGEST:
        raise Unsupported(f"ops.{name} of {x.shape[-2]} x {x.shape[-1]} matrices of {x.dtype}: "
                          f"each of {n} columns would be kernels of its own; {LARGEST} columns are "
                          "the most")
    return widened(x)


@op(Sample((_POSITIVE,)), numpy=lambda x, upper=False: np.linalg.cholesky(x))
def cholesky(x: Value, upper: bool = False) -> Value:
    """The triangular matrix L with `x = L @ L.T`, for positive definite matrices.

    Args:
        x: Symmetric matrices `(..., n, n)` with n up to 16; only the lower triangle is read.
        upper: Whether to give the transpose of L. Default: `False`.

    Returns:
        A tensor of the shape and dtype of `x`. It has NaN where `x` is not positive definite.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        array([[2., 0.],
               [1., 2.]])
    """
    rest = _matrices("cholesky", x)
    n, columns = rest.shape[-1], []
    none = (0,) * (rest.rank - 2)
    for j in range(n):
        column = rest[..., :, :1] / OPS.sqrt(rest[..., :1, :1])
        columns.append(OPS.pad(column, (*none, j, 0), (*none, 0, 0)))
        below = column[..., 1:, :]
        rest = rest[..., 1:, 1:] - below * OPS.matrix_transpose(below)
    y = OPS.concat(*columns, axis=-1) if columns else rest
    y = OPS.matrix_transpose(y) if upper else y
    return OPS.cast(y, x.dtype) if x.dtype.is_float else y


@op(Sample((np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, 1.0]]),)),
    results=("q", "r"), numpy=lambda x, mode="reduced": tuple(np.linalg.qr(x, mode)))
def qr(x: Value, mode: str = "reduced") -> tuple[Value, Value]:
    """Matrices with orthonormal columns and triangular ones, of which x is the product.

    It goes by Householder's reflections, so the signs are those of LAPACK and NumPy.

    Args:
        x: Matrices `(..., m, n)`, of which the smaller size is up to 16.
        mode: `"reduced"` for `(..., m, k)` and `(..., k, n)` with the smaller size k; `"complete"`
            for `(..., m, m)` and `(..., m, n)`. Default: `"reduced"`.

    Returns:
        `(q, r)`: tensors of the dtype of `x`; `r` is zero below the diagonal.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.qr(np.array([[3.0, 1.0], [4.0, 2.0]]))[1]
        array([[-5. , -2.2],
               [ 0. ,  0.4]])
    """
    if mode not in ("reduced", "complete"):
        raise shape_error(f"ops.qr(mode={mode!r}) is neither 'reduced' nor 'complete'")
    rest = _matrices("qr", x, square=False)
    *batch, m, n = rest.shape
    k, none, rows, mirrors = min(m, n), (0,) * len(batch), [], []
    for j in range(k):
        if j < m - 1:
            v, scale = _mirror(rest[..., :, :1])
            rest = rest - scale * v * OPS.sum(v * rest, axis=-2, keepdims=True)
            mirrors.append((OPS.pad(v, (*none, j, 0), (*none, 0, 0)), scale))
        rows.append(OPS.pad(rest[..., :1, :], (*none, 0, j), (*none, 0, 0)))
        rest = rest[..., 1:, 1:]
    width = m if mode == "complete" else k
    q = OPS.broadcast_to(OPS.eye(m, width, dtype=rest.dtype), (*batch, m, width))
    for v, scale in reversed(mirrors):
        q = q - scale * v * OPS.sum(v * q, axis=-2, keepdims=True)
    r = OPS.concat(*rows, axis=-2) if rows else OPS.full((*batch, 0, n), 0, rest.dtype)
    r = OPS.pad(r, (*none, 0, 0), (*none, width - k, 0))
    return (OPS.cast(q, x.dtype), OPS.cast(r, x.dtype)) if x.dtype.is_float else (q, r)


def _mirror(x: Value) -> tuple[Value, Value]:
    """v and s of the reflection I - s v v' that leaves of a column its first element only; none
    where nothing else is there."""
    first, others = x[..., :1, :], x[..., 1:, :]
    length = OPS.norm(x, axis=-2, keepdims=True)
    v = OPS.concat(first + OPS.copysign(length, first), others, axis=-2)
    nothing = OPS.all(OPS.equal(others, 0.0), axis=-2, keepdims=True)
    squares = OPS.sum(v * v, axis=-2, keepdims=True)
    return v, OPS.where(nothing, 0.0, 2.0 / OPS.where(nothing, 1.0, squares))


def _pivot(column: Value, used: Value) -> tuple[Value, Value]:
    """The position of the largest element of a column among rows not used yet, and a mask of it."""
    size = OPS.where(used, -1.0, OPS.abs(OPS.stop_gradient(column)))
    at = OPS.argmax(size, axis=-2, keepdims=True)
    return at, OPS.equal(OPS.iota((column.shape[-2], 1), 0), at)


def _row(x: Value, here: Value) -> Value:
    """The row of x at a mask."""
    return OPS.sum(OPS.where(here, x, 0.0), axis=-2, keepdims=True)


def _solve_numpy(a: Any, b: Any) -> Any:
    return np.linalg.solve(a, b[:, None])[:, 0] if b.ndim == 1 else np.linalg.solve(a, b)


@op(Sample((_REGULAR, (2,))), numpy=_solve_numpy)
def solve(a: Value, b: Value) -> Value:
    """x with `a @ x = b`, by elimination with the largest pivot of each column.

    Args:
        a: Matrices `(..., n, n)` with n up to 16.
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
    left, [right] = _matrices("solve", a), as_floats(b)
    n = left.shape[-1]
    if right.rank == 0 or right.shape[-2] != n:
        raise shape_error("ops.solve needs as many rows of", a.shape, b.shape)
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    work = OPS.concat(*(OPS.broadcast_to(x, (*batch, *x.shape[-2:]))
                        for x in (left, widened(right))), axis=-1)
    used, places = OPS.full((*batch, n, 1), False, "bool"), []
    for _ in range(n):
        column = work[..., :, :1]
        at, here = _pivot(column, used)
        row = _row(work, here)
        row = row[..., :, 1:] / row[..., :, :1]
        work = OPS.where(here, row, work[..., :, 1:] - column * row)
        used = OPS.bitwise_or(used, here)
        places.append(at)
    if n:
        work = OPS.take_along_axis(work, OPS.concat(*places, axis=-2), -2)
    return OPS.cast(work, right.dtype)


@op(Sample((_REGULAR,)), numpy=np.linalg.inv)
def inv(x: Value) -> Value:
    """The inverse of each matrix.

    Args:
        x: Matrices `(..., n, n)` with n up to 16.

    Returns:
        A tensor of the shape and dtype of `x`. It has infinities or NaN where `x` is singular.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
        array([[0.5 , 0.  ],
               [0.  , 0.25]])
    """
    [x] = as_floats(x)
    _matrices("inv", x)
    return solve(x, OPS.eye(x.shape[-1], dtype=x.dtype))


def _pivots(name: str, x: Value) -> tuple[Value, Value]:
    """The pivots of elimination as the last axis, and the sign of the order of their rows."""
    rest = _matrices(name, x)
    *batch, n, _ = rest.shape
    used, odd = OPS.full((*batch, n, 1), False, "bool"), OPS.full((*batch, 1, 1), 0, "int32")
    pivots = []
    for _ in range(n):
        column = rest[..., :, :1]
        at, here = _pivot(column, used)
        before = OPS.bitwise_and(OPS.bitwise_not(used), OPS.less(OPS.iota((n, 1), 0), at))
        odd = odd + OPS.sum(OPS.cast(before, "int32"), axis=-2, keepdims=True)
        row = _row(rest, here)
        pivot = row[..., :, :1]
        used = OPS.bitwise_or(used, here)
        over = OPS.where(OPS.bitwise_or(used, OPS.equal(pivot, 0.0)), 0.0, column)
        rest = rest[..., :, 1:] - over / OPS.where(OPS.equal(pivot, 0.0), 1.0, pivot) * row[..., 1:]
        pivots.append(pivot)
    sign = OPS.cast(1 - OPS.bitwise_and(odd, 1) * 2, rest.dtype)
    every = OPS.concat(*pivots, axis=-1) if n else OPS.full((*batch, 1, 0), 1, rest.dtype)
    return OPS.reshape(every, (*batch, n)), OPS.reshape(sign, tuple(batch))


@op(Sample((_POSITIVE,)), numpy=np.linalg.det)
def det(x: Value) -> Value:
    """The determinant of each matrix.

    Args:
        x: Matrices `(..., n, n)` with n up to 16.

    Returns:
        A tensor without the last two axes.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.det(np.array([[0.0, 2.0], [3.0, 1.0]]))
        array(-6.)
    """
    [x] = as_floats(x)
    pivots, sign = _pivots("det", x)
    return OPS.cast(OPS.prod(pivots, axis=-1) * sign, x.dtype)


@op(Sample((_REGULAR,)), results=("sign", "logabsdet"), numpy=lambda x: tuple(np.linalg.slogdet(x)))
def slogdet(x: Value) -> tuple[Value, Value]:
    """The sign of the determinant of each matrix, and the logarithm of its absolute value.

    Args:
        x: Matrices `(..., n, n)` with n up to 16.

    Returns:
        `(sign, logabsdet)`: tensors without the last two axes. Singular matrices give 0 and
        minus infinity.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.slogdet(np.array([[0.0, 1.0], [1.0, 0.0]]))
        (array(-1.), array(0.))
    """
    [x] = as_floats(x)
    pivots, sign = _pivots("slogdet", x)
    sign = OPS.prod(OPS.sign(pivots), axis=-1) * sign
    size = OPS.sum(OPS.log(OPS.abs(pivots)), axis=-1)
    return OPS.cast(sign, x.dtype), OPS.cast(size, x.dtype)
