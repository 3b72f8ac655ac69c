"""The bidiagonal form of square matrices on processors, a matrix after the other.

Householder's reflections from both sides change the rows and columns of a panel as each needs it,
and all other rows once for the panel (Dongarra, Hammarling and Sorensen, "Block reduction of
matrices to condensed forms for eigenvalue computations", 1989).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.kernels import kernel, threads
from ztorch.ops.kernel_tridiagonal import LINE, times_row

PANEL = 4  # rows whose changes reach the others at once


@kernel
def bidiagonal(x: Any, sizes: Any) -> Any:
    """The diagonals of U' x V, the elements above them, and of each reflection I - s v v' of which
    U and V are the products, s and v as a row: those of U, then those of V.

    Args:
        x: Square matrices whose largest elements are about 1.
        sizes: The number of rows. A loop up to a number that is data takes vectors.
    """
    count, n, _ = x.shape
    a, u, v = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    y, z = np.empty((count, PANEL, n), x.dtype), np.empty((count, PANEL, n), x.dtype)
    values, above = np.empty((count, n), x.dtype), np.empty((count, n), x.dtype)
    of_u, of_v = np.empty_like(values), np.empty_like(values)
    for c, _ in threads(count, 1):
        stop = sizes[0]
        for i in range(n):
            for j in range(stop):
                a[c, i, j] = x[c, i, j]
            for j in range(stop):
                u[c, i, j] = 0.0
            for j in range(stop):
                v[c, i, j] = 0.0
        for first in range(0, n, PANEL):
            last = min(first + PANEL, n)
            for p in range(PANEL):
                for j in range(stop):
                    y[c, p, j] = 0.0
                for j in range(stop):
                    z[c, p, j] = 0.0
            for k in range(first, last):
                for i in range(k, stop):
                    u[c, k, i] = a[c, i, k]
                for p in range(first, k):
                    own, other = y[c, p - first, k], v[c, p, k]
                    for i in range(k, stop):
                        u[c, k, i] = u[c, k, i] - own * u[c, p, i] - other * z[c, p - first, i]
                mirror(u, values, of_u, c, k, k, stop)
                if of_u[c, k] != 0.0:
                    of_columns(a, u, v, y, z, of_u[c, k], c, k, first, n, stop)
                above[c, k] = 0.0
                of_v[c, k] = 0.0
                if k + 1 < n:
                    row_of(a, u, v, y, z, c, k, first, stop)
                    mirror(v, above, of_v, c, k, k + 1, stop)
                    if of_v[c, k] != 0.0:
                        of_rows(a, u, v, y, z, of_v[c, k], c, k, first, n, stop)
            for i in range(last, n):
                u0, u1, u2, u3 = (u[c, first, i], u[c, first + 1, i], u[c, first + 2, i],
                                  u[c, first + 3, i])
                z0, z1, z2, z3 = z[c, 0, i], z[c, 1, i], z[c, 2, i], z[c, 3, i]
                for j in range(last // LINE * LINE, stop):
                    a[c, i, j] = (a[c, i, j] - u0 * y[c, 0, j] - z0 * v[c, first, j]
                                  - u1 * y[c, 1, j] - z1 * v[c, first + 1, j]
                                  - u2 * y[c, 2, j] - z2 * v[c, first + 2, j]
                                  - u3 * y[c, 3, j] - z3 * v[c, first + 3, j])
    return values, above, of_u, of_v, u, v


def mirror(v: Any, values: Any, scales: Any, c: Any, k: Any, start: Any, stop: Any) -> None:
    """A row as the reflection that leaves its element at start only, and this element."""
    first, squares = v[c, k, start], 0.0
    for j in range(start + 1, stop):
        squares += v[c, k, j] * v[c, k, j]
    values[c, k] = first
    scales[c, k] = 0.0
    factor = 0.0
    if squares > 1e-30:  # smaller ones are beyond rounding errors, and their sums not exact
        length = math.copysign(math.sqrt(squares + first * first), first)
        values[c, k] = -length
        scales[c, k] = (first + length) / length
        factor = 1.0 / (first + length)
    for j in range(start, stop):
        v[c, k, j] = factor * v[c, k, j]
    v[c, k, start] = 1.0 if squares > 1e-30 else 0.0


def of_columns(a: Any, u: Any, v: Any, y: Any, z: Any, scale: Any, c: Any, k: Any, first: Any,
               n: Any, stop: Any) -> None:
    """The row of y by which the reflection u of columns changes the matrix: by -u' y."""
    row, rest = k - first, k + (n - k) // 4 * 4
    start = (k + 1) // LINE * LINE
    for i in range(k, rest, 4):
        u0, u1, u2, u3 = u[c, k, i], u[c, k, i + 1], u[c, k, i + 2], u[c, k, i + 3]
        for j in range(start, stop):
            y[c, row, j] = (y[c, row, j] + u0 * a[c, i, j] + u1 * a[c, i + 1, j]
                            + u2 * a[c, i + 2, j] + u3 * a[c, i + 3, j])
    for i in range(rest, n):
        own = u[c, k, i]
        for j in range(start, stop):
            y[c, row, j] = y[c, row, j] + own * a[c, i, j]
    for p in range(first, k):
        of_u, of_z = 0.0, 0.0
        for i in range(k, stop):
            of_u += u[c, p, i] * u[c, k, i]
            of_z += z[c, p - first, i] * u[c, k, i]
        for j in range(k + 1, stop):
            y[c, row, j] = y[c, row, j] - of_u * y[c, p - first, j] - of_z * v[c, p, j]
    for j in range(k + 1, stop):
        y[c, row, j] = scale * y[c, row, j]


def row_of(a: Any, u: Any, v: Any, y: Any, z: Any, c: Any, k: Any, first: Any, stop: Any) -> None:
    """The row of the matrix beyond its diagonal, after the reflections so far."""
    own = u[c, k, k]
    for j in range(k + 1, stop):
        v[c, k, j] = a[c, k, j] - own * y[c, k - first, j]
    for p in range(first, k):
        of_u, of_z = u[c, p, k], z[c, p - first, k]
        for j in range(k + 1, stop):
            v[c, k, j] = v[c, k, j] - of_u * y[c, p - first, j] - of_z * v[c, p, j]


def of_rows(a: Any, u: Any, v: Any, y: Any, z: Any, scale: Any, c: Any, k: Any, first: Any, n: Any,
            stop: Any) -> None:
    """The row of z by which the reflection v of rows changes the matrix: by -z' v."""
    row = k - first
    times_row(a, v, z, c, k, row, n, stop)
    for p in range(first, k + 1):
        of_y, of_v = 0.0, 0.0
        for j in range(k + 1, stop):
            of_y += y[c, p - first, j] * v[c, k, j]
            of_v += v[c, p, j] * v[c, k, j]
        if p == k:  # its own change of rows comes with z
            of_v = 0.0
        for i in range(k + 1, stop):
            z[c, row, i] = z[c, row, i] - of_y * u[c, p, i] - of_v * z[c, p - first, i]
    for i in range(k + 1, stop):
        z[c, row, i] = scale * z[c, row, i]
