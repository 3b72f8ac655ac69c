"""Rows of matrices that rotations make orthogonal, on processors, a matrix after the other.

This is Hestenes' method: each two rows are rotated in a plane, until all products of rows are
rounding errors. A row lies in an array of its own while it meets those after it, so that the loops
over elements are vectors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.kernels import kernel, threads
from ztorch.ops.kernel_eigen import FEW, by_ql

SWEEPS = 40  # over all pairs of rows, at most; two or three are usual


def rotated_rows(x: Value) -> Value:
    """Orthogonal rows, and beside them the rows of the orthogonal matrix that makes them.

    Args:
        x: Matrices `(count, n, n)` whose largest elements are about 1.
    """
    eps = 2.0 ** (1 - x.dtype.significand)
    n = x.shape[-1]
    first = by_ql(OPS.matmul(x, OPS.matrix_transpose(x)))[:, 1:]
    y, turns = orthogonal_rows(OPS.matmul(first, x), first, OPS.full((1,), n, "int32"),
                               eps * math.sqrt(n), eps**4)
    return OPS.concat(y, turns, axis=-1)


@kernel
def orthogonal_rows(x: Any, first: Any, sizes: Any, error: Any, least: Any) -> Any:
    """Orthogonal rows, and the product of all rotations.

    Args:
        x: Square matrices.
        first: The rotations so far.
        sizes: The number of rows. A loop up to a number that is data takes vectors.
        error: Products of rows up to this share of their lengths count as 0.
        least: Rows whose squared length is smaller are not rotated.
    """
    count, n, _ = x.shape
    y, z, lengths = np.empty_like(x), np.empty_like(x), np.empty((count, n), x.dtype)
    row, turns = np.empty_like(lengths), np.empty_like(lengths)
    old = np.empty_like(lengths)
    for c, _ in threads(count, 1):
        stop = sizes[0] if n > FEW else n
        for i in range(n):
            for j in range(stop):
                y[c, i, j] = x[c, i, j]
            for j in range(stop):
                z[c, i, j] = first[c, i, j]
        for _ in range(SWEEPS):
            rotations = 0
            for i in range(n):
                squares = 0.0
                for j in range(stop):
                    squares += y[c, i, j] * y[c, i, j]
                lengths[c, i] = squares
            for p in range(n - 1):
                for j in range(stop):
                    row[c, j] = y[c, p, j]
                for j in range(stop):
                    turns[c, j] = z[c, p, j]
                own = lengths[c, p]
                for q in range(p + 1, n):
                    other, product = lengths[c, q], 0.0
                    for j in range(stop):
                        product += row[c, j] * y[c, q, j]
                    if min(own, other) > least and abs(product) > error * math.sqrt(own * other):
                        rotations += 1
                        ratio = (other - own) / (2.0 * product)
                        tangent = 0.5 / ratio if abs(ratio) > 1e9 else math.copysign(
                            1.0 / (abs(ratio) + math.sqrt(ratio * ratio + 1.0)), ratio)
                        cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
                        rotate(row, y, c, q, tangent * cosine, cosine, stop, old)
                        rotate(turns, z, c, q, tangent * cosine, cosine, stop, old)
                        own -= tangent * product
                        lengths[c, q] = other + tangent * product
                for j in range(stop):
                    y[c, p, j] = row[c, j]
                for j in range(stop):
                    z[c, p, j] = turns[c, j]
            if rotations == 0:
                break
    return y, z


def rotate(row: Any, rows: Any, c: Any, q: Any, sine: Any, cosine: Any, stop: Any,
           old: Any) -> None:
    """The row and a row of the matrix after a rotation."""
    for j in range(stop):
        old[c, j] = row[c, j]
        row[c, j] = cosine * old[c, j] - sine * rows[c, q, j]
        rows[c, q, j] = sine * old[c, j] + cosine * rows[c, q, j]
