"""Images changed by chance: each layer against a second implementation that is given its draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.grouping import together
from tests.layers.image_draws import IMAGES, draws, random, seen
from tests.layers.running import Traced, machines_for
from tests.parity import Job, agree, compiled
from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.op import first_value
from ztorch.layers import Layer

Outcome = Callable[[np.ndarray, np.ndarray], np.ndarray]


def compiled_agrees(layer: Layer, x: np.ndarray) -> None:
    """Compiled code gives what the oracle does, gradient included, for these draws."""
    case = Traced(layer, x, True, "float32")
    counters = {v: first_value(v) for v in case.context.states.leaves.values()}
    job = Job(case.graph, {v: np.asarray(a, v.dtype.numpy)
                           for v, a in {**case.feeds, **counters}.items()})
    for machine in machines_for(layer):
        agree(job, compiled(job, machine), terms=100)


# -- the same by other means -----------------------------------------------------------------------


def flipped(horizontal: bool, vertical: bool) -> Outcome:
    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        out = x.copy()
        for k, row in enumerate(u):
            chances = list(row)
            if horizontal and chances.pop(0) < 0.5:
                out[k] = out[k, :, ::-1]
            if vertical and chances.pop(0) < 0.5:
                out[k] = out[k, ::-1]
        return out

    return apply


def cropped(height: int, width: int) -> Outcome:
    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        out = []
        for image, (a, b) in zip(x, u, strict=True):
            top = int(a * (x.shape[1] - height + 1))
            left = int(b * (x.shape[2] - width + 1))
            out.append(image[top:top + height, left:left + width])
        return np.stack(out)

    return apply


def moved(height: tuple[float, float], width: tuple[float, float], fill_mode: str = "reflect",
          interpolation: str = "bilinear", fill_value: float = 0.0) -> Outcome:
    """Keras' affine transformation: output (row, column) is input (row - dy, column - dx)."""

    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        dy, dx = ((low + u[:, k] * (high - low)) * x.shape[k + 1]
                  for k, (low, high) in enumerate((height, width)))
        one, none = np.ones(len(x)), np.zeros(len(x))
        transform = np.stack([one, none, -dx, none, one, -dy, none, none], 1)
        y = references.keras().ops.image.affine_transform(
            x, transform, interpolation, fill_mode, fill_value)
        return y.numpy()

    return apply


def contrasted(lower: float, upper: float, high: float) -> Outcome:
    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        mean = x.mean((1, 2), keepdims=True)
        factor = (1 - lower + u * (lower + upper)).reshape(-1, 1, 1, 1)
        return np.clip(mean + (x - mean) * factor, 0, high)

    return apply


def brightened(lower: float, upper: float, high: float) -> Outcome:
    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        return np.clip(x + ((lower + u * (upper - lower)) * high).reshape(-1, 1, 1, 1), 0, high)

    return apply


def erased(chances: tuple[float, float], areas: tuple[float, float], fill: Any) -> Outcome:
    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        out = x.copy()
        for k, (chance, luck, tall, down, wide, right) in enumerate(u):
            if luck >= chances[0] + chance * (chances[1] - chances[0]):
                continue
            inside = []
            for n, share, place in ((x.shape[1], tall, down), (x.shape[2], wide, right)):
                length = n * np.sqrt(areas[0] + share * (areas[1] - areas[0]))
                start = place * (n - length)
                inside.append((np.arange(n) >= start) & (np.arange(n) < start + length))
            out[k][np.outer(*inside)] = fill
        return out

    return apply


CASES: dict[str, tuple[Layer, int, Outcome]] = {
    "flip": (L.RandomFlip(), 2, flipped(True, True)),
    "flip, horizontal": (L.RandomFlip("horizontal"), 1, flipped(True, False)),
    "flip, vertical": (L.RandomFlip("vertical"), 1, flipped(False, True)),
    "crop": (L.RandomCrop(5, 6), 2, cropped(5, 6)),
    "crop, rows only": (L.RandomCrop(3, 10), 2, cropped(3, 10)),
    "move": (L.RandomTranslation(0.4, 0.3), 2, moved((-0.4, 0.4), (-0.3, 0.3))),
    "move all the way": (L.RandomTranslation(1.0, 1.0), 2, moved((-1, 1), (-1, 1))),
    "move, wrap": (L.RandomTranslation((0.1, 0.5), 0.7, "wrap"), 2,
                   moved((0.1, 0.5), (-0.7, 0.7), "wrap")),
    "move, constant": (L.RandomTranslation(0.5, (-0.6, -0.2), "constant", fill_value=0.25), 2,
                       moved((-0.5, 0.5), (-0.6, -0.2), "constant", fill_value=0.25)),
    "move, border": (L.RandomTranslation(0.5, 0.0, "nearest"), 2,
                     moved((-0.5, 0.5), (0, 0), "nearest")),
    "move, rounded": (L.RandomTranslation(0.5, 0.4, interpolation="nearest"), 2,
                      moved((-0.5, 0.5), (-0.4, 0.4), interpolation="nearest")),
    "contrast": (L.RandomContrast(0.8, (0, 1)), 1, contrasted(0.8, 0.8, 1)),
    "contrast, pair": (L.RandomContrast((0.9, 0.1), (0, 1)), 1, contrasted(0.9, 0.1, 1)),
    "brightness": (L.RandomBrightness(0.5, (0, 1)), 1, brightened(-0.5, 0.5, 1)),
    "brightness, pair": (L.RandomBrightness((0.1, 0.2)), 1, brightened(0.1, 0.2, 255)),
    "erase": (L.RandomErasing(fill_value=0.5), 6, erased((0, 1), (0.02, 0.33), 0.5)),
    "erase, colour": (L.RandomErasing((0.9, 1.0), 0.5, (0.1, 0.2, 0.3)), 6,
                      erased((0.9, 1), (0, 0.5), (0.1, 0.2, 0.3))),
}


@together()
@pytest.mark.parametrize("name", CASES)
def test_outcomes_are_those_of_the_draws(name: str) -> None:
    layer, count, outcome = CASES[name]
    want = outcome(IMAGES, draws(len(IMAGES), count))
    assert want.shape != IMAGES.shape or not np.array_equal(want, IMAGES)
    np.testing.assert_allclose(seen(layer), want, rtol=2e-5, atol=2e-6)  # Keras takes float32


@pytest.mark.parametrize("name", CASES)
def test_compiled_code_agrees(name: str) -> None:
    compiled_agrees(CASES[name][0], IMAGES)


@together()
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_differences(name: str) -> None:
    layer, _, _ = CASES[name]
    case = Traced(layer, IMAGES, True)
    step = random.normal(size=IMAGES.shape) * 1e-7  # too small to reach the ends of a range
    [y, slope] = case.oracle()
    [later, _] = Traced(layer, IMAGES + step, True).oracle()
    np.testing.assert_allclose((slope * step).sum(), ((later - y) * case.slope).sum(), rtol=1e-5)


@pytest.mark.parametrize("name", ["flip", "crop", "move", "contrast", "erase, colour"])
def test_channels_first(name: str) -> None:
    layer, _, _ = CASES[name]
    first = type(layer).from_config({**layer.get_config(), "data_format": "channels_first"})
    x = IMAGES.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(seen(first, x).transpose(0, 2, 3, 1), seen(layer), rtol=1e-12)
    compiled_agrees(first, np.ascontiguousarray(x))


def test_erasing_with_noise() -> None:
    layer = L.RandomErasing((1.0, 1.0), (0.3, 0.6), value_range=(0, 2))
    got, marked = seen(layer), seen(L.RandomErasing((1.0, 1.0), (0.3, 0.6), 9.0))
    hidden = marked == 9.0
    assert 0.2 < hidden.mean() < 0.6 and np.array_equal(got[~hidden], IMAGES[~hidden])
    noise = got[hidden]
    assert (noise >= 0).all() and (noise <= 2).all()
    assert abs((noise == 0).mean() - 0.5) < 0.1  # half of all normal numbers are negative
    assert len(np.unique(noise)) > 0.3 * noise.size  # each pixel and channel has its own


def test_every_outcome_occurs_for_each_example_by_itself() -> None:
    x = np.arange(2 * 3, dtype=np.float64).reshape(1, 2, 3, 1).repeat(400, 0)
    ways = np.unique(seen(L.RandomFlip(), x).reshape(400, -1), axis=0, return_counts=True)[1]
    assert len(ways) == 4 and (abs(ways - 100) < 40).all()
    places = np.unique(seen(L.RandomCrop(1, 2), x).reshape(400, -1), axis=0, return_counts=True)[1]
    assert len(places) == 4 and (abs(places - 100) < 40).all()
    bright = seen(L.RandomBrightness(0.1), x + 100)[:, 0, 0, 0]
    assert len(np.unique(bright)) > 390
    moved = seen(L.RandomTranslation(1.0, 0.0, interpolation="nearest"), x).reshape(400, -1)
    assert len(np.unique(moved, axis=0)) == 4  # a b, and of its reflection a a, b b, b a


# -- without chance --------------------------------------------------------------------------------


@together()
@pytest.mark.parametrize("name", CASES)
def test_predicting_leaves_images_alone(name: str) -> None:
    layer, _, _ = CASES[name]
    got = seen(layer, training=False)
    if isinstance(layer, L.RandomCrop):
        middle = Traced(L.CenterCrop(layer.height, layer.width), IMAGES)
        assert np.array_equal(got, middle.oracle()[0])
    else:
        assert np.array_equal(got, IMAGES)


@pytest.mark.parametrize("training", [False, True])
def test_images_smaller_than_the_crop_are_enlarged(training: bool) -> None:
    want = Traced(L.CenterCrop(9, 9), IMAGES).oracle()[0]
    np.testing.assert_array_equal(seen(L.RandomCrop(9, 9), training=training), want)


KERAS_NAMES: dict[str, dict[str, Any]] = {
    "RandomFlip": {}, "RandomCrop": {"height": 2, "width": 3},
    "RandomTranslation": {"height_factor": 0.1, "width_factor": 0.2},
    "RandomContrast": {"factor": 0.5}, "RandomBrightness": {"factor": 0.5}, "RandomErasing": {},
    "CenterCrop": {"height": 2, "width": 3}, "Resizing": {"height": 2, "width": 3},
    "Normalization": {},
}


@pytest.mark.parametrize("name", KERAS_NAMES)
def test_arguments_and_defaults_are_keras(name: str) -> None:
    import inspect

    keras = references.keras()
    ours = inspect.signature(getattr(L, name).__init__).parameters
    theirs = inspect.signature(getattr(keras.layers, name).__init__).parameters
    for argument, parameter in theirs.items():
        if argument not in ("self", "kwargs", "name"):
            assert ours[argument].default == parameter.default, argument
    common = [a for a in theirs if a in ours and a not in ("self", "kwargs", "name", "data_format")]
    assert common == [a for a in ours if a in common]  # so that positions mean the same


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
    with pytest.raises(ConfigError, match=r"value_range=...\) must be a rising pair"):
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
