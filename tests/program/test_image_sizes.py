"""Programs for images of several sizes, and other axes than the first: results are those of the
exact size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.covering import share
from tests.numpy_executable import compile_numpy
from ztorch import layers as L
from ztorch.errors import DataError, Unsupported
from ztorch.program.program import Program

SIZES = {"height": (4, 9), "width": (5, 8)}
SHAPE = ("height", "width", 3)
MODELS = {
    "strided": lambda: [L.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
                        L.BatchNormalization(momentum=0.5), L.MaxPooling2D(2, padding="same"),
                        L.GlobalAveragePooling2D()],
    "valid": lambda: [L.Conv2D(4, 2), L.AveragePooling2D((3, 2), strides=(1, 2), padding="same"),
                      L.SeparableConv2D(3, 3, padding="same"), L.GlobalMaxPooling2D()],
    "pixels": lambda: [L.Conv2D(4, 3, padding="same"), L.LayerNormalization(), L.Dropout(0.0)],
    "doubled": lambda: [L.UpSampling2D(2, interpolation="bilinear"), L.ReLU(),
                        L.GlobalAveragePooling2D()],
    "probabilities": lambda: [L.DepthwiseConv2D(3, padding="same"), L.Softmax(axis=(1, 2))],
}


def model(kind: str, shape: tuple[Any, ...] = SHAPE) -> zt.Sequential:
    return zt.Sequential([L.Input(shape), *MODELS[kind](), L.Dense(2)], seed=3, name="images")


def compiled(kind: str) -> Program:
    return model(kind).compile("cpu:scalar", batch_size=2, loss="mse", optimizer=zt.optimizers.SGD(0.1),
                               sizes=SIZES)


def data(kind: str, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(10 * height + width)
    y = (2, height, width, 2) if kind in ("pixels", "probabilities") else (2, 2)
    return (random.normal(size=(2, height, width, 3)).astype(np.float32),
            random.normal(size=y).astype(np.float32))


@pytest.mark.parametrize("kind", MODELS)
def test_results_are_those_of_the_exact_size(kind: str) -> None:
    program = compiled(kind)
    first = program.get_weights()
    for height, width in share(((3, 5), (7, 6), (9, 8)), [*MODELS].index(kind), 3):
        exact = compile_numpy(model(kind, (height, width, 3)), 2, zt.optimizers.SGD(0.1), "mse")
        x, y = data(kind, height, width)
        program.set_weights(first)
        exact.set_weights(first)
        got = program.predict(x)
        assert got.shape == y.shape
        np.testing.assert_allclose(got, exact.predict(x), rtol=0, atol=2e-6)
        for _ in range(2):
            assert program.train_on_batch(x, y) == pytest.approx(exact.train_on_batch(x, y),
                                                                 rel=1e-5)
        for ours, theirs in zip(program.get_weights(), exact.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-6)


def test_images_of_several_sizes_in_one_batch() -> None:
    program = compiled("pixels")
    images = [data("pixels", h, w) for h, w in ((9, 5), (2, 8), (4, 4), (1, 1), (6, 7))]
    x, y = [x[0] for x, _ in images], [y[0] for _, y in images]
    rows = program.predict(x)
    assert [row.shape for row in rows] == [target.shape for target in y]
    for image, row in zip(x, rows, strict=True):
        np.testing.assert_allclose(program.predict(image[None])[0], row, rtol=0, atol=1e-6)
    losses = program.fit(x, y, epochs=3, verbose=0).history["loss"]
    assert losses[2] < losses[0]


def test_an_axis_other_than_the_first(tmp_path: Path) -> None:
    """Sequences with channels first, whose steps come last; in an artifact, too."""
    layers = [L.Conv1D(4, 3, padding="same", data_format="channels_first"), L.ReLU()]
    words = zt.Sequential([L.Input((3, None)), *layers], seed=1)
    program = words.compile("cpu:scalar", batch_size=2, sizes=(4, 8))
    program.save(tmp_path / "words.zt")
    x = np.random.default_rng(0).normal(size=(2, 3, 6)).astype(np.float32)
    exact = zt.Sequential([L.Input((3, 6)), L.Conv1D(
        4, 3, padding="same", data_format="channels_first"), L.ReLU()], seed=1)
    want = compile_numpy(exact, 2).predict(x)
    for p in (program, zt.load(tmp_path / "words.zt")):
        np.testing.assert_allclose(p.predict(x), want, rtol=0, atol=1e-6)
    assert words.axis_names == ["axis2"]
    again = zt.Sequential.from_json(words.to_json())
    assert again.axis_names == ["axis2"]


def test_data_that_do_not_fit() -> None:
    program = compiled("valid")
    with pytest.raises(DataError, match=r"axis 'width' of x has size 9, and this program is "
                       r"compiled for sizes up to 8 \(5, 8\)"):
        program.predict(np.zeros((1, 4, 9, 3)))
    with pytest.raises(DataError, match=r"x\[1\] has shape \(4, 4\), but the model takes rows of "
                       r"\(height, width, 3\)"):
        program.predict([np.zeros((4, 4, 3)), np.zeros((4, 4))])


@pytest.mark.parametrize("layers, fault", [
    (lambda: [L.Flatten()], "layer 'flatten' would mix padding into its result: op reshape"),
])
def test_what_is_refused_is_named(layers: Any, fault: str) -> None:
    with pytest.raises(Unsupported, match=fault):
        zt.Sequential([L.Input(SHAPE), *layers()]).trace(1, sizes=SIZES)


def u_net(shape: tuple[Any, ...]) -> zt.Model:
    """Two halvings with skips around them."""
    picture = L.Input(shape)
    half = L.Conv2D(3, 3, padding="same", activation="relu")(L.MaxPooling2D(2)(picture))
    quarter = L.Conv2D(4, 3, padding="same")(L.MaxPooling2D(2)(half))
    half = L.Concatenate()([half, L.Conv2DTranspose(3, 2, strides=2)(quarter)])
    whole = L.Concatenate()([picture, L.UpSampling2D(2, interpolation="bilinear")(half)])
    return zt.Model(picture, L.Conv2D(2, 3, padding="same")(whole), seed=3, name="masks")


def test_skip_connections_need_multiples(tmp_path: Path) -> None:
    assert str(u_net(SHAPE).output_shape) == "(None, height, width, 2)"
    options = {"batch_size": 3, "loss": "mse", "optimizer": zt.optimizers.SGD(0.1)}
    u_net(SHAPE).compile("cpu:scalar", sizes={"height": (8, 12), "width": 8}, **options).save(
        tmp_path / "masks.zt")
    program = zt.load(tmp_path / "masks.zt")
    random = np.random.default_rng(0)
    images = [random.normal(size=(h, w, 3)).astype(np.float32) for h, w in ((4, 8), (12, 4))]
    for image, row in zip(images, program.predict(images), strict=True):
        exact = compile_numpy(u_net(image.shape), **options)
        np.testing.assert_allclose(exact.predict(image[None])[0], row, rtol=0, atol=1e-6)
    x, y = images[1][None], images[1][None, ..., :2]
    assert program.train_on_batch(x, y) == pytest.approx(exact.train_on_batch(x, y), rel=1e-5)
    for ours, theirs in zip(program.get_weights(), exact.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    with pytest.raises(DataError, match=r"axis 'height' of x has size 6, and this model takes "
                       r"multiples of 4, .* crop rows to 4, or pad them to 8"):
        program.predict(np.zeros((1, 6, 8, 3)))


def test_chosen_sizes_are_multiples() -> None:
    model = u_net((None, 4, 3))
    model.compile(loss="mse", optimizer="sgd", device="cpu:scalar")
    rows = [np.ones((n, 4, 3), np.float32) for n in (4, 12)]
    model.fit(rows, [row[..., :2] for row in rows], batch_size=2, verbose=0)
    assert model.predict(rows)[1].shape == (12, 4, 2)
    with pytest.raises(DataError, match="multiples of 4"):
        model.predict([np.ones((7, 4, 3))])
