"""`while` loops over compile-time constants, and over rows: the same results as plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt

X = np.random.default_rng(0).normal(size=(3, 11)) * 3


@zt.kernel
def doubling(x):
    """Running sums of rows, in steps of 1, 2, 4 ... elements."""
    rows, n = x.shape
    out = np.empty_like(x)
    for r in range(rows):
        row, size = x[r].copy(), 1
        while size < n:
            new = np.empty_like(row)
            for i in range(n):
                new[i] = row[i] + (row[i - size] if i >= size else 0.0)
            row = new
            size *= 2
        out[r] = row
    return out


@zt.kernel
def left_early(x):
    k, total = 0, 0.0
    while True:
        if k == 3:
            break
        k += 1
        if k == 2:
            continue
        total += x[0, k]
    while k > 0:
        k -= 2
    return total, k


@zt.kernel
def of_a_name_from_outside(x):
    out = np.zeros(44, x.dtype)
    size = 3
    for r in range(11):
        size = 1
        while size < 4:
            out[r * size] += x[0, r]
            out[r + size] = x[1, r] * size
            size += 1
    return out, size


@zt.kernel
def in_rows(x):
    starts = np.array((0, 3, 5, 11))
    out = np.zeros(3, x.dtype)
    for r in range(3):
        for k in range(starts[r], starts[r + 1]):
            v = x[0, k]
            while v > 1.0:
                v *= 0.5
            out[r] += v
    return out


@zt.kernel(max_steps=8)
def strided(x):
    """Threads whose loops take steps, to an end that is data."""
    out = np.zeros(16, np.float64)
    ends = x[0].astype(np.int32)
    for block, thread in zt.threads(2, 8):
        i = block * 8 + thread
        total = 0.0
        for k in range(1, ends[i], 2):
            total += x[0, k]
        for k in range(0, ends[i], 3):
            total += 10.0 * x[0, k]
        out[i] = total
    return out


def test_steps_to_an_end_read_from_data() -> None:
    x = np.arange(16.0)[None]
    np.testing.assert_array_equal(strided(x), strided.debug(x))


@pytest.mark.parametrize("kernel", [doubling, left_early, of_a_name_from_outside, in_rows],
                         ids=lambda k: k.source.name)
def test_as_plain_python(kernel: Any) -> None:
    got, want = kernel(X), kernel.debug(X)
    for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,),
                    strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_gradient_of_unrolled_iterations() -> None:
    slope = zt.grad(lambda x: zt.ops.sum(doubling(x) ** 2))(zt.tensor(X))
    sums = 2 * X.cumsum(1)
    np.testing.assert_allclose(slope.numpy(), sums[:, ::-1].cumsum(1)[:, ::-1], rtol=1e-12)


def test_an_end_from_data_needs_a_bound() -> None:
    @zt.kernel
    def by_data(x):
        k = 0
        while k < 10:
            k += 1
            if x[0, 0] > 0:
                break
        return x[0, k]

    @zt.kernel
    def far(x):
        k = 0
        while k < 1000:
            k += 1
        return x * k

    for kernel in (by_data, far):
        with pytest.raises(zt.errors.KernelError, match="a while loop has no bound"):
            kernel(X)
        assert zt.kernel(max_steps=1000)(kernel.function)(X).shape == kernel.debug(X).shape
