"""Images changed by chance: each layer against a second implementation that is given its draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from tests.cases.grouping import together
from tests.layers.image_draws import IMAGES, draws, random, seen
from tests.layers.image_outcomes import CASES
from tests.layers.running import Traced, machines_for
from tests.parity import Job, agree, compiled
from ztorch import layers as L
from ztorch.graph.op import first_value
from ztorch.layers import Layer


def compiled_agrees(layer: Layer, x: np.ndarray) -> None:
    """Compiled code gives the oracle's results, gradients included, for these draws."""
    case = Traced(layer, x, True, "float32")
    counters = {v: first_value(v) for v in case.context.states.leaves.values()}
    job = Job(case.graph, {v: np.asarray(a, v.dtype.numpy)
                           for v, a in {**case.feeds, **counters}.items()})
    for machine in machines_for(layer):
        agree(job, compiled(job, machine), terms=100)


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


@pytest.mark.parametrize("name", ["flip", "crop", "move", "contrast", "erase, color"])
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
def test_predicting_does_not_change_images(name: str) -> None:
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
