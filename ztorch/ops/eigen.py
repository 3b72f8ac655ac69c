"""Eigenvalues and eigenvectors of symmetric matrices: by the QL algorithm on processors, by Jacobi
rotations, many at once, on other machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import f32
from ztorch.graph.batching import Examples
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, op
from ztorch.graph.value import Op, Value
from ztorch.ops.jacobi import diagonalized, small
from ztorch.ops.orthogonal import decomposed

_SYMMETRIC = np.array([[2.0, 0.3], [0.3, -1.0]])


def with_signs(vectors: Any, along: int = -2) -> Any:
    """NumPy's vectors with our sign: the largest element is positive."""
    at = np.argmax(np.abs(vectors), along, keepdims=True)
    return vectors * np.where(np.take_along_axis(vectors, at, along) < 0, -1, 1)


def signs(vectors: Value) -> Value:
    """-1 for columns whose element of largest magnitude is negative, otherwise 1."""
    at = OPS.argmax(OPS.abs(vectors), axis=-2, keepdims=True)
    mask = OPS.equal(OPS.iota((vectors.shape[-2], 1), 0), at)
    largest = OPS.sum(OPS.where(mask, vectors, 0.0), axis=-2, keepdims=True)
    return OPS.where(OPS.less(largest, 0.0), -1.0, OPS.ones_like(largest))


def _eigh_numpy(x: Any) -> Any:
    values, vectors = np.linalg.eigh(x)
    return values, with_signs(vectors)


@op(Sample((_SYMMETRIC,)), results=("eigenvalues", "eigenvectors"), numpy=_eigh_numpy)
def eigh(x: Value) -> tuple[Value, Value]:
    """The eigenvalues and eigenvectors of symmetric matrices.

    The element of largest magnitude of an eigenvector is positive. The gradient of eigenvectors is
    only defined for distinct eigenvalues.

    Args:
        x: Symmetric matrices `(..., n, n)` with n up to 512; only the lower triangle is read.

    Returns:
        `(eigenvalues, eigenvectors)`: tensors `(..., n)`, in ascending order, and `(..., n, n)`
        with an eigenvector in each column, of the dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> values, vectors = zt.ops.eigh(np.array([[0.0, 2.0], [2.0, 3.0]]))
        >>> np.round(values, 9).tolist()
        [-1.0, 4.0]
    """
    symmetric = _mirrored(small("eigh", x, square=True))
    values, vectors = _of_symmetric(symmetric)
    if not x.dtype.is_float:
        return values, vectors
    return OPS.cast(values, x.dtype), OPS.cast(vectors, x.dtype)


@op(Sample((_SYMMETRIC,)), numpy=np.linalg.eigvalsh)
def eigvalsh(x: Value) -> Value:
    """The eigenvalues of symmetric matrices, in ascending order.

    Args:
        x: Symmetric matrices `(..., n, n)` with n up to 512; only the lower triangle is read.

    Returns:
        A tensor `(..., n)` of the dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> np.round(zt.ops.eigvalsh(np.array([[0.0, 2.0], [2.0, 3.0]])), 9).tolist()
        [-1.0, 4.0]
    """
    return eigh(x)[0]


def _mirrored(x: Value) -> Value:
    """The symmetric matrices with the lower triangle of x."""
    return OPS.tril(x) + OPS.matrix_transpose(OPS.tril(x, -1))


def _of_symmetric(x: Value) -> tuple[Value, Value]:
    values, vectors = with_gradient(_decomposed(OPS.stop_gradient(x)), [x], [], _gradient)
    return values, vectors


def _decomposed(x: Value) -> tuple[Value, Value]:
    *batch, n, _ = x.shape
    size = OPS.max(OPS.abs(x), axis=(-2, -1), keepdims=True)  # so that no square overflows
    size = OPS.where(OPS.equal(size, 0.0), 1.0, size)
    rows = OPS.reshape(EIGEN_ROWS(OPS.reshape(x / size, (-1, n, n))), (*batch, n + 1, n))
    rows = OPS.where(OPS.isfinite(size), rows, math.nan)
    values, vectors = rows[..., 0, :], OPS.matrix_transpose(rows[..., 1:, :])
    return values * OPS.squeeze(size, -1), vectors * signs(vectors)


def _ascending(rows: Value) -> Value:
    """Rows of eigenvectors, and of their eigenvalues above them, in the order of these."""
    values = rows[:, 0]
    order = OPS.argsort(values)
    vectors = OPS.take_along_axis(rows[:, 1:], OPS.expand_dims(order, -1), -2)
    values = OPS.take_along_axis(values, order, -1)
    return OPS.concat(OPS.expand_dims(values, 1), vectors, axis=1)


def _rows_numpy(x: Any) -> Any:
    values, vectors = np.linalg.eigh(x)
    return np.concatenate([values[:, None], np.swapaxes(vectors, 1, 2)], axis=1).astype(x.dtype)


def _rows_batch(one: Value, many: Examples) -> Value:
    count, n, _ = one.args[0].shape
    rows = EIGEN_ROWS(OPS.reshape(many.args[0], (many.count * count, n, n)))
    return OPS.reshape(rows, (many.count, *one.shape))


def by_rotations(x: Value) -> Value:
    """The same as `by_ql`, in ascending order, by Jacobi rotations.

    A step of the QR algorithm before reorders matrices with large and small elements, which rotate
    slowly.
    """
    n = x.shape[-1]
    q, r = decomposed(x, n)
    turned = _mirrored(OPS.matmul(r, q))
    if n % 2:
        turned = OPS.pad(turned, (0, 0, 0), (0, 1, 1))
    values, vectors = diagonalized(turned)
    rows = OPS.matrix_transpose(OPS.matmul(q, vectors[..., :n, :n]))
    return _ascending(OPS.concat(OPS.expand_dims(values[..., :n], 1), rows, axis=1))


def _on_processors(x: Value) -> Value:
    from ztorch.ops.divided_spectra import LEAF, by_halves  # late: other ops need no kernels
    from ztorch.ops.kernel_eigen import by_ql

    return by_halves(x) if x.dtype is f32 and x.shape[-1] > LEAF else _ascending(by_ql(x))


# Eigenvalues of symmetric matrices, in ascending order, above eigenvectors as rows. `eigh` has the
# gradient.
EIGEN_ROWS = Op("eigen_rows", "order",
                lambda x: ((x.shape[0], x.shape[1] + 1, x.shape[2]), x.dtype), _rows_numpy,
                grad=lambda o, g, y, x: (None,), cost=64, batch=_rows_batch, others=by_rotations,
                serial=_on_processors)


def _gradient(upstreams: Sequence[Value], args: Sequence[Value],
              shared: Sequence[Value]) -> list[Value]:
    """Giles, "Collected matrix derivative results", 2008."""
    values, vectors = _of_symmetric(args[0])
    transposed = OPS.matrix_transpose(vectors)
    inner = OPS.matmul(transposed, upstreams[1]) * inverse_differences(values)
    inner = inner + diagonals(upstreams[0])
    slope = OPS.matmul(OPS.matmul(vectors, inner), transposed)
    return [(slope + OPS.matrix_transpose(slope)) * 0.5]


def inverse_differences(x: Value) -> Value:
    """1 / (x[j] - x[i]) at row i and column j, 0 where they are equal."""
    differences = OPS.expand_dims(x, -2) - OPS.expand_dims(x, -1)
    same = OPS.equal(differences, 0.0)
    return OPS.where(same, 0.0, 1.0 / OPS.where(same, 1.0, differences))


def diagonals(x: Value) -> Value:
    """Matrices with x on their diagonals."""
    return OPS.expand_dims(x, -1) * OPS.eye(x.shape[-1], dtype=x.dtype)
