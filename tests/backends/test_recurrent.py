"""Masked and stateful recurrent layers on every device that is here, and in C."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import COMPUTING, device
from ztorch import layers as L
from ztorch.model.sequential import Sequential

random = np.random.default_rng(4)
IDS = random.integers(1, 9, (3, 6)).astype(np.int32)
IDS[1, 3:] = IDS[2, :2] = 0
TARGETS = random.normal(size=(3, 2)).astype(np.float32)


def run(name: str) -> tuple[list[np.ndarray], list[float]]:
    """Predictions of three batches that remember, and after a reset; losses of training between."""
    model = Sequential([L.Input((6,), dtype="int32"), L.Embedding(9, 4, mask_zero=True),
                        L.Bidirectional(L.LSTM(3, return_sequences=True)),
                        L.GRU(5, stateful=True), L.Dense(2)])
    with model.compile(name, batch_size=3, loss="mse", optimizer=zt.optimizers.SGD(0.1)) as program:
        outputs = [program.predict(IDS) for _ in range(2)]
        losses = [float(program.train_on_batch(IDS, TARGETS)) for _ in range(3)]
        program.reset_states()
        return [*outputs, program.predict(IDS)], losses


@pytest.mark.parametrize("backend", ["c", *COMPUTING])
def test_states_masks_and_training_are_those_of_a_cpu(backend: str) -> None:
    outputs, losses = run(backend if backend == "c" else device(backend).id)
    expected, expected_losses = run("cpu:scalar")
    assert (expected[0] != expected[1]).any()
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
