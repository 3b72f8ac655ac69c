"""Singular values of small matrices, by Jacobi's rotations, and functions of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.graph.batching import Examples
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, op
from ztorch.graph.value import Op, Value
from ztorch.ops.eigen import diagonals, inverse_differences, signs, with_signs
from ztorch.ops.jacobi import orthogonalized, small
from ztorch.ops.orthogonal import decomposed

_SQUARE = np.array([[2.0, 0.3], [0.5, -1.0]])
_TALL = np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, 1.0]])
_REDUCED = {"full_matrices": False}


def _svd_numpy(x: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    if not compute_uv:
        return np.linalg.svd(x, compute_uv=False)
    u, s, vh = np.linalg.svd(x, full_matrices)
    k = s.shape[-1]
    own = with_signs(vh[..., :k, :], -1)
    u[..., :k] *= np.swapaxes(np.sum(own * vh[..., :k, :], -1, keepdims=True), -1, -2)
    vh[..., :k, :] = own
    return u, s, vh


@op(Sample((_SQUARE,)), Sample((_TALL,), _REDUCED), Sample((_TALL.T,), _REDUCED),
    results=("u", "s", "vh"), numpy=_svd_numpy)
def svd(x: Value, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """The singular value decomposition: x is `u @ diag(s) @ vh`, with orthogonal u and vh.

    The signs are such that in each row of vh that belongs to a singular value the element of the
    largest size is positive. The gradient of u and vh is only defined where singular values differ
    and are not 0: equal ones do not mix.

    Args:
        x: Float matrices `(..., m, n)` whose smaller dimension k is up to 512.
        full_matrices: Whether u and vh are `(..., m, m)` and `(..., n, n)`, else `(..., m, k)` and
            `(..., k, n)`. Matrices that are not square have a gradient only if `False`. Default:
            `True`.
        compute_uv: Whether to give u and vh too. Default: `True`.

    Returns:
        `(u, s, vh)`: tensors of the dtype of `x`; s is `(..., k)`, in descending order. With
        `compute_uv=False` s alone.

    Examples:
        >>> import ztorch as zt
        >>> u, s, vh = zt.ops.svd(np.array([[0.0, 2.0], [1.0, 0.0]]))
        >>> s.tolist(), vh.tolist()
        ([2.0, 1.0], [[0.0, 1.0], [1.0, 0.0]])
    """
    if not compute_uv:
        return svdvals(x)
    wide = small("svd", x, square=False)
    full = full_matrices and x.shape[-1] != x.shape[-2]
    parts = with_gradient(_decomposed(OPS.stop_gradient(wide), full_matrices), [wide], [],
                          no_gradient if full else _gradient)
    return tuple(OPS.cast(y, x.dtype) if x.dtype.is_float else y for y in parts)


@op(Sample((_SQUARE,)), Sample((_TALL,)), numpy=lambda x: np.linalg.svd(x, compute_uv=False))
def svdvals(x: Value) -> Value:
    """The singular values of matrices, in descending order.

    Args:
        x: Float matrices `(..., m, n)` whose smaller dimension k is up to 512.

    Returns:
        A tensor `(..., k)` of the dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.svdvals(np.array([[0.0, 2.0], [1.0, 0.0]])).tolist()
        [2.0, 1.0]
    """
    wide = small("svdvals", x, square=False)
    _, s, _ = _decomposed(OPS.stop_gradient(wide), False)
    [s] = with_gradient([s], [wide], [], _values_gradient)
    return OPS.cast(s, x.dtype) if x.dtype.is_float else s


def _decomposed(x: Value, full: bool) -> tuple[Value, Value, Value]:
    """Drmac and Veselic, "New fast and accurate Jacobi SVD algorithm", 2008, in short: rotations of
    the transposed triangle of a QR decomposition."""
    m, n = x.shape[-2:]
    if m < n:
        v, s, uh = _decomposed(OPS.matrix_transpose(x), full)
        u, vh = OPS.matrix_transpose(uh), OPS.matrix_transpose(v)
        turn = OPS.matrix_transpose(signs(OPS.matrix_transpose(vh[..., :m, :])))
        first = vh[..., :m, :] * turn
        vh = OPS.concat(first, vh[..., m:, :], axis=-2) if full else first
        return u * OPS.matrix_transpose(turn), s, vh
    size = OPS.max(OPS.abs(x), axis=(-2, -1), keepdims=True)  # so that no square overflows
    size = OPS.where(OPS.greater(size, 0.0), size, 1.0)
    q, r = decomposed(x / size, m if full else n)
    rows = ORTHOGONAL_ROWS(OPS.reshape(r[..., :n, :], (-1, n, n)))
    pairs = OPS.reshape(OPS.matrix_transpose(rows), (*x.shape[:-2], 2 * n, n))
    columns, left = pairs[..., :n, :], pairs[..., n:, :]
    squares = OPS.sum(columns * columns, axis=-2)
    order = OPS.expand_dims(OPS.argsort(squares, descending=True), -2)
    columns, left = (OPS.take_along_axis(y, order, -1) for y in (columns, left))
    right, triangle = decomposed(columns, n)  # orthogonal where columns are zero, too
    s = OPS.diagonal(triangle, 0, -2, -1)
    right = right * OPS.expand_dims(OPS.where(OPS.less(s, 0.0), -1.0, OPS.ones_like(s)), -2)
    turn = signs(right)
    u = OPS.matmul(q[..., :n], left * turn)
    u = OPS.concat(u, q[..., n:], axis=-1) if full else u
    s = OPS.abs(s) * OPS.squeeze(size, -1)
    return u, s, OPS.matrix_transpose(right * turn)


def _rows_numpy(x: Any) -> Any:
    u, s, vh = np.linalg.svd(x)
    return np.concatenate([s[..., None] * vh, np.swapaxes(u, 1, 2)], axis=2).astype(x.dtype)


def _rows_batch(one: Value, many: Examples) -> Value:
    count, n, _ = one.args[0].shape
    rows = ORTHOGONAL_ROWS(OPS.reshape(many.args[0], (many.count * count, n, n)))
    return OPS.reshape(rows, (many.count, *one.shape))


def _by_rounds(x: Value) -> Value:
    """The same as `rotated_rows`, for all pairs of a round at once."""
    n, columns = x.shape[-1], OPS.matrix_transpose(x)
    if n % 2:
        columns = OPS.pad(columns, (0, 0, 0), (0, 0, 1))
    columns, left = orthogonalized(columns)  # a column of zeros stays where it was
    return OPS.concat(*(OPS.matrix_transpose(y[..., :n, :n]) for y in (columns, left)), axis=-1)


def _by_pairs(x: Value) -> Value:
    from ztorch.ops.kernel_singular import rotated_rows  # late: other ops need no kernels

    return rotated_rows(x)


# Orthogonal rows, and beside them those of the orthogonal matrix that makes them of square
# matrices. `svd` and `svdvals` have the gradient.
ORTHOGONAL_ROWS = Op("orthogonal_rows", "order",
                     lambda x: ((x.shape[0], x.shape[1], 2 * x.shape[2]), x.dtype), _rows_numpy,
                     grad=lambda o, g, y, x: (None,), cost=64, batch=_rows_batch,
                     others=_by_rounds, serial=_by_pairs)


def no_gradient(*args: Any) -> list[Value]:
    raise Unsupported("ops.svd(full_matrices=True) of matrices that are not square has no gradient:"
                      " the vectors beyond the singular values are not unique; use "
                      "full_matrices=False")


def _values_gradient(upstreams: Sequence[Value], args: Sequence[Value],
                     shared: Sequence[Value]) -> list[Value]:
    u, _, vh = OPS.svd(args[0], False)
    return [OPS.matmul(u * OPS.expand_dims(upstreams[0], -2), vh)]


def _gradient(upstreams: Sequence[Value], args: Sequence[Value],
              shared: Sequence[Value]) -> list[Value]:
    """Townsend, "Differentiating the singular value decomposition", 2016."""
    du, ds, dvh = upstreams
    u, s, vh = OPS.svd(args[0], False)
    apart, row = inverse_differences(s * s), OPS.expand_dims(s, -2)
    zero = OPS.equal(row, 0.0)
    inverse = OPS.where(zero, 0.0, 1.0 / OPS.where(zero, 1.0, row))
    column, ut = OPS.expand_dims(s, -1), OPS.matrix_transpose(u)
    v, dv = OPS.matrix_transpose(vh), OPS.matrix_transpose(dvh)
    of_u, of_v = OPS.matmul(ut, du), OPS.matmul(vh, dv)
    inner = apart * (of_u - OPS.matrix_transpose(of_u)) * row
    inner = inner + apart * (of_v - OPS.matrix_transpose(of_v)) * column
    slope = OPS.matmul(OPS.matmul(u, inner + diagonals(ds)), vh)
    if u.shape[-2] > u.shape[-1]:  # the part outside of the columns of u
        slope = slope + OPS.matmul((du - OPS.matmul(u, of_u)) * inverse, vh)
    if vh.shape[-1] > vh.shape[-2]:
        outside = (dv - OPS.matmul(v, of_v)) * inverse
        slope = slope + OPS.matmul(u, OPS.matrix_transpose(outside))
    return [slope]
