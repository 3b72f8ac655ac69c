"""Distinct elements and marked ones: by tables where integers are from a short range, without branches."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from ztorch.arrays import array_api_sets

SETS = zt.array_api


def _check(x: np.ndarray) -> None:
    """All functions against NumPy's."""
    expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    values, _, inverse, counts = expected
    result = SETS.unique_all(zt.tensor(x))
    for part, want in zip(result, expected, strict=True):
        np.testing.assert_array_equal(part.numpy(), want)
    assert result.values.dtype == str(x.dtype) and result.counts.dtype == "int32"
    np.testing.assert_array_equal(SETS.unique_values(zt.tensor(x)).numpy(), values)
    np.testing.assert_array_equal(zt.ops.unique(zt.tensor(x)).numpy(), values)
    for pair, want in ((SETS.unique_counts(zt.tensor(x)), counts),
                       (SETS.unique_inverse(zt.tensor(x)), inverse)):
        np.testing.assert_array_equal(pair[0].numpy(), values)
        np.testing.assert_array_equal(pair[1].numpy(), want)


@pytest.mark.parametrize(("dtype", "low", "high"), [
    ("int8", -128, 128), ("uint8", 0, 256), ("int32", -7, 7), ("int64", 10**12, 10**12 + 90),
    ("uint64", (1 << 64) - 50, (1 << 64) - 1), ("int64", -(1 << 63), -(1 << 63) + 9)])
def test_integers_of_a_short_range_are_counted(monkeypatch: pytest.MonkeyPatch, dtype: str, low: int,
                                               high: int) -> None:
    monkeypatch.setattr(array_api_sets, "_order", lambda flat: pytest.fail("sorted"))
    random = np.random.default_rng(0)
    for shape in ((1,), (60,), (7, 11)):
        _check(random.integers(low, high, shape, dtype))


@pytest.mark.parametrize("x", [
    np.array([-(1 << 63), (1 << 63) - 1, -(1 << 63), 0]), np.array([5, 10**9, 5, -(10**9)], np.int32),
    np.array([0, (1 << 64) - 1, 0], np.uint64), np.array([0.5, -0.0, 0.0, 0.5, -3.0], np.float32),
    np.array([True, False, True]), np.zeros(0, np.int64)], ids=str)
def test_others_are_sorted(x: np.ndarray) -> None:
    _check(x)


@pytest.mark.parametrize(("shape", "axes"), [((10,), 1), ((4, 5), 2), ((4, 5), 1), ((2, 3, 4), 2),
                                             ((0, 3), 1), ((3, 0), 2)])
def test_bools_mark_elements_along_the_first_axes(shape: tuple[int, ...], axes: int) -> None:
    random = np.random.default_rng(2)
    x, mask = random.normal(size=shape), random.random(shape[:axes]) > 0.4
    for key in (mask, zt.tensor(mask)):
        marked = zt.tensor(x)[key]
        assert marked.shape == x[mask].shape
        np.testing.assert_array_equal(marked.numpy(), x[mask])
