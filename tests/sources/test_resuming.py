"""Models of artifacts go on training where the program in the file stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import ztorch as zt


def test_a_model_trains_on_from_the_optimizers_state(tmp_path: Path) -> None:
    x, y, net = np.eye(4, dtype="float32"), np.ones((4, 1)), zt.Sequential([zt.Input((4,)), zt.layers.Dense(1)])
    program = net.compile("cpu", batch_size=4, optimizer="adam", loss="mse")
    program.fit(x, y, epochs=3, verbose=0)
    program.save(tmp_path / "net.zt")
    again = zt.load_model(tmp_path / "net.zt")
    for trained in (program, again):
        trained.train_on_batch(x, 2 - y * 9)  # with other moments, this step would differ
    np.testing.assert_allclose(again.get_weights()[0], program.get_weights()[0], rtol=1e-6)
