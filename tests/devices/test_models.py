"""Models of the zoo on every device that is here: they train and predict as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices.available import COMPUTING, device
from tests.models.test_zoo import STEPS, UNSEEN, program

MODELS = ("digits_mlp", "digits_cnn", "lstm_classifier", "tiny_gpt")


@pytest.mark.parametrize("name", [
    pytest.param(n, marks=() if n == "digits_mlp" else pytest.mark.slow) for n in MODELS])
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
