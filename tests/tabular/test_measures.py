"""Measures of predictions beside the same in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from ztorch.tabular.measures import (
    calibration,
    calibration_error,
    confusion,
    permutation_importance,
    row_losses,
)

RANDOM = np.random.default_rng(5)
TRUTH = RANDOM.integers(0, 3, 200)
PROBABILITIES = RANDOM.dirichlet(np.ones(3), 200)
SURE, RIGHT = PROBABILITIES.max(1), PROBABILITIES.argmax(1) == TRUTH


def test_confusion_has_true_classes_in_rows() -> None:
    table = confusion(TRUTH, PROBABILITIES.argmax(1), 3)
    for a in range(3):
        for b in range(3):
            assert table[a, b] == sum(t == a and p == b for t, p in zip(TRUTH, PROBABILITIES.argmax(1), strict=True))


def test_calibration_is_by_tenths_of_probability() -> None:
    expected = []
    for k in range(10):
        rows = [r for r in range(200) if k / 10 <= SURE[r] < (k + 1) / 10 or (k == 9 and SURE[r] == 1)]
        if rows:
            expected.append((np.mean(SURE[rows]), np.mean(RIGHT[rows]), len(rows)))
    actual = calibration(TRUTH, PROBABILITIES)
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    error = sum(abs(sure - right) * count for sure, right, count in expected) / 200
    assert calibration_error(actual) == pytest.approx(error, abs=2e-6)


def test_losses_of_rows() -> None:
    expected = [-np.log(p[t]) for p, t in zip(PROBABILITIES, TRUTH, strict=True)]
    np.testing.assert_allclose(row_losses(TRUTH, PROBABILITIES, True), expected, rtol=1e-12)
    assert row_losses(np.array([0]), np.array([[0.0, 1.0]]), True) == pytest.approx(-np.log(1e-7))
    outputs, truth = RANDOM.normal(size=(4, 2)), RANDOM.normal(size=(4, 2))
    np.testing.assert_allclose(row_losses(truth, outputs, False), np.abs(outputs - truth).mean(1))


def test_columns_that_matter_come_first() -> None:
    x = RANDOM.normal(size=(500, 4))
    y = 3 * x[:, 0] + x[:, 1] * x[:, 2]
    importance = permutation_importance(
        {"x": x}, {"none": ("x", [3]), "both": ("x", [1, 2]), "first": ("x", [0]), "all": ("x", None)},
        lambda inputs: float(np.abs(3 * inputs["x"][:, 0] + inputs["x"][:, 1] * inputs["x"][:, 2] - y).mean()))
    # moving rows as a whole harms most, then columns in the order of their spread
    assert [*importance] == ["all", "first", "both", "none"] and importance["none"] == 0
    assert importance["first"] == pytest.approx(3 * 2 / np.pi**0.5, rel=0.1)
