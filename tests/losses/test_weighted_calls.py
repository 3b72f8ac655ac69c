"""Losses called on numbers with a weight for each row."""

from __future__ import annotations

import numpy as np
import pytest

from ztorch import losses

RANDOM = np.random.default_rng(3)
REAL, PREDICTED = (RANDOM.normal(size=(6, 4)).astype(np.float32) for _ in range(2))
WEIGHTS = np.array([0.0, 0.5, 1, 2, 3, 0], np.float32)


@pytest.mark.cheap
@pytest.mark.parametrize(("reduction", "expected"), [
    ("none", lambda errors: errors * WEIGHTS), ("sum", lambda errors: (errors * WEIGHTS).sum()),
    ("sum_over_batch_size", lambda errors: (errors * WEIGHTS).sum() / 6),
    ("mean_with_sample_weight", lambda errors: (errors * WEIGHTS).sum() / WEIGHTS.sum())])
def test_weights_multiply_errors(reduction, expected):
    loss = losses.MeanSquaredError(reduction=reduction)
    errors = np.square(REAL.astype(np.float64) - PREDICTED).mean(1)
    np.testing.assert_allclose(np.asarray(loss(REAL, PREDICTED, WEIGHTS)), expected(errors), rtol=1e-5)
    unit = np.asarray(loss(REAL, PREDICTED, np.ones(6, np.float32)))
    np.testing.assert_allclose(unit, np.asarray(loss(REAL, PREDICTED)), rtol=1e-6)
