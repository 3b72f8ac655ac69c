"""Normalization, resizing, the middle of images: against Keras and NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import references
from tests.layers.against_keras import is_keras, plain
from tests.layers.running import Traced
from ztorch import layers as L
from ztorch.errors import ConfigError, DataError, ShapeError, Unsupported
from ztorch.interchange.keras import load_keras
from ztorch.model.sequential import Sequential
from ztorch.ops.images import weights_between

random = np.random.default_rng(11)
IMAGE = (2, 7, 9, 3)

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "middle": ("CenterCrop", {"height": 4, "width": 6}),
    "middle, all": ("CenterCrop", {"height": 7, "width": 9}),
    "smaller": ("Resizing", {"height": 4, "width": 5}),
    "larger": ("Resizing", {"height": 10, "width": 12}),
    "one way each": ("Resizing", {"height": 3, "width": 20}),
    "nearest, smaller": ("Resizing", {"height": 4, "width": 5, "interpolation": "nearest"}),
    "nearest, larger": ("Resizing", {"height": 15, "width": 11, "interpolation": "nearest"}),
    "antialias": ("Resizing", {"height": 3, "width": 4, "antialias": True}),
    "cropped": ("Resizing", {"height": 6, "width": 5, "crop_to_aspect_ratio": True}),
    "padded": ("Resizing", {"height": 12, "width": 12, "pad_to_aspect_ratio": True,
                            "fill_value": 0.5}),
}


@pytest.mark.parametrize("name", CASES)
def test_image_layers_are_keras(name: str) -> None:
    layer, how = CASES[name]
    is_keras(layer, how, random.normal(size=IMAGE), 1e-6).compiled_agrees()


@pytest.mark.parametrize("name", ["middle", "smaller", "nearest, larger", "padded"])
def test_channels_first(name: str) -> None:
    layer, how = CASES[name]
    x = random.normal(size=IMAGE)
    last = Traced(getattr(L, layer)(**how), x)
    first = Traced(getattr(L, layer)(**how, data_format="channels_first"), x.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(first.oracle()[0], last.oracle()[0].transpose(0, 3, 1, 2))
    first.compiled_agrees()


def test_too_small_images_are_enlarged_in_their_proportions() -> None:
    keras = references.keras()
    x = random.normal(size=(2, 6, 9, 1))
    case = Traced(L.CenterCrop(8, 8), x)
    want = keras.layers.CenterCrop(8, 8, dtype="float64")(x)
    np.testing.assert_allclose(case.oracle()[0], want.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_bicubic_is_torchs(data_format: str) -> None:
    """Keras' own is that of its backend. TensorFlow and JAX, and PyTorch with antialias, have the
    kernel of Keys with a = -1/2 and weights that sum to 1 at borders; a larger image has no aliases."""
    torch = references.torch()
    x = random.normal(size=(2, 3, 5, 4))
    want = torch.nn.functional.interpolate(torch.tensor(x), scale_factor=(2, 3), mode="bicubic",
                                           antialias=True).numpy()
    of = {"data_format": data_format}
    if data_format == "channels_last":
        x, want = x.transpose(0, 2, 3, 1), want.transpose(0, 2, 3, 1)
    for layer in (L.UpSampling2D((2, 3), interpolation="bicubic", **of),
                  L.Resizing(10, 12, "bicubic", **of)):
        np.testing.assert_allclose(Traced(layer, x).oracle()[0], want, rtol=1e-9, atol=1e-9)


def test_bicubic_pixels_do_not_mix_with_padding() -> None:
    """Images of other heights are compiled for their own; a program of several heights is refused."""
    layers = [L.UpSampling2D(2, interpolation="bicubic"), L.GlobalAveragePooling2D()]
    model = Sequential([L.Input((None, 4, 1)), *layers])
    for height in (5, 7):
        x = np.random.default_rng(height).normal(size=(2, height, 4, 1)).astype(np.float32)
        alone = Sequential([L.Input((height, 4, 1)), *layers])
        np.testing.assert_array_equal(model.predict(x), alone.predict(x))
    with pytest.raises(Unsupported, match="layer 'up_sampling2d' would mix padding"):
        Sequential([L.Input((None, 4, 1)), *layers]).compile("cpu", sizes={"axis1": (8, 16)})


@pytest.mark.parametrize(("length", "wanted", "antialias"), [(5, 9, False), (9, 4, False),
                                                             (9, 4, True), (1, 3, False), (4, 1, True)])
def test_weights_between(length: int, wanted: int, antialias: bool) -> None:
    weights = weights_between(length, wanted, antialias)
    assert weights.shape == (wanted, length) and (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(1), 1)
    if not antialias:  # np.interp between the middles, and beyond the outer ones the border
        line = random.normal(size=length)
        at = (np.arange(wanted) + 0.5) * length / wanted - 0.5
        np.testing.assert_allclose(weights @ line, np.interp(at, np.arange(length), line))


# -- Rescaling -------------------------------------------------------------------------------------


RESCALING: dict[str, tuple[Any, Any]] = {
    "lists": ([1, 2, 3], [0.0, 1.0, 2.0]), "arrays": (np.array([1, 2, 3]), np.array([0, 1, 2.5])),
    "a number and an array": (0.5, np.arange(3)), "all axes": (np.full((1, 1, 1, 3), 2.0), [1.0]),
    "pixels": (random.normal(size=(7, 9, 1)), np.float32(1.0)),
}


@pytest.mark.parametrize("name", RESCALING)
def test_rescaling_by_arrays_is_keras(name: str, tmp_path: Path) -> None:
    keras, (scale, offset) = references.keras(), RESCALING[name]
    x = random.normal(size=IMAGE)
    want = np.asarray(keras.layers.Rescaling(scale, offset, dtype="float64")(x))
    layer = L.Rescaling(scale, offset)
    for own in (layer, L.Rescaling.from_config(layer.get_config())):
        np.testing.assert_allclose(Traced(own, x).oracle()[0], want)
    theirs = keras.Sequential([keras.layers.Input(IMAGE[1:]), keras.layers.Rescaling(scale, offset)])
    theirs.save(path := str(tmp_path / "theirs.keras"))
    np.testing.assert_allclose(load_keras(path).predict(x), want, rtol=1e-5, atol=1e-6)
    Sequential([L.Input(IMAGE[1:]), layer]).save(path := str(tmp_path / "ours.keras"))
    np.testing.assert_allclose(keras.models.load_model(path).predict(x, verbose=0), want, rtol=1e-5,
                               atol=1e-6)


def test_rescaling_keeps_shapes() -> None:
    for wrong in ([1.0, 2.0], np.ones((2, 1, 1, 1)), np.ones((1, 2, 7, 9, 3)), []):
        with pytest.raises(ShapeError, match="its offset does not broadcast with inputs"):
            L.Rescaling(1.0, wrong)(np.ones(IMAGE))
    for wrong in (["1"], [[1], [1, 2]], [np.inf], "2"):
        with pytest.raises(ConfigError, match="or a list or array of them"):
            L.Rescaling(wrong)


# -- Normalization ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [
    {"mean": 3.0, "variance": 2.0},
    {"mean": [1.0, 2.0, 3.0], "variance": [4.0, 0.0, 0.25]},
    {"mean": [1.0, 2.0, 3.0], "variance": [4.0, 1.0, 0.25], "invert": True},
    {"axis": None, "mean": 0.5, "variance": 9.0},
    {"axis": (1, 3), "mean": np.arange(21.0).reshape(7, 3).tolist(),
     "variance": np.arange(1.0, 22.0).reshape(7, 3).tolist()},
], ids=str)
def test_given_statistics_are_keras(how: dict[str, Any]) -> None:
    keras, torch = references.keras(), references.torch()
    x = random.normal(size=IMAGE)
    layer = L.Normalization(**how)
    case = Traced(layer, x)
    theirs = keras.layers.Normalization(**how, dtype="float64")
    np.testing.assert_allclose(case.oracle()[0], theirs(torch.tensor(x)).numpy(), rtol=1e-6)
    case.compiled_agrees()
    for ours, known in ((layer.mean, theirs.mean), (layer.variance, theirs.variance)):
        assert ours is not None and ours.shape == tuple(known.shape)
        np.testing.assert_allclose(ours, known.numpy(), rtol=1e-6)
    model = Sequential([L.Input(IMAGE[1:]), layer])
    again = Sequential.from_json(model.to_json()).layers[0]
    back, ours = again.get_config(), layer.get_config()
    assert {k: plain(v) for k, v in back.items()} == {k: plain(v) for k, v in ours.items()}


@pytest.mark.parametrize(("axis", "over"), [(-1, (0, 1, 2)), (None, (0, 1, 2, 3)), (1, (0, 2, 3)),
                                            ((2, -1), (0, 1))])
def test_adapt_measures(axis: Any, over: tuple[int, ...]) -> None:
    x = random.normal(1000.0, 0.1, size=(50, 4, 5, 3))  # a mean that a naive sum of squares loses
    whole, batches = L.Normalization(axis), L.Normalization(axis)
    whole.adapt(x)
    batches.adapt((x[k:k + 7], None) for k in range(0, 50, 7))
    for layer in (whole, batches):
        mean, variance = (w.value for w in layer.weights)
        kept = {*range(4)} - {*over}
        assert layer.mean is not None
        assert layer.mean.shape == tuple(n if k in kept else 1 for k, n in enumerate(x.shape))
        np.testing.assert_array_equal(layer.mean.ravel(), np.float32(mean).ravel())
        np.testing.assert_allclose(mean, x.mean(over), rtol=1e-12)
        np.testing.assert_allclose(variance, x.var(over), rtol=1e-6)
    assert [w.path for w in whole.weights] == ["normalization/mean", "normalization/variance"]
    assert not any(w.trains for w in whole.weights)


def test_training_keeps_the_statistics_of_adapt(tmp_path: Any) -> None:
    from ztorch import load

    x = random.normal(30.0, 5.0, size=(64, 4)).astype(np.float32)
    y = x @ np.array([[1.0], [2.0], [0.0], [-1.0]], np.float32)
    layer = L.Normalization()
    layer.adapt(x)
    model = Sequential([L.Input((4,)), layer, L.Dense(1)])
    program = model.compile("cpu", batch_size=16, optimizer="adam", loss="mse")
    before = program.weights["normalization/mean"]
    np.testing.assert_allclose(before, x.mean(0), rtol=1e-6)
    program.fit(x, y, epochs=2, verbose=0)
    assert np.array_equal(program.weights["normalization/mean"], before)
    program.save(tmp_path / "n.zt")
    assert np.array_equal(load(tmp_path / "n.zt").predict(x), program.predict(x))
    w, b = program.weights["dense/kernel"], program.weights["dense/bias"]
    np.testing.assert_allclose(program.predict(x), (x - x.mean(0)) / x.std(0) @ w + b, rtol=1e-3,
                               atol=1e-4)


def test_bytes_are_accepted() -> None:
    x = random.integers(0, 256, size=(3, 4, 4, 2)).astype(np.uint8)
    model = Sequential([L.Input((4, 4, 2), dtype="uint8"), L.Resizing(2, 2),
                        L.Normalization(mean=128.0, variance=4096.0)])
    got = model.compile("cpu", batch_size=3).predict(x)
    want = (x.astype(np.float64).reshape(3, 2, 2, 2, 2, 2).mean((2, 4)) - 128) / 64
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match="mean and variance together"):
        L.Normalization(mean=1.0)
    with pytest.raises(ConfigError, match=r"variance=\.\.\.\) must not contain negative numbers"):
        L.Normalization(mean=[0.0], variance=[-1.0])
    with pytest.raises(ConfigError, match=r"mean=\.\.\.\) must be a finite number, or a list"):
        L.Normalization(mean="much", variance=1.0)
    with pytest.raises(ShapeError, match=r"do not fit inputs: \(2,\) and \(3,\)"):
        Sequential([L.Input((3,)), L.Normalization(mean=[0.0, 1.0], variance=[1.0, 1.0])]).build()
    with pytest.raises(ConfigError, match="has a given mean"):
        L.Normalization(mean=0.0, variance=1.0).adapt(np.ones((3, 2)))
    with pytest.raises(DataError, match="needs at least one row"):
        L.Normalization().adapt([])
    with pytest.raises(DataError, match="not finite"):
        L.Normalization().adapt(np.array([[1.0], [np.nan]]))
    with pytest.raises(DataError, match=r"rows of shape \(2,\), not \(3,\)"):
        L.Normalization().adapt([np.ones((4, 2)), np.ones((4, 3))])
    with pytest.raises(DataError, match="array of numbers"):
        L.Normalization().adapt(np.array(["a"]))
    with pytest.raises(ConfigError, match="either crops"):
        L.Resizing(2, 2, crop_to_aspect_ratio=True, pad_to_aspect_ratio=True)
    with pytest.raises(ConfigError, match="'nearest' or 'bilinear' or"):
        L.Resizing(2, 2, interpolation="area")
    with pytest.raises(ShapeError, match="3 axes"):
        Sequential([L.Input((8, 8)), L.CenterCrop(4, 4)]).build()
