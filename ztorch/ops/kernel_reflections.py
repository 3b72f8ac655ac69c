"""Householder's reflections of columns on processors, a matrix after the other.

Columns are rows here, so that the loops over their elements are vectors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.kernels import kernel, threads
from ztorch.ops.kernel_tridiagonal import LINE


@kernel
def reflected_columns(x: Any, sizes: Any, least: Any) -> Any:
    """The columns after their reflections, and below them the factors; see `orthogonal.py`.

    Args:
        x: Columns `(count, width, most)`, as rows.
        sizes: The number of their elements, at most the last size of x, so that shorter ones share
            the code. Elements beyond it are not read, and are 0 in the result.
        least: Smaller sums of squares below the diagonal count as zero.
    """
    count, width, most = x.shape
    y = np.empty((count, width + 1, most), x.dtype)
    v, shares = np.empty((count, most), x.dtype), np.empty((count, width), x.dtype)
    for c, _ in threads(count, 1):
        stop = sizes[0]
        for k in range(width):
            for i in range(stop):
                y[c, k, i] = x[c, k, i]
            for i in range(stop, most):
                y[c, k, i] = 0.0
        for i in range(most):
            y[c, width, i] = 0.0
        for i in range(stop):
            v[c, i] = 0.0
        for k in range(width):
            first, squares, factor, scale = y[c, k, k], 0.0, 0.0, 0.0
            for i in range(k + 1, stop):
                squares += y[c, k, i] * y[c, k, i]
            if squares < least:
                scale = 0.0
            else:  # also beside NaN
                length = math.copysign(math.sqrt(squares + first * first), first)
                scale = (first + length) / length
                factor = 1.0 / (first + length)
                y[c, k, k] = -length
            for i in range(k + 1, stop):
                v[c, i] = factor * y[c, k, i]
                y[c, k, i] = factor * y[c, k, i]
            v[c, k] = 1.0
            y[c, width, k] = scale
            start = k // LINE * LINE  # v is zero before k
            rest = k + 1 + (width - k - 1) // 4 * 4
            for r in range(k + 1, rest, 4):
                t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
                for i in range(start, stop):
                    t0 += y[c, r, i] * v[c, i]
                    t1 += y[c, r + 1, i] * v[c, i]
                    t2 += y[c, r + 2, i] * v[c, i]
                    t3 += y[c, r + 3, i] * v[c, i]
                shares[c, r] = scale * t0
                shares[c, r + 1] = scale * t1
                shares[c, r + 2] = scale * t2
                shares[c, r + 3] = scale * t3
            for r in range(rest, width):
                total = 0.0
                for i in range(start, stop):
                    total += y[c, r, i] * v[c, i]
                shares[c, r] = scale * total
            for r in range(k + 1, width):
                share = shares[c, r]
                for i in range(start, stop):
                    y[c, r, i] = y[c, r, i] - share * v[c, i]
            v[c, k] = 0.0
    return y
