"""Singular values: by rotations, or by divide and conquer for larger matrices in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import f32
from ztorch.errors import Unsupported
from ztorch.graph.batching import Examples
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, op
from ztorch.graph.value import Op, Value
from ztorch.ops.eigen import diagonals, inverse_differences, signs, with_signs
from ztorch.ops.jacobi import small
from ztorch.ops.orthogonal import decomposed
from ztorch.ops.rotations import decomposed_by_rotations

SMALL = 64  # columns of matrices of any float dtype that rotations decompose, at most of float32

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
    m, n = x.shape[-2:]
    if m < n:
        v, s, uh = _decomposed(OPS.matrix_transpose(x), full)
        u, vh = OPS.matrix_transpose(uh), OPS.matrix_transpose(v)
        turn = OPS.matrix_transpose(signs(OPS.matrix_transpose(vh[..., :m, :])))
        first = vh[..., :m, :] * turn
        vh = OPS.concat(first, vh[..., m:, :], axis=-2) if full else first
        return u * OPS.matrix_transpose(turn), s, vh
    if x.dtype is not f32 or n <= SMALL:
        u, s, vh = decomposed_by_rotations(x, full)
        return u, OPS.sort(s, descending=True), vh  # their order was that before rounding
    size = OPS.max(OPS.abs(x), axis=(-2, -1), keepdims=True)  # so that no square overflows
    size = OPS.where(OPS.greater(size, 0.0), size, 1.0)
    q, r = (None, x / size) if m == n else decomposed(x / size, m if full else n)
    rows = SINGULAR_ROWS(OPS.reshape(r[..., :n, :], (-1, n, n)))
    rows = OPS.flip(OPS.reshape(rows, (*x.shape[:-2], n, 2 * n + 1)), -2)
    u, vh = OPS.matrix_transpose(rows[..., :n]), rows[..., n:-1]
    turn = signs(OPS.matrix_transpose(vh))
    u = u * turn
    if q is not None:
        own = OPS.matmul(q[..., :n], u)
        u = OPS.concat(own, q[..., n:], axis=-1) if full else own
    s = rows[..., -1] * OPS.squeeze(size, -1)
    return u, s, vh * OPS.matrix_transpose(turn)


def _singular_numpy(x: Any) -> Any:
    u, s, vh = np.linalg.svd(x)
    return np.concatenate([np.swapaxes(u, 1, 2), vh, s[..., None]], axis=2)[:, ::-1].astype(x.dtype)


def _singular_batch(one: Value, many: Examples) -> Value:
    count, n, _ = one.args[0].shape
    rows = SINGULAR_ROWS(OPS.reshape(many.args[0], (many.count * count, n, n)))
    return OPS.reshape(rows, (many.count, *one.shape))


def _by_rotations(x: Value) -> Value:
    u, s, vh = decomposed_by_rotations(x, False)
    s = OPS.expand_dims(OPS.sort(s, descending=True), -1)  # their order was that before rounding
    rows = OPS.concat(OPS.matrix_transpose(u), vh, s, axis=-1)
    return OPS.flip(rows, -2)


def _by_halves(x: Value) -> Value:
    from ztorch.ops.divided_singular import by_halves  # late: other ops need no kernels

    return by_halves(x)


# The left and the right singular vectors of square matrices as rows, side by side, and the values
# as a last column, in ascending order. `svd` and `svdvals` have the gradient.
SINGULAR_ROWS = Op("singular_rows", "order",
                   lambda x: ((x.shape[0], x.shape[1], 2 * x.shape[2] + 1), x.dtype),
                   _singular_numpy, grad=lambda o, g, y, x: (None,), cost=64,
                   batch=_singular_batch, others=_by_rotations, serial=_by_halves)


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
