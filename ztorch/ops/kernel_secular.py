"""Eigenvalues of a diagonal matrix after a change of rank one, on processors.

Those of diag(p) + z z' are the roots of 1 + sum(z[j]^2 / (p[j] - x)), one between each two poles
(Cuppen, "A divide and conquer method for the symmetric tridiagonal eigenproblem", 1981). A root is
found as a distance from the nearer pole, so that small distances are exact, too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.kernels import kernel, threads

STEPS = 40  # to a root, at most; four are usual
NEAR = 1e-4  # the last step, as a share of the distance: the number of exact digits doubles


@kernel
def in_order(values: Any, z: Any, sizes: Any, apart: Any, least: Any) -> Any:
    """The places of values in ascending order. In this order the values, poles that are as many at
    least some distance apart, and the elements of z, none of which is 0: so no root is a pole.

    Args:
        values: Numbers `(count, n)` in float64.
        z: As many.
        sizes: The number n. A loop up to a number that is data takes vectors.
        apart: The least distance.
        least: The least size of an element of z.
    """
    count, n = values.shape
    places, order = np.empty((count, n), np.int32), np.empty((count, n), np.int32)
    ordered, poles, sorted_z = (np.empty_like(values), np.empty_like(values),
                                np.empty_like(values))
    for c, _ in threads(count, 1):
        stop = sizes[0]
        for i in range(stop):
            order[c, i] = 0  # NaN has no place
        for i in range(n):
            own, place = values[c, i], 0
            for j in range(stop):
                place += 1 if values[c, j] < own or (values[c, j] == own and j < i) else 0
            places[c, i] = place
            order[c, place] = i
        before = -math.inf
        for i in range(n):
            k = order[c, i]
            ordered[c, i] = values[c, k]
            before = max(values[c, k], before + apart)
            poles[c, i] = before
            sorted_z[c, i] = math.copysign(max(abs(z[c, k]), least), z[c, k])
    return places, ordered, poles, sorted_z


@kernel
def roots(poles: Any, sums: Any, z: Any, sizes: Any) -> Any:
    """The distances of each pole from each root, the pole that is nearest to a root, and how far
    the root is from it.

    Args:
        poles: Numbers `(count, n)` in ascending order, in float64. The poles are their squares, if
            sums are the numbers themselves, too.
        sums: The distance of two poles is that of the numbers times the sum of these.
        z: The elements of z.
        sizes: The number n. A loop up to a number that is data takes vectors.
    """
    count, n = poles.shape
    distances = np.empty((count, n, n), poles.dtype)
    nearest, offsets = np.empty((count, n), np.int32), np.empty_like(poles)
    for r, _ in threads(count * n, 1):
        c, i = r // n, r % n
        stop, far, total = sizes[0], min(i + 1, n - 1), 0.0
        for j in range(stop):
            distances[c, i, j] = (poles[c, j] - poles[c, i]) * (sums[c, j] + sums[c, i])
            total += z[c, j] * z[c, j]
        gap = distances[c, i, far] if i < n - 1 else 2.0 * total
        half, others = 0.5 * gap, 0.0
        for j in range(i):
            others += z[c, j] * z[c, j] / (distances[c, i, j] - half)
        for j in range(i + 2, stop):
            others += z[c, j] * z[c, j] / (distances[c, i, j] - half)
        near, sign = i, 1.0
        own = z[c, i] * z[c, i]
        other = z[c, far] * z[c, far] if i < n - 1 else 0.0
        if i < n - 1 and (other - own) / half + others + 1.0 < 0.0:  # then seen from the next pole
            near, sign = far, -1.0
            own, other = other, own
            for j in range(stop):
                distances[c, i, j] = (poles[c, near] - poles[c, j]) * (sums[c, j] + sums[c, near])
        others = sign * (others + 1.0)
        x = smaller_root(others, others * gap + own + other, own * gap)
        x = min(max(x, 1e-300), half)
        low, high = 0.0, gap
        for _ in range(STEPS):
            before, slope_before, after, slope_after = 0.0, 0.0, 0.0, 0.0
            for j in range(i):
                part = z[c, j] / (distances[c, i, j] - x)
                before += part * z[c, j]
                slope_before += part * part
            for j in range(i + 2, stop):
                part = z[c, j] / (distances[c, i, j] - x)
                after += part * z[c, j]
                slope_after += part * part
            rest = gap - x
            at = sign + before + after - own / x + other / rest
            if at > 0.0:
                high = x
            else:
                low = x
            below = own / (x * x) + (slope_before if sign > 0.0 else slope_after)
            above = other / (rest * rest) + (slope_after if sign > 0.0 else slope_before)
            # 1 + the sums is nearly c + d / -x + e / (gap - x), with these slopes of both parts
            new = x + smaller_root(at + x * below - rest * above,
                                   (rest - x) * at + x * rest * (below + above), -x * rest * at)
            inside = low < new < high or new == x  # a root itself is an end
            if not inside:
                new = 0.5 * (low + high)
            moved = abs(new - x)
            x = new
            if inside and moved <= NEAR * x:  # halving the range makes no digits exact
                break
        for j in range(stop):
            distances[c, i, j] = sign * (distances[c, i, j] - x)
        nearest[c, i] = near
        offsets[c, i] = sign * x
    return distances, nearest, offsets


def smaller_root(c: Any, a: Any, b: Any) -> Any:
    """The root of c x^2 - a x + b that is the nearer one to 0 for positive a."""
    square = math.sqrt(max(a * a - 4.0 * b * c, 0.0))
    return (a - square) / (2.0 * c) if a <= 0.0 else 2.0 * b / (a + square)


@kernel
def rising(values: Any) -> Any:
    """Values that are in ascending order but for rounding, none less than the one before it."""
    count, n = values.shape
    y = np.empty_like(values)
    for c, _ in threads(count, 1):
        before = values[c, 0]
        for i in range(n):
            value = values[c, i]
            before = value if value != value else max(before, value)
            y[c, i] = before
    return y
