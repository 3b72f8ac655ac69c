"""Elements that inner loops change, as in `out[i, j] += a[i, k] * b[k, j]`: the schedules of sums in variables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ztorch as zt


@zt.kernel
def product(a, b):
    out = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i, j in zt.grid(*out.shape):
        for k in range(a.shape[1]):
            out[i, j] += a[i, k] * b[k, j]
    return out


@zt.kernel
def less_a_product(a, b):
    out = np.ones((a.shape[0], b.shape[1]), a.dtype)
    for i, j in zt.grid(*out.shape):
        for k in range(a.shape[1]):
            out[i, j] -= a[i, k] * b[k, j]
    return out


@zt.kernel
def depthwise(a, w):
    rows, columns, channels = a.shape
    out = np.zeros((rows - 2, columns - 2, channels), a.dtype)
    for i, j, c in zt.grid(*out.shape):
        for y in range(3):
            for x in range(3):
                out[i, j, c] += a[i + y, j + x, c] * w[y, x, c]
    return out


@zt.kernel
def pooled(a, _b):
    rows, columns, channels = a.shape
    out = np.full((rows // 2, columns // 2, channels), -math.inf, a.dtype)
    for i, j, c in zt.grid(*out.shape):
        for y in range(2):
            for x in range(2):
                out[i, j, c] = max(out[i, j, c], a[2 * i + y, 2 * j + x, c])
    return out


@zt.kernel
def pooled_slices(a, _b):
    rows, columns, channels = a.shape
    out = np.empty((rows - 2, columns - 2, channels), a.dtype)
    for i, j, c in zt.grid(*out.shape):
        out[i, j, c] = a[i:i + 3, j:j + 3, c].max() + a[i:i + 2, j + 1:j + 3, c].mean()
    return out


@zt.kernel
def columns_below(a, b):
    """A condition on the iterations, and elements of every second row."""
    out = np.zeros((2 * a.shape[0], b.shape[1]), a.dtype)
    for i, j in zt.grid(a.shape[0], b.shape[1]):
        for k in range(a.shape[1]):
            if k < i:
                out[2 * i, j] += a[i, k] * b[k, j]
    return out


@zt.kernel
def parts(a, b):
    """In a loop in order."""
    out, level = np.zeros((a.shape[0], b.shape[1]), a.dtype), 1.0
    for i in range(a.shape[0]):
        level = level * 0.5 + a[i, 0]
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                out[i, j] += level * b[k, j]
    return out


@zt.kernel
def whole(a, b):
    """Floats that are added to integers lose their fractions one by one."""
    out = np.zeros((a.shape[0],), np.int32)
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            out[i] += abs(a[i, k]) * 2.0
    return out


SQUARE, WINDOW = ((8, 8), (8, 8)), ((6, 6, 16), (3, 3, 16))


@pytest.mark.parametrize(("kernel", "shapes", "schedule"), [
    (product, SQUARE, "product"), (less_a_product, SQUARE, "product"), (depthwise, WINDOW, "sliding"),
    (pooled, WINDOW, "elements"), (pooled_slices, WINDOW, ""), (columns_below, SQUARE, ""), (parts, SQUARE, ""), (whole, SQUARE, "")],
    ids=lambda p: p.__name__ if callable(p) else "")
def test_values_and_schedules(kernel: Any, shapes: Any, schedule: str) -> None:
    random = np.random.default_rng(0)
    arrays = [random.normal(size=s) for s in shapes]
    np.testing.assert_allclose(kernel(*arrays), kernel.debug(*arrays), rtol=1e-10, atol=1e-12)
    narrow = [a.astype(np.float32) for a in arrays]
    assert f"avx2: {schedule}" in kernel.on("cpu:avx2").explain(*narrow)
