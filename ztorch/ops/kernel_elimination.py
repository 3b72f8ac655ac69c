"""Elimination of columns with partial pivoting on processors, a matrix after the other.

Columns are rows here, so that the loops over their elements are vectors. They are eliminated one by
one within a panel, which changes all later ones at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.kernels import kernel, threads

PANEL = 4  # columns that change the later ones at once: each of these is read and written once


@kernel
def eliminated_columns(x: Any, sizes: Any) -> Any:
    """The columns after elimination, and below them the order of the rows; see `elimination.py`.

    Args:
        x: Columns `(count, width, most)`, as rows.
        sizes: The number of their elements, at most the last size of x, so that shorter ones share
            the code. Elements beyond it are not read, and are 0 in the result.
    """
    count, width, most = x.shape
    a, y = np.empty_like(x), np.empty((count, width + 1, most), x.dtype)
    order = np.empty((count, most), np.int32)
    factors = np.empty((count, PANEL, most), x.dtype)
    free = np.empty((count, most), np.int32)  # whether a row has no pivot yet
    places = np.empty((count, width), np.int32)  # the rows of pivots
    for c, _ in threads(count, 1):
        stop = sizes[0]
        for k in range(width):
            for i in range(stop):
                a[c, k, i] = x[c, k, i]
        for i in range(stop):
            free[c, i] = 1
        for first in range(0, width, PANEL):
            last = min(first + PANEL, width)
            for k in range(first, last):
                for p in range(first, k):
                    own = a[c, k, places[c, p]]
                    for i in range(stop):
                        a[c, k, i] = a[c, k, i] - own * factors[c, p - first, i]
                at = largest_free(a, free, c, k, stop, most)
                places[c, k] = at
                free[c, at] = 0
                pivot = a[c, k, at]
                divisor = pivot if pivot != 0.0 else 1.0
                for i in range(stop):
                    factors[c, k - first, i] = chosen(free[c, i] > 0, a[c, k, i] / divisor, 0.0)
                    a[c, k, i] = chosen(free[c, i] > 0, a[c, k, i] / divisor, a[c, k, i])
            for k in range(last, width):
                p1, p2, p3 = places[c, first + 1], places[c, first + 2], places[c, first + 3]
                u0 = a[c, k, places[c, first]]
                u1 = a[c, k, p1] - factors[c, 0, p1] * u0
                u2 = a[c, k, p2] - factors[c, 0, p2] * u0 - factors[c, 1, p2] * u1
                u3 = (a[c, k, p3] - factors[c, 0, p3] * u0 - factors[c, 1, p3] * u1
                      - factors[c, 2, p3] * u2)
                for i in range(stop):
                    a[c, k, i] = (a[c, k, i] - u0 * factors[c, 0, i] - u1 * factors[c, 1, i]
                                  - u2 * factors[c, 2, i] - u3 * factors[c, 3, i])
        for k in range(width):
            order[c, k] = places[c, k]
        place = width
        for i in range(stop):
            if free[c, i] > 0:
                order[c, place] = i
                place += 1
        for k in range(width):
            for i in range(stop):
                y[c, k, i] = a[c, k, order[c, i]]
        for i in range(stop):
            y[c, width, i] = order[c, i]
        for k in range(width + 1):
            for i in range(stop, most):
                y[c, k, i] = 0.0
    return y


def largest_free(a: Any, free: Any, c: Any, k: Any, stop: Any, most: Any) -> Any:
    """The first row without a pivot whose element is the largest; the first of all beside NaN."""
    best, at = -1.0, most
    for i in range(stop):
        best = max(best, chosen(free[c, i] > 0, abs(a[c, k, i]), -1.0))
    for i in range(stop):
        at = min(at, chosen((free[c, i] > 0) & (abs(a[c, k, i]) == best), i, most))
    if at == most:
        for i in range(stop):
            at = min(at, chosen(free[c, i] > 0, i, most))
    return at


def chosen(condition: Any, x: Any, y: Any) -> Any:
    """x or y, without a branch, which vectors could not take."""
    return np.where(condition, x, y)
