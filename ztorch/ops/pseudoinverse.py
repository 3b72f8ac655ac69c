"""Results of singular values: pseudoinverse, least squares, rank and condition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import i32
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, broadcast_shapes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.control import cond
from ztorch.ops.formulas import as_floats
from ztorch.ops.jacobi import small
from ztorch.ops.orthogonal import decomposed
from ztorch.ops.reduction import widened
from ztorch.ops.triangular import inverse_of_lower

LARGE = 256  # rows of triangular matrices whose products go by blocks
BLOCKS = 4  # of these

_SQUARE = np.array([[2.0, 0.3], [0.5, -1.0]])
_TALL = np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, 1.0]])
_FLAT = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])  # of rank 1


def _share(x: Value, rcond: float | None, rtol: float | None) -> float:
    """Singular values up to this share of the largest one count as 0."""
    share = rcond if rtol is None else rtol
    return max(x.shape[-2:]) * 2.0 ** (1 - x.dtype.significand) if share is None else share


@op(Sample((_SQUARE,)), Sample((_TALL,)), Sample((_TALL.T,)),
    numpy=lambda x, rcond=None, rtol=None: np.linalg.pinv(x))
def pinv(x: Value, rcond: float | None = None, rtol: float | None = None) -> Value:
    """The pseudoinverse of matrices (Moore and Penrose): the inverse on the rows they span.

    Args:
        x: Float matrices `(..., m, n)` whose smaller dimension is up to 512.
        rcond: Singular values up to this share of the largest one count as 0. `None` for the
            larger size times the dtype's rounding error. Default: `None`.
        rtol: The same by the name of the array API. Default: `None`.

    Returns:
        A tensor `(..., n, m)` of the dtype of `x`. Its gradient holds while the rank stays.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.pinv(np.array([[2.0, 0.0], [0.0, 0.0]])).tolist()
        [[0.5, 0.0], [0.0, 0.0]]
    """
    wide = small("pinv", x, square=False)
    share = _share(x if x.dtype.is_float else wide, rcond, rtol)
    u, s, vh = OPS.svd(OPS.stop_gradient(wide), False)
    counts = OPS.greater(s, OPS.max(s, axis=-1, keepdims=True) * share)
    inverse = OPS.where(counts, 1.0 / OPS.where(counts, s, 1.0), 0.0)
    y = OPS.matmul(OPS.matrix_transpose(vh) * OPS.expand_dims(inverse, -2),
                   OPS.matrix_transpose(u))

    def gradient(upstreams: Sequence[Value], args: Sequence[Value],
                 shared: Sequence[Value]) -> list[Value]:
        return [_pinv_gradient(upstreams[0], args[0], OPS.pinv(args[0], share))]

    [y] = with_gradient([y], [wide], [], gradient)
    return OPS.cast(y, x.dtype) if x.dtype.is_float else y


def _pinv_gradient(g: Value, x: Value, y: Value) -> Value:
    """Golub and Pereyra, "The differentiation of pseudo-inverses", 1973."""
    yt, gt = OPS.matrix_transpose(y), OPS.matrix_transpose(g)
    left = OPS.matmul(gt - OPS.matmul(x, OPS.matmul(y, gt)), OPS.matmul(y, yt))
    right = OPS.matmul(OPS.matmul(yt, y), gt - OPS.matmul(OPS.matmul(gt, y), x))
    return left + right - OPS.matmul(yt, OPS.matmul(g, yt))


def _lstsq_numpy(a: Any, b: Any, rcond: float | None = None) -> Any:
    return np.linalg.pinv(a) @ b


@op(Sample((_TALL, (3,))), Sample((_TALL.T, (2, 2))), numpy=_lstsq_numpy)
def lstsq(a: Value, b: Value, rcond: float | None = None) -> Value:
    """The smallest x for which `a @ x` is nearest to b, by the sum of squares.

    Args:
        a: Float matrices `(..., m, n)` whose smaller dimension is up to 512.
        b: Matrices `(..., m, k)`, or a vector `(m,)`, of the same dtype.
        rcond: Singular values of `a` up to this share of the largest one count as 0. `None` for the
            larger size times the dtype's rounding error. Default: `None`.

    Returns:
        A tensor `(..., n, k)`, or `(n,)`: the solution alone, as in Keras, where NumPy returns its
        rank and singular values too; `ops.svd` has these.

    Examples:
        >>> import ztorch as zt
        >>> line = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
        >>> np.round(zt.ops.lstsq(line, np.array([1.0, 3.0, 5.0])), 9).tolist()
        [1.0, 2.0]
    """
    if b.rank == 1:
        return OPS.squeeze(lstsq(a, OPS.expand_dims(b, -1), rcond), -1)
    [right] = as_floats(b)
    if a.rank < 2 or right.rank == 0 or right.shape[-2] != a.shape[-2]:
        raise shape_error("ops.lstsq needs the same number of rows in", a.shape, b.shape)
    wide, d = small("lstsq", a, square=False), right.dtype
    share = _share(a if a.dtype.is_float else wide, rcond, None)

    def gradient(upstreams: Sequence[Value], args: Sequence[Value],
                 shared: Sequence[Value]) -> list[Value]:
        (a, b), inverse = args, OPS.pinv(args[0], share)
        of_inverse = OPS.matmul(upstreams[0], OPS.matrix_transpose(b))
        return [_pinv_gradient(of_inverse, a, inverse),
                OPS.matmul(OPS.matrix_transpose(inverse), upstreams[0])]

    batch = broadcast_shapes(wide.shape[:-2], right.shape[:-2])
    pair = [OPS.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (wide, widened(right))]
    left, right = map(OPS.stop_gradient, pair)
    [y] = with_gradient([_least_squares(left, right, share)], pair, [], gradient)
    return OPS.cast(y, d)


def _least_squares(a: Value, b: Value, share: float) -> Value:
    """By the QR decomposition, unless singular values may count as 0.

    The norm of the triangle's inverse, by the sum of squares, is at least the reciprocal of the
    smallest singular value. That of the triangle times its transpose is at least the square of the
    largest one, and nearer to it than the norm of the triangle would be.
    """
    flat, k = a.shape[-2] < a.shape[-1], b.shape[-1]
    tall = OPS.matrix_transpose(a) if flat else OPS.concat(a, b, axis=-1)
    n = min(a.shape[-2:])
    q, r = decomposed(tall, n, 0 if flat else k)
    r, product = r[..., :n], r[..., n:]
    inverse = inverse_of_lower(OPS.matrix_transpose(r))  # of the transpose
    size = OPS.max(OPS.abs(r), axis=(-2, -1), keepdims=True)  # so that no square overflows
    scaled = r / OPS.where(OPS.equal(size, 0.0), 1.0, size)
    first = OPS.sqrt(OPS.sqrt(squares_of_products(scaled)))
    second = OPS.sqrt(OPS.sum((inverse * size) ** 2.0, axis=(-2, -1)))
    regular = OPS.all(OPS.less(first * second * share, 1.0))
    factors = (q, inverse) if flat else (OPS.matrix_transpose(inverse), product)

    def by_triangle(a: Value, b: Value, first: Value, second: Value) -> Value:
        return OPS.matmul(first, OPS.matmul(second, b) if flat else second)

    def by_singular_values(a: Value, b: Value, first: Value, second: Value) -> Value:
        return OPS.matmul(OPS.pinv(a, share), b)

    y: Value = cond(regular, by_triangle, by_singular_values, a, b, *factors)
    return y


def squares_of_products(r: Value) -> Value:
    """The sum of the squares of all products of two rows of triangular matrices: a block of rows
    with itself and those above, from its first column on."""
    n = r.shape[-1]
    rows = -(-n // BLOCKS) if n >= LARGE else n
    total: Value | None = None
    for start in range(0, n, rows):
        own = r[..., start:start + rows, start:]
        products = OPS.matmul(r[..., :start + rows, start:], OPS.matrix_transpose(own)) ** 2.0
        twice = OPS.sum(products, axis=(-2, -1)) + OPS.sum(products[..., :start, :], axis=(-2, -1))
        total = twice if total is None else total + twice
    assert total is not None
    return total


@op(Sample((_FLAT,)), Sample((_TALL.T,)),
    numpy=lambda x, tol=None, rtol=None: np.linalg.matrix_rank(x).astype(np.int32))
def matrix_rank(x: Value, tol: float | None = None, rtol: float | None = None) -> Value:
    """The number of singular values that are not 0, but for rounding.

    Args:
        x: Float matrices `(..., m, n)` whose smaller dimension is up to 512.
        tol: Singular values up to this number count as 0. `None` leaves it to `rtol`. Default:
            `None`.
        rtol: Singular values up to this share of the largest one count as 0. `None` for the larger
            size times the dtype's rounding error. Default: `None`.

    Returns:
        An int32 tensor without the last two axes.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.matrix_rank(np.array([[1.0, 2.0], [2.0, 4.0]]))
        array(1, dtype=int32)
    """
    wide = small("matrix_rank", x, square=False)
    s = OPS.svdvals(wide)
    share = _share(x if x.dtype.is_float else wide, None, rtol)
    least = OPS.max(s, axis=-1, keepdims=True) * share if tol is None else tol
    return OPS.sum(OPS.cast(OPS.greater(s, least), i32), axis=-1)


@op(Sample((_SQUARE,)), Sample((_SQUARE,), {"p": 1}), Sample((_SQUARE,), {"p": "fro"}),
    numpy=np.linalg.cond)
def condition_number(x: Value, p: float | str | None = None) -> Value:
    """The condition number of matrices: by how much errors of b grow in the x of `a @ x = b`.

    Args:
        x: Float matrices; for singular values whose smaller dimension is up to 512.
        p: `None` or 2 for the largest singular value over the smallest, -2 for its reciprocal; any
            other order of `matrix_norm` for the norm of x times that of its inverse. Default:
            `None`.

    Returns:
        A tensor without the last two axes; infinity for singular matrices.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.condition_number(np.array([[4.0, 0.0], [0.0, 2.0]])).item()
        2.0
    """
    if p in (None, 2, -2):
        s = OPS.svdvals(x)
        y = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    else:
        y = OPS.matrix_norm(x, p) * OPS.matrix_norm(OPS.inv(x), p)
    lost = OPS.logical_and(OPS.isnan(y), OPS.logical_not(OPS.any(OPS.isnan(x), axis=(-2, -1))))
    return OPS.where(lost, math.inf, y)  # such as 0 / 0
