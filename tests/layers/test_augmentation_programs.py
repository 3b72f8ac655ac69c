"""Images changed by chance, in programs: training, devices, seeds and mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.layers.image_draws import IMAGES, seen
from tests.layers.image_outcomes import CASES
from tests.layers.running import Traced
from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError

# -- in a program ----------------------------------------------------------------------------------


def program(device: str = "cpu", seed: int = 5) -> zt.Program:
    model = zt.Sequential([
        L.Input((8, 8, 1), dtype="uint8"), L.Rescaling(1 / 16), L.ZeroPadding2D(1),
        L.RandomCrop(8, 8), L.RandomFlip("horizontal"), L.RandomTranslation(0.1, 0.1),
        L.RandomContrast(0.2, (0, 1)), L.RandomBrightness(0.1, (0, 1)), L.RandomErasing(0.5),
        L.Conv2D(3, 3, activation="relu"), L.Flatten(), L.Dense(10),
    ], seed=seed)
    return model.compile(device, batch_size=16, optimizer="adam",
                         loss=zt.losses.SparseCategoricalCrossentropy(from_logits=True))


def few() -> tuple[np.ndarray, np.ndarray]:
    (x, y), _ = zt.data.load("digits")
    return (x[:80] * 16).astype(np.uint8), y[:80]


@pytest.mark.slow
def test_fit_repeats_to_the_bit_and_resumes(tmp_path: Path) -> None:
    x, y = few()
    whole, again = program(), program()
    whole.save(tmp_path / "start.zt")
    start, parted = whole.get_weights(), zt.load(tmp_path / "start.zt")
    for p in (whole, again):
        p.fit(x, y, epochs=4, verbose=0)
    parted.fit(x, y, epochs=2, verbose=0)
    parted.save(tmp_path / "half.zt")
    loaded = zt.load(tmp_path / "half.zt")
    loaded.fit(x, y, epochs=4, initial_epoch=2, verbose=0)
    for name, value in whole.weights.items():
        assert np.array_equal(value, again.weights[name])
        assert np.array_equal(value, loaded.weights[name])
    other = program(seed=6)
    other.set_weights(start)
    other.fit(x, y, epochs=4, verbose=0, shuffle=False)
    assert not np.array_equal(other.weights["dense/kernel"], whole.weights["dense/kernel"])
    assert whole.history.history["loss"][-1] < whole.history.history["loss"][0]


@pytest.mark.slow
def test_both_machines_see_the_same_images() -> None:
    x, y = few()
    losses = []
    for device in ("cpu:scalar", "cpu"):
        p = program(device)
        losses.append([p.train_on_batch(x[k:k + 16], y[k:k + 16]) for k in range(0, 80, 16)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_a_layer_with_a_seed_draws_the_same_anywhere() -> None:
    x = np.arange(64.0).reshape(64, 1, 1, 1) * np.array([0.0, 1.0]).reshape(1, 1, 2, 1)
    own = seen(L.RandomFlip("horizontal", seed=3), x)
    assert np.array_equal(own, seen(L.RandomFlip("horizontal", seed=3), x))
    assert not np.array_equal(own, seen(L.RandomFlip("horizontal", seed=4), x))


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match=r"RandomFlip\(mode='sideways'\) must be 'horizontal'"):
        L.RandomFlip("sideways")
    with pytest.raises(ConfigError, match=r"RandomTranslation\(height_factor=...\).*-1 to 1"):
        L.RandomTranslation(1.5, 0)
    with pytest.raises(ConfigError, match=r"RandomContrast\(factor=...\).*0 to 1"):
        L.RandomContrast(-0.5)
    with pytest.raises(ConfigError, match=r"RandomBrightness\(factor=...\)"):
        L.RandomBrightness((0.1, 0.2, 0.3))
    with pytest.raises(ConfigError, match=r"value_range=...\) must be an ascending pair"):
        L.RandomBrightness(0.1, (1, 0))
    with pytest.raises(ConfigError, match=r"RandomErasing\(scale=...\)"):
        L.RandomErasing(scale=(0.5, 0.2))
    with pytest.raises(ConfigError, match="must be a positive integer"):
        L.RandomCrop(0, 3)
    with pytest.raises(ShapeError, match=r"layer 'random_erasing': .*2 fill values"):
        Traced(L.RandomErasing(fill_value=(0.1, 0.2)), IMAGES, True)
    with pytest.raises(ShapeError, match="3 axes"):
        zt.Sequential([L.Input((8, 8)), L.RandomFlip()]).build()


def test_configs_survive_json() -> None:
    for layer, _, _ in CASES.values():
        model = zt.Sequential([L.Input((8, 10, 3)), type(layer).from_config(layer.get_config())])
        again = zt.Sequential.from_json(model.to_json()).layers[0]
        assert np.array_equal(seen(again), seen(layer))
