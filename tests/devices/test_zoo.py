"""Every model of the zoo on every device that is here: it trains and predicts as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices.available import COMPUTING, device
from tests.models.test_zoo import STEPS, UNSEEN, program
from tests.models.zoo import NAMES
from ztorch import settings

QUICK = ("digits_mlp", "text_classifier")  # products and sums; ids, gathers and their gradients


@pytest.mark.parametrize("name", [
    pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NAMES])
@pytest.mark.parametrize("backend", COMPUTING)
def test_training_and_predicting(backend: str, name: str) -> None:
    here = device(backend)
    reference, x, y = program(name, "cpu")
    made, _, _ = program(name, here.id)
    np.testing.assert_allclose(made.predict(x), reference.predict(x), rtol=0, atol=1e-5)
    losses = [p.fit(x, y, verbose=0, shuffle=False).history["loss"] for p in (reference, made)]
    assert np.isfinite(losses).all() and losses[0] == pytest.approx(losses[1], rel=1e-4)
    reach = 2 * STEPS * made.learning_rate * 1.5  # as far as Adam's steps may take two weights apart
    for path, a in reference.weights.items():
        apart = np.abs(a - made.weights[path])
        assert apart.max() < reach, path
        assert UNSEEN.search(path) or apart.mean() < 1e-6, path
    np.testing.assert_allclose(made.predict(x), reference.predict(x), rtol=0, atol=1e-3)


@pytest.mark.slow
def test_what_a_driver_optimises_computes_the_same() -> None:
    """These tests take OpenCL C as it stands; users get what the driver's optimiser makes of it."""
    here = device("opencl")
    reference, x, _ = program("digits_cnn", "cpu")
    with settings.using(opencl_options=()):
        made, _, _ = program("digits_cnn", here.id)
    np.testing.assert_allclose(made.predict(x), reference.predict(x), rtol=0, atol=1e-5)
