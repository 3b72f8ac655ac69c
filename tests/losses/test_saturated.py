"""Losses of predictions that are exactly 0 or 1, as a saturated sigmoid gives them."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt

YES = np.array([[1.0, 0.0, 1.0, 0.0]])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_slopes_are_finite(gamma: float) -> None:
    for from_logits, y_pred in ((False, [[1.0, 0.0, 0.3, 0.4]]), (True, [[90.0, -90.0, -0.5, 0.2]])):
        loss = zt.losses.BinaryFocalCrossentropy(gamma=gamma, from_logits=from_logits)
        x = zt.tensor(y_pred)
        slope = np.asarray(zt.grad(lambda p, loss=loss: loss(YES, p))(x), np.float64)
        step = 1e-3 * np.eye(4)[2:]
        rise = [(loss(YES, x + h) - loss(YES, x - h)).item() / 2e-3 for h in step]
        np.testing.assert_allclose(slope, [[*slope[0, :2], *rise]], rtol=2e-3)
        np.testing.assert_allclose(slope[0, :2], 0, atol=1e-6 if gamma else 0.3)
