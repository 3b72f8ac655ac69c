"""The tridiagonal form of symmetric matrices on processors, a matrix after the other.

Householder's reflections change the rows of a panel as each needs it, and all other rows once for
the panel (Dongarra, Hammarling and Sorensen, "Block reduction of matrices to condensed forms for
eigenvalue computations", 1989).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.kernels import kernel, threads

PANEL = 4  # rows whose changes reach the others at once
LINE = 16  # numbers of a cache line: vectors of whole rows begin at one, before their first element


@kernel
def tridiagonal(x: Any, sizes: Any) -> Any:
    """The diagonals of Q' x Q, the elements beside them, and of each reflection I - s v v', of
    which Q is the product, s and v as a row.

    Args:
        x: Symmetric matrices whose largest elements are about 1.
        sizes: The number of rows. A loop up to a number that is data takes vectors.
    """
    count, n, _ = x.shape
    a, v, w = np.empty_like(x), np.empty_like(x), np.empty((count, PANEL, n), x.dtype)
    values, beside = np.empty((count, n), x.dtype), np.empty((count, n), x.dtype)
    scales = np.empty_like(values)
    for c, _ in threads(count, 1):
        stop = sizes[0]
        for i in range(n):
            for j in range(stop):
                a[c, i, j] = x[c, i, j]
            for j in range(stop):
                v[c, i, j] = 0.0
        for first in range(0, n, PANEL):
            last = min(first + PANEL, n)
            for k in range(first, last):
                for j in range(stop):
                    w[c, k - first, j] = 0.0
                for p in range(first, k):
                    own, other = v[c, p, k], w[c, p - first, k]
                    for j in range(k, stop):
                        a[c, k, j] = a[c, k, j] - own * w[c, p - first, j] - other * v[c, p, j]
                values[c, k] = a[c, k, k]
                if k + 1 < n:
                    mirror(a, v, beside, scales, c, k, stop)
                    if scales[c, k] != 0.0:
                        panel_step(a, v, w, scales[c, k], c, k, first, n, stop)
            for i in range(last, n):
                v0, v1, v2, v3 = (v[c, first, i], v[c, first + 1, i], v[c, first + 2, i],
                                  v[c, first + 3, i])
                w0, w1, w2, w3 = w[c, 0, i], w[c, 1, i], w[c, 2, i], w[c, 3, i]
                for j in range(last // LINE * LINE, stop):
                    a[c, i, j] = (a[c, i, j] - v0 * w[c, 0, j] - w0 * v[c, first, j]
                                  - v1 * w[c, 1, j] - w1 * v[c, first + 1, j]
                                  - v2 * w[c, 2, j] - w2 * v[c, first + 2, j]
                                  - v3 * w[c, 3, j] - w3 * v[c, first + 3, j])
        beside[c, n - 1] = 0.0
        scales[c, n - 1] = 0.0
    return values, beside, scales, v


def mirror(a: Any, v: Any, beside: Any, scales: Any, c: Any, k: Any, stop: Any) -> None:
    """The reflection that makes a row zero beyond the neighbor of the diagonal."""
    first, squares = a[c, k, k + 1], 0.0
    for j in range(k + 2, stop):
        squares += a[c, k, j] * a[c, k, j]
    beside[c, k] = first
    scales[c, k] = 0.0
    if squares > 1e-30:  # smaller ones are beyond rounding errors, and their sums not exact
        length = math.copysign(math.sqrt(squares + first * first), first)
        beside[c, k] = -length
        scales[c, k] = (first + length) / length
        factor = 1.0 / (first + length)
        for j in range(k + 2, stop):
            v[c, k, j] = factor * a[c, k, j]
        v[c, k, k + 1] = 1.0


def times_row(a: Any, v: Any, out: Any, c: Any, k: Any, row: Any, n: Any, stop: Any) -> None:
    """Row k of v times each row of the matrix after k, into a row of `out`; four rows at a time."""
    rest = k + 1 + (n - k - 1) // 4 * 4
    start = (k + 1) // LINE * LINE  # v is zero before k + 1
    for i in range(k + 1, rest, 4):
        t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
        for j in range(start, stop):
            t0 += a[c, i, j] * v[c, k, j]
            t1 += a[c, i + 1, j] * v[c, k, j]
            t2 += a[c, i + 2, j] * v[c, k, j]
            t3 += a[c, i + 3, j] * v[c, k, j]
        out[c, row, i] = t0
        out[c, row, i + 1] = t1
        out[c, row, i + 2] = t2
        out[c, row, i + 3] = t3
    for i in range(rest, n):
        total = 0.0
        for j in range(start, stop):
            total += a[c, i, j] * v[c, k, j]
        out[c, row, i] = total


def panel_step(a: Any, v: Any, w: Any, scale: Any, c: Any, k: Any, first: Any, n: Any, stop: Any
               ) -> None:
    """The row of w with which the reflection changes the matrix by v' w + w' v, less what earlier
    rows of the panel will have changed."""
    row = k - first
    times_row(a, v, w, c, k, row, n, stop)
    for p in range(first, k):
        of_v, of_w = 0.0, 0.0
        for j in range(k + 1, stop):
            of_v += v[c, p, j] * v[c, k, j]
            of_w += w[c, p - first, j] * v[c, k, j]
        for j in range(k + 1, stop):
            w[c, row, j] = w[c, row, j] - of_w * v[c, p, j] - of_v * w[c, p - first, j]
    half = 0.0
    for j in range(k + 1, stop):
        half += w[c, row, j] * v[c, k, j]
    half *= 0.5 * scale
    for j in range(k + 1, stop):
        w[c, row, j] = scale * (w[c, row, j] - half * v[c, k, j])
