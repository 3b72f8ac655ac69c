"""Jacobi rotations, which diagonalize small matrices or orthogonalize their columns.

A round rotates all pairs of neighboring columns at once, then permutes the columns so that every
two columns meet once in a sweep. All rounds are the same computation.
"""

from __future__ import annotations

import functools

import numpy as np

from ztorch.dtypes import DType, f64
from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, constant, shape_error
from ztorch.graph.value import Value
from ztorch.ops.control import scan
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import widened

LARGEST = 512  # columns: the number of rotations grows with the square


def small(name: str, x: Value, square: bool) -> Value:
    """Float matrices that rotations support; 16-bit floats as float32.

    Raises:
        ShapeError: They are not such matrices.
        Unsupported: Their smaller dimension is above LARGEST.
    """
    [x] = as_floats(x)
    if x.rank < 2 or 0 in x.shape[-2:] or (square and x.shape[-1] != x.shape[-2]):
        raise shape_error(f"ops.{name} needs {'square ' if square else ''}matrices with elements, "
                          "not", x.shape)
    if min(x.shape[-2:]) > LARGEST:
        raise Unsupported(f"ops.{name} of {x.shape[-2]} x {x.shape[-1]} matrices of {x.dtype}: "
                          f"at most {LARGEST} rows or columns are supported; use NumPy on the "
                          "array")
    return widened(x)


def sweeps(n: int, d: DType) -> int:
    """The number of sweeps for n columns: one more than random, graded and nearly equal values
    needed in tests until only rounding errors were left.

    >>> sweeps(4, f64), sweeps(16, f64)
    (8, 10)
    """
    return 2 if n == 2 else (n - 1).bit_length() + (6 if d is f64 else 4)


@functools.cache
def _order(n: int) -> np.ndarray:
    """The permutation of columns between rounds, as in a round-robin tournament: the first stays,
    the others move on by one seat.

    >>> _order(6).tolist()
    [0, 3, 1, 5, 2, 4]
    """
    order = np.arange(n)
    if n > 2:
        order[0::2] = [0, 1, *range(2, n - 2, 2)]
        order[1::2] = [*range(3, n, 2), n - 2]
    return order


def rotation(even: Value, odd: Value, product: Value) -> Value:
    """The rotations of neighboring columns, and the next order, as a matrix.

    Args:
        even: Squared length of each even column, or its eigenvalue so far.
        odd: The same of its neighbor.
        product: Product of the two columns; the rotation makes it zero.
    """
    n, d = 2 * even.shape[-1], even.dtype
    source = _order(n)
    pairs = constant((source // 2).astype(np.int32))
    even, odd, product = (OPS.take(x, pairs, -1) for x in (even, odd, product))
    settled = OPS.equal(product, 0.0)
    ratio = (odd - even) / (2.0 * OPS.where(settled, 1.0, product))
    tangent = OPS.copysign(1.0 / (OPS.abs(ratio) + OPS.hypot(ratio, 1.0)), ratio)
    tangent = OPS.where(settled, 0.0, tangent)
    cosine = OPS.rsqrt(1.0 + tangent * tangent)
    own, other = np.zeros((n, n)), np.zeros((n, n))
    own[source, np.arange(n)] = 1
    other[source ^ 1, np.arange(n)] = np.where(source % 2, 1, -1)
    c, s = (OPS.expand_dims(x, -2) for x in (cosine, tangent * cosine))
    return c * constant(own, d) + s * constant(other, d)


def diagonalized(x: Value) -> tuple[Value, Value]:
    """The eigenvalues of symmetric matrices with an even number of columns, unordered, and the
    eigenvectors as columns."""

    def rotated(state: tuple[Value, Value], _: None) -> tuple[tuple[Value, Value], None]:
        y, vectors = state
        values, beside = OPS.diagonal(y, 0, -2, -1), OPS.diagonal(y, 1, -2, -1)
        turn = rotation(values[..., 0::2], values[..., 1::2], beside[..., 0::2])
        y = OPS.matmul(OPS.matrix_transpose(turn), OPS.matmul(y, turn))
        return (y, OPS.matmul(vectors, turn)), None

    n = x.shape[-1]
    unit = OPS.broadcast_to(OPS.eye(n, dtype=x.dtype), x.shape)
    (y, vectors), _ = scan(rotated, (x, unit), length=sweeps(n, x.dtype) * (n - 1))
    return OPS.diagonal(y, 0, -2, -1), vectors


def orthogonalized(x: Value) -> tuple[Value, Value]:
    """`(x @ v, v)` for an orthogonal v that makes the columns of x, an even number, orthogonal."""

    def rotated(state: tuple[Value, Value], _: None) -> tuple[tuple[Value, Value], None]:
        y, vectors = state
        even, odd = y[..., 0::2], y[..., 1::2]
        products = (OPS.sum(a * b, axis=-2) for a, b in ((even, even), (odd, odd), (even, odd)))
        turn = rotation(*products)
        return (OPS.matmul(y, turn), OPS.matmul(vectors, turn)), None

    n = x.shape[-1]
    unit = OPS.broadcast_to(OPS.eye(n, dtype=x.dtype), (*x.shape[:-2], n, n))
    result: tuple[Value, Value]
    result, _ = scan(rotated, (x, unit), length=sweeps(n, x.dtype) * (n - 1))
    return result
