"""Repeated calls of layers on numbers: they see whatever has changed since the last call."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.arrays import layer_calls
from ztorch.layers.layer import Layer

L = zt.layers
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
SCALES = {"factor": 2.0}


def close(result: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(np.asarray(result), expected, tolerance, tolerance)


def third(layer: Layer) -> np.ndarray:
    """The result of a third call, which repeats the second."""
    return [layer(X).numpy() for _ in range(3)][-1]


def dense() -> Layer:
    layer = L.Dense(2)
    third(layer)
    return layer


def linear(layer: Layer, x: np.ndarray = X) -> np.ndarray:
    kernel, bias = layer.get_weights()
    return x @ kernel + bias


def is_repeated(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the next call is recorded without a look at the layer."""
    looks: list[Layer] = []
    settings_of = layer_calls.settings_of
    monkeypatch.setattr(layer_calls, "settings_of", lambda one: looks.append(one) or settings_of(one))
    layer(X)
    return not looks


def model() -> zt.Sequential:
    return zt.Sequential([L.Input((4,)), L.Dense(3, "relu"), L.Dense(2)])


@pytest.mark.parametrize("make", [dense, model])
def test_calls_are_repeated(make: Callable[[], Layer], monkeypatch: pytest.MonkeyPatch) -> None:
    layer = make()
    first = third(layer)
    assert is_repeated(layer, monkeypatch)
    close(layer(X), first, 0)
    close(layer(zt.tensor(X)), first, 0)
    close(layer(X[:2]), first[:2], 1e-6)


def test_weights_are_those_of_now() -> None:
    layer = dense()
    layer.set_weights([np.full((4, 2), 2.0), np.ones(2)])
    close(layer(X), linear(layer), 1e-6)
    layer.kernel.assign(np.full((4, 2), 3.0))
    close(layer(X), X @ np.full((4, 2), 3.0) + 1, 1e-6)


def test_training_and_programs_change_the_weights() -> None:
    net = model()
    before = third(net)
    net.compile(optimizer="sgd", loss="mse")
    close(net(X), before, 1e-6)
    net.fit(X, np.ones((3, 2), np.float32), epochs=2, verbose=0)
    after = net(X).numpy()
    close(after, net.predict(X), 1e-6)
    assert np.abs(after - before).max() > 1e-3


def test_attributes_that_are_set() -> None:
    layer = dense()
    layer.activation = "relu"
    close(layer(X), np.maximum(linear(layer), 0), 1e-6)
    layer.activation = None
    close(layer(X), linear(layer), 1e-6)


def test_contents_of_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled = L.Lambda(lambda x: x * SCALES["factor"])
    close(third(scaled), 2 * X, 0)
    assert is_repeated(scaled, monkeypatch)
    monkeypatch.setitem(SCALES, "factor", 3.0)
    close(scaled(X), 3 * X, 1e-6)


class Doubled(L.Layer):
    """A user's layer, which reads a global and an attribute of its class."""

    shift = 1.0

    def call(self, x: Any) -> Any:
        return x * SCALES["factor"] + self.shift


def test_code_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for layer in (Doubled(), zt.Sequential([L.Input((4,)), Doubled()])):
        close(third(layer), 2 * X + 1, 1e-6)
        with monkeypatch.context() as patch:
            patch.setattr(Doubled, "shift", 5.0)
            close(layer(X), 2 * X + 5, 1e-6)
            patch.setitem(SCALES, "factor", -1.0)
            close(layer(X), 5 - X, 1e-6)


def test_layers_that_are_added() -> None:
    net = model()
    before = third(net)
    net.add(L.Rescaling(10.0))
    close(net(X), 10 * before, 1e-5)


def test_copies_and_files_begin_anew() -> None:
    layer = dense()
    for other in (copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))):
        kernel, bias = layer.get_weights()
        close(third(other), linear(layer), 1e-6)
        other.set_weights([2 * kernel, bias])
        close(other(X), 2 * (X @ kernel) + bias, 1e-6)
        other.set_weights([kernel, bias])
    net = model()
    close(third(copy.deepcopy(net)), third(net), 0)


def test_masks_travel_with_tensors() -> None:
    numbers = np.array([[1, 2, 0], [3, 0, 0]])
    table, mean = L.Embedding(4, 2, mask_zero=True), L.GlobalAveragePooling1D()
    plain = table(numbers).numpy()
    for _ in range(3):
        close(mean(plain), plain.mean(1), 1e-6)  # numbers without a mask
    close(mean(table(numbers)), [plain[0, :2].mean(0), plain[1, 0]], 1e-6)


def test_the_mode_and_the_losses_of_the_last_call() -> None:
    drop = L.Dropout(0.5, seed=1)
    for _ in range(3):
        close(drop(X), X, 0)
    assert (drop(X, training=True).numpy() == 0).any()
    close(drop(X), X, 0)
    layer = L.Dense(2, activity_regularizer="l2")
    layer(X)
    assert len(layer.losses) == 1
    layer(X)
    assert len(layer.losses) == 1


def test_in_compiled_functions_and_gradients() -> None:
    layer = dense()
    compiled = zt.compiled(lambda x: layer(x))
    close(compiled(zt.tensor(X)), linear(layer), 1e-6)
    layer.set_weights([np.full((4, 2), 2.0), np.ones(2)])
    close(compiled(zt.tensor(X)), linear(layer), 1e-6)
    slope = zt.grad(lambda x: layer(x).sum())(zt.tensor(X))
    close(slope, np.full((3, 4), 4.0), 1e-6)


def test_a_layer_is_collected_with_its_calls() -> None:
    net = model()
    third(net)
    alive = weakref.ref(net)
    del net
    gc.collect()
    assert alive() is None
