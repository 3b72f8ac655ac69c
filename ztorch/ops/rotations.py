"""Singular values of small matrices, by Jacobi's rotations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.batching import Examples
from ztorch.graph.op import OPS
from ztorch.graph.value import Op, Value
from ztorch.ops.eigen import signs
from ztorch.ops.jacobi import orthogonalized
from ztorch.ops.orthogonal import decomposed


def decomposed_by_rotations(x: Value, full: bool) -> tuple[Value, Value, Value]:
    """Drmac and Veselic, "New fast and accurate Jacobi SVD algorithm", 2008, in short: rotations of
    the transposed triangle of a QR decomposition."""
    m, n = x.shape[-2:]
    if m < n:
        v, s, uh = decomposed_by_rotations(OPS.matrix_transpose(x), full)
        return OPS.matrix_transpose(uh), s, OPS.matrix_transpose(v)
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
