"""Losses of predictions that are exactly 0 or 1, as a saturated sigmoid gives them."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch.dtypes import bf16, f16, f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant, leaf

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


@together()
@pytest.mark.parametrize("d", [f16, bf16], ids=str)
@pytest.mark.parametrize("loss", [
    "binary_focal_crossentropy", "categorical_focal_crossentropy", "binary_crossentropy", "kld",
    "poisson", "msle", "categorical_crossentropy"])
def test_losses_in_16_bits_are_those_of_float32(loss: str, d: object) -> None:
    """1 - 1e-7 and 1e-7 are no numbers of 16 bits, or have no quotient there."""
    p, y = np.array([[1.0, 0.0, 0.0, 0.0], [0.25, 0.5, 0.25, 0.0]]), np.eye(4)[[0, 3]]
    results = []
    for dtype in (d, f32):
        x = leaf("input", "x", p.shape, dtype)
        row = zt.losses.get(loss).per_row(constant(y, dtype), x)
        [slope] = gradients(OPS.sum(row), [x])
        assert row.dtype == f32 and slope.dtype == dtype
        results.append(evaluate([row, slope], {x: p}))
    (row, slope), (exact, exact_slope) = results
    np.testing.assert_allclose(row, exact, rtol=2.0**-7, atol=1e-6)
    finite = np.abs(exact_slope) < 60_000  # larger slopes overflow in float16
    np.testing.assert_allclose(slope[finite], exact_slope[finite], rtol=2.0**-6, atol=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_focal_slopes_in_16_bits_are_finite(gamma: float) -> None:
    x = leaf("input", "x", (1, 3), f16)
    for from_logits in (False, True):
        loss = zt.losses.CategoricalFocalCrossentropy(gamma=gamma, from_logits=from_logits)
        [slope] = gradients(OPS.sum(loss.per_row(constant(np.eye(1, 3), f16), x)), [x])
        for number in (1.0, 20.0):
            assert np.isfinite(evaluate([slope], {x: number * np.eye(1, 3)})[0]).all()
