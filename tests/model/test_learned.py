"""What a program learned is never lost silently: a model says so where its own weights are used in
place of the trained ones."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.errors import WeightsError

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
LEARN = {"batch_size": 8, "optimizer": "adam", "loss": "mse"}


def model() -> zt.Sequential:
    return zt.Sequential([L.Input((4,)), L.Dense(3), L.Dense(4)])


def trained(made: zt.Model) -> zt.Program:
    program = made.compile("cpu:scalar", **LEARN)
    program.fit(X, X, verbose=0)
    return program


USES: dict[str, Callable[[zt.Model, Path], Any]] = {
    "save_weights": lambda m, path: m.save_weights(path / "w.safetensors"),
    "get_weights": lambda m, path: m.get_weights(),
    "onnx.save": lambda m, path: zt.onnx.save(m, path / "m.onnx"),
    "compile": lambda m, path: m.compile("cpu:scalar"),
    "pickled": lambda m, path: pickle.dumps(m),
}


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.mark.parametrize("use", USES)
def test_untrained_weights_are_not_used_silently(use: str, tmp_path: Path) -> None:
    made = model()
    USES[use](made, tmp_path)  # nothing was learned yet
    program = trained(made)
    with pytest.warns(UserWarning, match=rf"{use}.*model\.set_weights\(program\.get_w") as seen:
        USES[use](made, tmp_path)
    assert seen[0].filename == __file__
    made.set_weights(program.get_weights())
    USES[use](made, tmp_path)
    program.train_on_batch(X, X)
    with pytest.warns(UserWarning, match=use):
        USES[use](made, tmp_path)


def test_layers_give_and_take_weights_too() -> None:
    made, other = model(), model()
    assert made.layers[0].get_weights() == []  # not built
    other.build()
    program = trained(made)
    with pytest.warns(UserWarning, match="get_weights gives"):
        made.layers[0].get_weights()
    made.set_weights(program.get_weights())
    kept = made.layers[0].get_weights()
    other.layers[0].set_weights(kept)
    np.testing.assert_array_equal(other.get_weights()[0], program.get_weights()[0])
    assert (other.get_weights()[2] != program.get_weights()[2]).any()
    with pytest.raises(WeightsError, match="layer 'dense' has 2 weights, 1 were given"):
        other.layers[0].set_weights(kept[:1])
    other.layers[0].trainable = False
    assert [w.path for w in other.trainable_weights] == ["dense_1/kernel", "dense_1/bias"]
    assert other.non_trainable_weights == other.layers[0].weights


def test_a_frozen_layer_keeps_what_it_was_given() -> None:
    made = model()
    made.build()
    made.layers[0].set_weights([np.ones((4, 3)), np.zeros(3)])
    made.layers[0].trainable = False
    assert (trained(made).get_weights()[0] == 1).all()


def test_the_program_is_a_way_out(tmp_path: Path) -> None:
    made = model()
    program = trained(made)
    zt.onnx.save(made, tmp_path / "m.onnx", weights=program.weights)
    program.save_weights(tmp_path / "w.safetensors")
    made.load_weights(tmp_path / "w.safetensors")
    for a, b in zip(made.get_weights(), program.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_predicting_and_scoring_learn_nothing() -> None:
    made = model()
    program = made.compile("cpu:scalar", **LEARN)
    program.predict(X)
    program.evaluate(X, X, verbose=0)
    program.test_on_batch(X, X)
    made.get_weights()


def test_parts_of_a_model_know_too() -> None:
    """An encoder, trained as a part of an autoencoder."""
    x = L.Input((4,))
    encoder = zt.Sequential([L.Input((4,)), L.Dense(2)], name="encoder")
    hidden = L.Dense(3)(encoder(x))
    whole, half = zt.Model(x, L.Dense(4)(hidden)), zt.Model(x, hidden)
    other = model()
    program = trained(whole)
    for part in (encoder, half):
        with pytest.warns(UserWarning, match="compile starts from"):
            part.compile("cpu:scalar")
    other.get_weights()
    whole.set_weights(program.get_weights())
    want = X @ encoder.get_weights()[0] + encoder.get_weights()[1]
    np.testing.assert_allclose(encoder.compile("cpu:scalar").predict(X), want, atol=1e-6)
    half.get_weights()
