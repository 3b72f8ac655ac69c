"""Every model of the zoo on every device that is here: a prediction and three steps of training, as
`ztorch verify` compares them with float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices.available import COMPUTING, device
from tests.zoo.recipes import BATCH, NAMES, small
from tests.zoo.test_zoo import STEPS, program
from ztorch import settings
from ztorch.commands import verify

# Products and sums; ids, gathers and their gradients.
QUICK = ("digits_mlp", "text_classifier")
# Layer by layer as well, which takes kernels with more to write.
PROBED = (*QUICK, "digits_cnn", "lstm_classifier", "tiny_gpt")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [
    n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
@pytest.mark.parametrize("backend", COMPUTING)
def test_predicting_and_training(backend: str, name: str) -> None:
    here = device(backend)
    subject = verify.of_recipe(small(name), here.id, BATCH)
    checks = list(verify.compare(subject, STEPS, seed=1, layers=name in PROBED))
    assert [c for c in checks if not c.passed] == []
    parts = {"predict", *(f"step {k + 1}" for k in range(STEPS))}
    assert {c.part for c in checks} >= parts | ({"step 1 backward"} if name in PROBED else set())
    bounds = [c.bound for c in checks if c.part == "predict"]
    assert max(bounds) < 0.05, "bounds so wide say nothing"


@pytest.mark.slow
def test_what_a_driver_optimises_computes_the_same() -> None:
    """These tests take OpenCL C as it stands; users get what the driver's optimiser makes of it."""
    here = device("opencl")
    reference, x, _ = program("digits_cnn", "cpu")
    with settings.using(opencl_options=()):
        made, _, _ = program("digits_cnn", here.id)
    np.testing.assert_allclose(made.predict(x), reference.predict(x), rtol=0, atol=1e-5)
