"""Eigenvectors of large symmetric matrices in single precision, by divide and conquer.

A tridiagonal matrix is two halves and a matrix of rank one. So its eigenvalues are the roots of an
equation of those of the halves, and its eigenvectors a product of matrices (Gu and Eisenstat, "A
divide-and-conquer algorithm for the symmetric tridiagonal eigenproblem", 1995). Nothing is left out
where values are equal: in double precision they can differ by less than rounding errors.
"""

from __future__ import annotations

from ztorch.dtypes import f32, f64
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ops.kernel_eigen import by_ql
from ztorch.ops.kernel_secular import in_order, rising, roots
from ztorch.ops.kernel_tridiagonal import tridiagonal
from ztorch.ops.orthogonal import middle_of

LEAF = 64  # rows of parts that are not divided, at most
APART = 2e-11  # the least distance of two poles
LEAST = 1e-20  # the least size of an element that joins halves: no value is one of a half
NOTHING = 1e-15  # values up to this size are 0, but for rounding
REFLECTIONS = 64  # of a block, which change eigenvectors by products


def by_halves(x: Value) -> Value:
    """The eigenvalues of symmetric matrices `(count, n, n)` in ascending order, as a row above
    those of the eigenvectors.

    Args:
        x: Matrices in float32 whose largest elements are about 1.
    """
    n = x.shape[-1]
    diagonal, beside, scales, v = tridiagonal(x, size_of(n))
    values, rows = of_tridiagonal(diagonal, beside)
    rows = reflected_rows(rows, v, scales)
    return OPS.concat(OPS.expand_dims(values, 1), rows, axis=1)


def size_of(n: int) -> Value:
    return OPS.full((1,), n, "int32")


def of_tridiagonal(diagonal: Value, beside: Value) -> tuple[Value, Value]:
    """The eigenvalues of tridiagonal matrices, and the eigenvectors as rows.

    Args:
        diagonal: The diagonals `(count, n)`.
        beside: The elements beside them, and one that counts as 0.
    """
    count, n = diagonal.shape
    parts = 2 ** max(0, (-(-n // LEAF) - 1).bit_length())
    h = -(-n // parts)
    if more := parts * h - n:  # they come last
        bound = OPS.max(OPS.abs(diagonal), axis=-1, keepdims=True)
        bound = 2.0 * (bound + 2.0 * OPS.max(OPS.abs(beside), axis=-1, keepdims=True)) + 1.0
        diagonal = OPS.concat(diagonal, OPS.broadcast_to(bound, (count, more)), axis=-1)
        beside = OPS.pad(beside, (0, 0), (0, more))
    size = OPS.abs(beside)
    place = OPS.iota((parts * h,), 0)
    ends = OPS.equal(place % h, h - 1)
    cut = OPS.where(OPS.bitwise_and(ends, OPS.less(place, n - 1)), size, 0.0)
    diagonal = diagonal - cut - OPS.pad(cut[:, :-1], (0, 1), (0, 0))
    row, column = OPS.iota((h, 1), 0), OPS.iota((1, h), 1)
    own, along = (OPS.reshape(y, (count * parts, h, 1)) for y in (diagonal, beside))
    upper = OPS.where(OPS.equal(column, row + 1), along, 0.0)
    full = OPS.where(OPS.equal(row, column), own, upper + OPS.matrix_transpose(upper))
    rows = by_ql(full)
    values, vectors = OPS.cast(rows[:, 0], f64), rows[:, 1:]
    while parts > 1:
        joint = OPS.reshape(OPS.reshape(beside, (count, parts, h))[:, 0::2, -1], (-1,))
        values, vectors = _joined(values, vectors, joint)
        parts, h = parts // 2, 2 * h
    values = OPS.where(OPS.less(OPS.abs(values), NOTHING), 0.0, values)
    return OPS.cast(rising(values[:, :n]), diagonal.dtype), vectors[:, :n, :n]


def _joined(values: Value, vectors: Value, joint: Value) -> tuple[Value, Value]:
    """The eigenvalues and eigenvectors of pairs of matrices that an element joins."""
    count, h = values.shape[0] // 2, values.shape[1]
    n = 2 * h
    pairs = OPS.reshape(vectors, (count, 2, h, h))
    first, second = pairs[:, 0], pairs[:, 1]
    joint = OPS.expand_dims(OPS.cast(joint, f64), -1)
    last, ahead = OPS.cast(first[:, :, -1], f64), OPS.cast(second[:, :, 0], f64)
    z = OPS.concat(last, OPS.where(OPS.less(joint, 0.0), -ahead, ahead), axis=-1)
    root = OPS.sqrt(OPS.maximum(OPS.abs(joint), LEAST))
    values = OPS.reshape(values, (count, n))
    places, values, poles, z = in_order(values, z, size_of(n), APART, LEAST)
    z = z * root
    halves = OPS.full((count, n), 0.5, f64)
    distances, nearest, offsets = roots(poles, halves, z, size_of(n))
    values = OPS.take_along_axis(values, nearest, -1) + offsets
    turns = unit_rows(vectors_of(poles, halves, z, distances))
    turns = OPS.take_along_axis(turns, OPS.expand_dims(places, -2), -1)
    products = OPS.matmul(turns[:, :, :h], first), OPS.matmul(turns[:, :, h:], second)
    return values, OPS.concat(*products, axis=-1)


def vectors_of(poles: Value, sums: Value, z: Value, distances: Value) -> Value:
    """The eigenvectors, as rows of any length, of the matrix of which the computed roots are the
    exact ones. Arguments are those of `roots`."""
    n = poles.shape[-1]
    row, column = OPS.iota((n, 1), 0), OPS.iota((1, n), 1)
    before = OPS.less(row, column)
    factors = []
    for x, sign in ((poles, -1.0), (sums, 1.0)):
        own = OPS.expand_dims(x, -1)
        after = OPS.pad(own[:, 1:], (0, 0, 0), (0, 1, 0))
        factors.append(OPS.expand_dims(x, -2) + sign * OPS.where(before, own, after))
    apart = OPS.where(OPS.equal(row, n - 1), -1.0, factors[0] * factors[1])
    z = OPS.copysign(OPS.sqrt(OPS.prod(distances / apart, axis=-2)), z)
    return OPS.expand_dims(z, -2) / distances


def unit_rows(rows: Value) -> Value:
    """Rows of length 1, in single precision."""
    return OPS.cast(rows / OPS.sqrt(OPS.sum(rows * rows, axis=-1, keepdims=True)), f32)


def reflected_rows(rows: Value, v: Value, scales: Value) -> Value:
    """Rows times the product of reflections, from the last one on.

    Args:
        rows: Matrices `(count, n, n)`.
        v: The vector of each reflection, as a row, which is zero up to the diagonal.
        scales: Their factors.
    """
    count, n, _ = rows.shape
    more = -n % REFLECTIONS
    v = OPS.reshape(OPS.pad(v, (0, 0, 0), (0, more, 0)), (count, -1, REFLECTIONS, n))
    scales = OPS.reshape(OPS.pad(scales, (0, 0), (0, more)), (count, -1, REFLECTIONS, 1))
    turns = OPS.matmul(OPS.matrix_transpose(middle_of(v, scales)), v)
    for k in reversed(range(v.shape[1])):
        start = k * REFLECTIONS
        own, turn = v[:, k, :, start:], turns[:, k, :, start:]
        products = OPS.matmul(rows[..., start:], OPS.matrix_transpose(own))
        last = rows[..., start:] - OPS.matmul(products, turn)
        rows = OPS.concat(rows[..., :start], last, axis=-1) if start else last
    return rows
