"""Stencils: reads of neighbors, whatever happens at the borders, are one kernel without copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt

X = np.random.default_rng(0).standard_normal((7, 9))


@zt.kernel
def reflected(u):
    out = np.empty_like(u)
    h, w = u.shape
    for i, j in zt.grid(h, w):
        up = u[i - 1, j] if i > 0 else u[i, j]
        right = u[i, j + 2] if j < w - 2 else 0.5
        out[i, j] = up + 3.0 * right
    return out


@zt.kernel
def inner(u):
    out = np.empty_like(u)
    h, w = u.shape
    for i, j in zt.grid(h, w):
        out[i, j] = u[i, j]
        if 0 < i < h - 1 and 0 < j < w - 1:
            out[i, j] = u[i - 1, j] + u[i + 1, j] - u[i, j - 1] * u[i, j + 1]
    return out


@zt.kernel
def clamped(u):
    out = np.empty_like(u)
    h, w = u.shape
    for i, j in zt.grid(h, w):
        out[i, j] = u[max(i - 2, 0), j] + u[min(i + 1, h - 1), j] * u[i, min(max(j - 1, 0), w - 3)]
    return out


@zt.kernel
def wrapped(u):
    out = np.empty_like(u)
    h, w = u.shape
    for i, j in zt.grid(h, w):
        out[i, j] = u[(i + 1) % h, j] * u[i, (j - 2) % w]
    return out


@zt.kernel
def corners(u):
    """Two known places at once; one with too many runs, a lookup; one that is used twice."""
    out = np.empty_like(u)
    h, w = u.shape
    for i, j in zt.grid(h, w):
        out[i, j] = u[max(i - 1, 0), min(j + 1, w - 1)] + u[i // 2, j] + u[min(j, 3), max(j - 1, 0)]
    return out


@zt.kernel
def pooled(u):
    h, w = u.shape[0] // 2, u.shape[1] // 2
    out = np.empty((h, w), u.dtype)
    for i, j in zt.grid(h, w):
        high = u[2 * i, 2 * j]
        for a in range(2):
            for b in range(2):
                high = max(high, u[2 * i + a, 2 * j + b])
        out[i, j] = high
    return out


ONE_KERNEL = [reflected, inner, clamped, wrapped, pooled]


@pytest.mark.parametrize("kernel", [*ONE_KERNEL, corners], ids=lambda k: k.__name__)
def test_values_and_gradients(kernel: Any) -> None:
    np.testing.assert_allclose(kernel(X), kernel.debug(X), rtol=1e-12)
    gradient = zt.grad(lambda u: (kernel(u) ** 2).sum())(zt.tensor(X)).numpy()
    for place in ((0, 0), (3, 4), (6, 8), (5, 0)):
        step = np.zeros_like(X)
        step[place] = 1e-6
        above, below = (np.sum(kernel.debug(X + s) ** 2) for s in (step, -step))
        np.testing.assert_allclose(gradient[place], (above - below) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kernel", ONE_KERNEL, ids=lambda k: k.__name__)
def test_neighbors_are_read_in_place(kernel: Any) -> None:
    """In vectors: no lookup, and no shifted copy."""
    explained = kernel.on("cpu:avx2").explain(X.astype(np.float32))
    assert "k0_" in explained and "k1_" not in explained and "take" not in explained
