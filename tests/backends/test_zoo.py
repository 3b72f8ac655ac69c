"""Every model of the zoo on every device that is here: a prediction and a few steps of training, as
`ztorch verify` compares them with float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.available import COMPUTING, PLAYED, device
from tests.cases.covering import among_devices
from tests.cases.zoo import COUSINS, NAMES, assert_verified, program
from ztorch import settings

QUICK = ("digits_mlp", "text_classifier")  # products and sums; ids, gathers and their gradients


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("backend", "name"), [
    pytest.param(*p.values, marks=p.marks if p.values[1] in QUICK else (*p.marks, pytest.mark.slow))
    for p in (*among_devices([n for n in NAMES if n not in COUSINS], QUICK[:1]),
              *(pytest.param(b, n, marks=pytest.mark.full if b in PLAYED else ()) for b in COMPUTING
                for n in sorted(COUSINS)))])
def test_predicting_and_training(backend: str, name: str) -> None:
    assert_verified(backend, name)


@pytest.mark.slow
def test_what_a_driver_optimizes_computes_the_same() -> None:
    """These tests take OpenCL C as it stands; users get the result of the driver's optimizer."""
    here = device("opencl")
    reference, x, _ = program("digits_cnn", "cpu")
    with settings.using(opencl_options=()):
        made, _, _ = program("digits_cnn", here.id)
    np.testing.assert_allclose(made.predict(x), reference.predict(x), rtol=0, atol=1e-5)
