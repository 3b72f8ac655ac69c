"""Eigenvalues and eigenvectors of symmetric matrices on processors, a matrix after the other.

Householder's reflections make a matrix tridiagonal, and the QL algorithm with implicit shifts
diagonal (Bowdler, Martin, Reinsch and Wilkinson, "The QR and QL algorithms for symmetric matrices",
1968). Eigenvectors are rows, so that the loops over their elements are vectors. Even and odd rows
lie in two arrays: a rotation changes one of each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.kernels import kernel, threads

FEW = 8  # rows up to which elements are computed one by one: they fill no vector
TURNS = 40  # rotations of all rows for an eigenvalue, at most; two are usual


def by_ql(x: Value) -> Value:
    """The eigenvalues of symmetric matrices `(count, n, n)`, unordered, as a row above those of the
    eigenvectors.

    Args:
        x: Matrices whose largest elements are about 1.
    """
    count, n, _ = x.shape
    eps = 2.0 ** (1 - x.dtype.significand)
    values, even, odd = diagonal(x, OPS.full((1,), n, "int32"), eps)
    rows = OPS.reshape(OPS.stack(even, odd, axis=2), (count, -1, n))
    return OPS.concat(OPS.expand_dims(values, 1), rows[:, :n], axis=1)


@kernel
def diagonal(x: Any, sizes: Any, eps: Any) -> Any:
    """Eigenvalues, and eigenvectors in even and in odd rows.

    Args:
        x: Symmetric matrices.
        sizes: The number of rows. A loop up to a number that is data takes vectors.
        eps: The distance from 1 to the next number.
    """
    count, n, _ = x.shape
    a, values = np.empty_like(x), np.empty((count, n), x.dtype)
    beside = np.empty((count, n), x.dtype)  # the elements beside the diagonal
    even = np.empty((count, (n + 1) // 2, n), x.dtype)
    odd, v, w = np.empty_like(even), np.empty_like(values), np.empty_like(values)
    for c, _ in threads(count, 1):
        stop, least = sizes[0] if n > FEW else n, eps * eps
        for i in range(n):
            for j in range(stop):
                a[c, i, j] = x[c, i, j]
        for k in range(n - 1):
            tridiagonal_step(a, values, beside, c, k, n, stop, v, w)
        values[c, n - 1] = a[c, n - 1, n - 1]
        beside[c, n - 1] = 0.0
        for i in range((n + 1) // 2):
            for j in range(stop):
                even[c, i, j] = 0.0
            for j in range(stop):
                odd[c, i, j] = 0.0
            even[c, i, 2 * i] = 1.0
            if 2 * i + 1 < n:
                odd[c, i, 2 * i + 1] = 1.0
        for step in range(n - 1):
            k = n - 2 - step
            scale = a[c, k, k]
            if scale != 0.0:
                for j in range(k + 1, stop):
                    v[c, j] = a[c, k, j]
                for i in range(k + 1, n):
                    if i % 2 == 0:
                        reflect(even, c, i // 2, v, scale, k + 1, stop)
                    else:
                        reflect(odd, c, i // 2, v, scale, k + 1, stop)
        for first in range(n):
            for _ in range(TURNS):
                last = first
                while last < n - 1 and abs(beside[c, last]) > least + eps * (
                        abs(values[c, last]) + abs(values[c, last + 1])):
                    last += 1
                if last == first:
                    break
                ql_step(values, beside, even, odd, c, first, last, stop, v, least)
    return values, even, odd


def tridiagonal_step(a: Any, values: Any, beside: Any, c: Any, k: Any, n: Any, stop: Any,
                     v: Any, w: Any) -> None:
    """Makes a row and a column zero beyond the neighbor of the diagonal, by the reflection
    I - scale v v'. v takes the place of the row, scale that of the diagonal."""
    values[c, k] = a[c, k, k]
    first, squares = a[c, k, k + 1], 0.0
    for j in range(k + 2, stop):
        squares += a[c, k, j] * a[c, k, j]
    beside[c, k] = first
    a[c, k, k] = 0.0
    if squares > 1e-30:  # smaller ones are beyond rounding errors, and their sums not exact
        length = math.copysign(math.sqrt(squares + first * first), first)
        scale = 1.0 / (length * (first + length))
        beside[c, k] = -length
        a[c, k, k] = scale
        a[c, k, k + 1] = first + length
        for j in range(k + 1, stop):
            v[c, j] = a[c, k, j]
        for i in range(k + 1, n):
            total = 0.0
            for j in range(k + 1, stop):
                total += a[c, i, j] * v[c, j]
            w[c, i] = scale * total
        half = 0.0
        for j in range(k + 1, stop):
            half += w[c, j] * v[c, j]
        half *= 0.5 * scale
        for j in range(k + 1, stop):
            w[c, j] = w[c, j] - half * v[c, j]
        for i in range(k + 1, n):
            own, other = v[c, i], w[c, i]
            for j in range(k + 1, stop):
                a[c, i, j] = a[c, i, j] - own * w[c, j] - other * v[c, j]


def reflect(rows: Any, c: Any, i: Any, v: Any, scale: Any, first: Any, stop: Any) -> None:
    """A row after the reflection I - scale v v'."""
    total = 0.0
    for j in range(first, stop):
        total += rows[c, i, j] * v[c, j]
    total *= scale
    for j in range(first, stop):
        rows[c, i, j] = rows[c, i, j] - total * v[c, j]


def ql_step(values: Any, beside: Any, even: Any, odd: Any, c: Any, first: Any, last: Any, stop: Any,
            old: Any, least: Any) -> None:
    """A step of the QL algorithm for the rows from the first to the last one."""
    g = (values[c, first + 1] - values[c, first]) / (2.0 * beside[c, first])
    shift = beside[c, first] / (g + math.copysign(math.sqrt(g * g + 1.0), g))
    g = values[c, last] - values[c, first] + shift
    sine, cosine, moved = 1.0, 1.0, 0.0
    i = last - 1
    while i >= first:
        f, b = sine * beside[c, i], cosine * beside[c, i]
        r = math.sqrt(f * f + g * g)
        beside[c, i + 1] = r
        if r <= least:
            values[c, i + 1] = values[c, i + 1] - moved
            beside[c, last] = 0.0
            break
        sine, cosine = f / r, g / r
        g = values[c, i + 1] - moved
        r = (values[c, i] - g) * sine + 2.0 * cosine * b
        moved = sine * r
        values[c, i + 1] = g + moved
        g = cosine * r - b
        if i % 2 == 0:
            rotate(even, odd, c, i // 2, i // 2, sine, cosine, stop, old)
        else:
            rotate(odd, even, c, i // 2, i // 2 + 1, sine, cosine, stop, old)
        i -= 1
    if i < first:
        values[c, first] = values[c, first] - moved
        beside[c, first] = g
        beside[c, last] = 0.0


def rotate(lower: Any, upper: Any, c: Any, i: Any, k: Any, sine: Any, cosine: Any, stop: Any,
           old: Any) -> None:
    """Row i of one array and row k of the other one after a rotation."""
    for j in range(stop):
        old[c, j] = lower[c, i, j]
        lower[c, i, j] = cosine * old[c, j] - sine * upper[c, k, j]
        upper[c, k, j] = sine * old[c, j] + cosine * upper[c, k, j]
