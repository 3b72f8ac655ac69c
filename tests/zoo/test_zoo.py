"""Every model of the zoo builds, trains alike on scalar and SIMD code, and agrees with its page."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.zoo import BATCH, KINKED, NAMES, STEPS, rows, shipped, small
from tools.zoo_weights import NAMES as TRAINED
from ztorch.commands.programs import need_trained
from ztorch.commands.train import compiled
from ztorch.compile.pipeline import build
from ztorch.errors import ConfigError
from ztorch.sources.find import find
from ztorch.sources.recipe import optimizer
from ztorch.sources.shipped import take_shipped

# Models that take long to compile. On the best level test_vs_torch.py trains these too, and all of their
# layers train on the scalar level in layers/test_twins.py.
DEEP = KINKED | {"bert_base", "lstm_classifier"}
# Models that train to the bits of scalar code in codegen/c/test_programs.py.
IN_C = {"digits_mlp", "digits_cnn", "tiny_gpt"}

# Added to all keys, the bias of keys adds as much to all scores of a query, which softmax does not
# see: its gradient is zero but for rounding, and Adam, which divides by a gradient's size, follows
# what rounding says. It may go anywhere, as far as Adam's steps reach, and changes no prediction.
UNSEEN = re.compile(r"self_attention/key/bias$")


@pytest.mark.parametrize("name", [
    pytest.param(n, marks=pytest.mark.full if n in DEEP | IN_C else ()) for n in NAMES])
def test_scalar_and_simd_code_train_alike(name: str) -> None:
    recipe = small(name)
    assert recipe.learning_rate is not None
    traced = recipe.model.trace(
        BATCH, optimizer(recipe.optimizer, recipe.learning_rate), recipe.loss,
        dtype="float64" if name in KINKED else "float32")
    scalar, simd = (build({"train": traced.functions["train"]}, device, name)
                    for device in ("cpu:scalar", "cpu"))
    x, y = rows(scalar, traced.metadata, recipe, STEPS)
    losses = []
    for executable in (scalar, simd):
        call = executable.bind("train")
        for k in range(0, len(x), BATCH):
            call.inputs["x"][...], call.inputs["y"][...] = x[k:k + BATCH], y[k:k + BATCH]
            call.inputs["w"][...] = call.inputs["real"][...] = 1.0
            call()
            losses.append(float(call.outputs["loss"]))
    assert np.isfinite(losses).all() and losses[:STEPS] == pytest.approx(losses[STEPS:], rel=1e-4)
    for weight in traced.metadata.weights:
        apart = np.abs(scalar.state(weight.name) - simd.state(weight.name))
        # A step is about the rate, so that two can part by twice that.
        assert apart.max() <= 2.5 * STEPS * recipe.learning_rate, weight.name
        assert UNSEEN.search(weight.name) or apart.mean() < 1e-6, weight.name


@pytest.mark.parametrize("name", NAMES)
def test_each_says_how_it_is_trained(name: str) -> None:
    recipe = shipped(name)
    assert recipe.model.name == name
    assert recipe.loss and recipe.optimizer and recipe.metrics and recipe.data in zt.data.names()
    assert recipe.epochs > 0 and recipe.learning_rate and recipe.target in ("x", "y")
    assert recipe.bar and set(recipe.bar) <= {"loss", *recipe.metrics}
    (x, _), (x_test, _) = zt.data.load(recipe.stand_in or recipe.data)
    assert x.shape[1:] == x_test.shape[1:] == recipe.model.input_shape[1:]


@pytest.mark.parametrize("name", NAMES)
def test_each_can_be_described(name: str) -> None:
    """In full size: shapes and parameters are found, and a description makes the same model."""
    model = find(name).model
    lines: list[str] = []
    model.summary(lines.append)
    assert f"Parameters: {model.count_params():,}" in "\n".join(lines)
    again = type(model).from_json(model.to_json())
    assert again.output_shape == model.output_shape
    assert [(w.path, w.shape) for w in again.weights] == [(w.path, w.shape) for w in model.weights]


def test_the_shipped_weights_of_digits_mlp_reach_their_accuracy() -> None:
    """Computed in NumPy, from the result of `zt.load_model`."""
    model = zt.load_model("digits_mlp")
    _, (x, y) = zt.data.load("digits")
    v = x.reshape(len(x), -1).astype(np.float64)
    w = model.get_weights()
    for kernel, bias in zip(w[::2], w[1::2], strict=True):
        v = np.maximum(v, 0) @ kernel + bias
    bar = find("digits_mlp").bar
    assert bar is not None and (v.argmax(1) == y).mean() >= bar["accuracy"]


@pytest.mark.full
@pytest.mark.parametrize("name", TRAINED)
def test_trained_weights_reach_the_documented_result(name: str) -> None:
    recipe = find(name)
    assert take_shipped(recipe) and recipe.data is not None and recipe.bar is not None
    _, (x, y) = zt.data.load(recipe.data)
    scores = compiled(recipe, "cpu").evaluate(x, x if recipe.target == "x" else y, verbose=0,
                                              return_dict=True)
    for metric, bar in recipe.bar.items():
        assert (scores[metric] - bar) * (1 if "accuracy" in metric else -1) >= 0, metric


def test_trained_weights_are_of_small_models_and_fit_them() -> None:
    assert {find(n).shipped and n for n in NAMES} - {None} == set(TRAINED)
    files = [find(name).shipped for name in TRAINED]
    assert sum(f.stat().st_size for f in files if f) < 400_000
    for name in TRAINED:
        recipe = find(name)
        assert take_shipped(recipe) and not take_shipped(recipe), name
        assert all(np.isfinite(w).all() and w.dtype == np.float32 for w in recipe.model.get_weights())
    assert take_shipped(text := find("text_classifier"))
    assert text.model.pipeline.classes == ("Shakespeare", "Poe", "Carroll")
    with pytest.raises(ConfigError, match=r"resnet18 has learned nothing yet.* ztorch train resnet18 --data DATA"):
        need_trained("resnet18", find("resnet18"))


# -- sizes that others published -------------------------------------------------------------------


def trainable(model: Any, *layers: str) -> int:
    return sum(w.size for w in model.weights if w.trains
               and (not layers or re.match("|".join(layers), w.path)))


def test_resnet18_is_as_large_as_published() -> None:
    model = find("resnet18").model
    assert trainable(model) == 11_689_512
    assert model.input_shape == (None, 224, 224, 3) and model.output_shape == (None, 1000)
    shapes = {layer.name: tuple(row.shape) for row in model.traced_layers()
              for layer in [row.layer] if row.depth == 0}
    assert [shapes[f"stage_{k}_block_2"] for k in (1, 2, 3, 4)] == [
        (56, 56, 64), (28, 28, 128), (14, 14, 256), (7, 7, 512)]


def test_cifar_resnet_is_as_large_as_published() -> None:
    """0.27 million, in 20 layers: 19 convolutions besides the projections, and a matrix."""
    model = find("cifar_resnet").model
    assert round(trainable(model) / 1e6, 2) == 0.27
    layers = [layer for _, layer in model.walk() if isinstance(layer, (zt.layers.Conv2D,
                                                                       zt.layers.Dense))]
    assert sum("shortcut" not in layer.path for layer in layers) == 20


def test_bert_is_as_large_as_published() -> None:
    """BertModel has 109,482,240: the encoder, the pooler, and two vectors for first and second
    sentences, which need a second input."""
    model = importlib.import_module("models.bert_base").build(classes=2)
    assert trainable(model) == 109_482_240 - 2 * 768 + (768 * 2 + 2)
    assert trainable(model, "words", "places", "norm", "block_") == 109_482_240 - 2 * 768 - (
        768 * 768 + 768)
    assert trainable(model, "block_1/") == 7_087_872


@pytest.mark.slow
def test_mobilenet_is_keras_own() -> None:
    """Weight by weight in Keras' order, trainable or not."""
    theirs = references.keras().applications.MobileNet(weights=None)
    ours = importlib.import_module("models.mobilenet").build(224, 1000, 1.0, False)
    shapes = [tuple(w.shape) for w in theirs.weights]
    assert [w.shape for w in ours.weights[:-2]] == shapes[:-2]
    assert ours.count_params() == theirs.count_params() == 4_253_864


# -- single models ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_autoencoder_learns_to_draw() -> None:
    recipe = find("autoencoder")
    made = compiled(recipe, "cpu", threads=1)
    (x, _), (x_test, _) = zt.data.load("digits")
    made.fit(x, x, epochs=20, verbose=0)
    blank = float(((x_test - x_test.mean(0)) ** 2).mean())
    assert made.evaluate(x_test, x_test, verbose=0, return_dict=True)["loss"] < blank / 3


@pytest.mark.slow
def test_the_variational_autoencoder() -> None:
    """Its loss is the cross-entropy of pixels and the distance of the code, in closed form; images that
    its decoder draws of standard normal codes looks like digits to a classifier."""
    vae = importlib.import_module("models.vae")
    recipe = find("vae")
    made = compiled(recipe, "cpu", threads=1)
    (x, y), (x_test, _) = zt.data.load("digits")
    made.fit(x, x, epochs=30, verbose=0)
    w = {path: a.astype(np.float64) for path, a in made.weight_arrays().items()}
    hidden = np.maximum(x_test.reshape(-1, 64) @ w["encoder/kernel"] + w["encoder/bias"], 0)
    mean, log_variance = np.split(hidden @ w["distribution/kernel"] + w["distribution/bias"], 2, 1)
    apart = 0.5 * (np.exp(log_variance) + mean**2 - 1 - log_variance).sum(1) / 64
    p = made.predict(x_test).astype(np.float64)
    pixels = -(x_test * np.log(p) + (1 - x_test) * np.log(1 - p)).mean((1, 2, 3))
    scores = made.evaluate(x_test, x_test, verbose=0, return_dict=True)
    assert scores["loss"] == pytest.approx((pixels + apart).mean(), rel=1e-4)
    assert 0.02 < apart.mean() < 0.3  # the code says something, and not everything

    model = vae.build()
    model.set_weights(made.get_weights())
    drawn = vae.draw(model, 64, seed=3)
    assert drawn.shape == (64, 8, 8, 1) and drawn.std(0).mean() > 0.1  # all kinds of them
    nearest = np.square(drawn[:, None] - x[None]).mean((2, 3, 4))
    assert nearest.min(1).mean() < 0.05 < np.square(x - x.mean(0)).mean()
    assert len(set(y[nearest.argmin(1)].tolist())) >= 7


def test_the_page_of_the_zoo_is_correct() -> None:
    """Parameters, data, epochs and bars as the files have them."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "zoo.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in page.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    assert {row[0].strip("`").removesuffix(":small") for row in rows} == set(NAMES)
    assert f"| Zoo | {len(NAMES)} models" in (root / "README.md").read_text(encoding="utf-8")
    for name, _, parameters, data, epochs, bar in rows:
        recipe = find(name.strip("`"))
        assert parameters == f"{recipe.model.count_params():,}", name
        if data != "yours":
            assert recipe.bar is not None and f"`{recipe.data}`" in data, name
            assert epochs == str(recipe.epochs), name
            assert bar == ", ".join(f"{m} {v:g}" for m, v in recipe.bar.items()), name
