"""Sums, maxima and tests of all elements within a thread, and loops of a thread that run in lanes."""

from __future__ import annotations

import itertools

import numpy as np

import ztorch as zt
from tests.parity import HERE, Job, compiled
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph

X = np.random.default_rng(3).integers(-3, 9, (6, 5)).astype(np.float32)
STARTS = np.array([0, 3, 3, 20, 37, 61], np.int32)
Y = np.random.default_rng(4).integers(-9, 9, 61).astype(np.float32)


@zt.kernel
def folds(x):
    low, high, total = np.empty(6, np.float32), np.empty(6, np.float32), np.empty(6, np.float32)
    every, some = np.empty(6, np.bool_), np.empty(6, np.bool_)
    for r, _ in zt.threads(6, 1):
        row = np.zeros(5, np.float32)
        for k in range(5):
            row[k] = x[r, k]
        low[r], high[r] = row.min(), np.max(row)
        total[r] = sum(row[k] for k in range(5) if row[k] > 0)
        every[r] = all(row[k] > -1 for k in range(5))
        some[r] = any(row[k] > 6 for k in range(5))
    return low, high, total, every, some


@zt.kernel
def ragged(y, starts):
    """Rows of any length: their sums, which lanes may share, and sums so far, which they may not."""
    totals, so_far = np.zeros(5, np.float32), np.zeros_like(y)
    for r, _ in zt.threads(5, 1):
        total = np.float32(0)
        for k in range(starts[r], starts[r + 1]):
            total += y[k] * 2 + 1
        totals[r] = total
        for k in range(starts[r], starts[r + 1]):
            so_far[k] = y[k]
        for k in range(starts[r] + 1, starts[r + 1]):
            so_far[k] = so_far[k - 1] + so_far[k]
    return totals, so_far


def results(kernel: object, **arrays: np.ndarray) -> list[np.ndarray]:
    leaves = {leaf("input", name, a.shape, a.dtype): a for name, a in arrays.items()}
    outputs = kernel(*leaves)  # type: ignore[operator]
    return compiled(Job(Graph({f"y{k}": y for k, y in enumerate(outputs)}), leaves), HERE[-1])


def test_folds_are_numpys() -> None:
    expected = X.min(1), X.max(1), np.where(X > 0, X, 0).sum(1), (X > -1).all(1), (X > 6).any(1)
    for a, b in zip(results(folds, x=X), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert 0 < expected[3].sum() < 6 and 0 < expected[4].sum() < 6


def test_lanes_skip_elements_beyond_a_row_and_keep_order() -> None:
    totals, so_far = results(ragged, y=Y, starts=STARTS)
    rows = [Y[a:b] for a, b in itertools.pairwise(STARTS)]
    np.testing.assert_array_equal(totals, [2 * row.sum() + len(row) for row in rows])
    np.testing.assert_array_equal(so_far, np.concatenate([np.cumsum(row) for row in rows]))
