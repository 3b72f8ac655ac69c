"""What calls of layers on tensors read and change: weights, statistics and settings."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch.arrays.weight_cells import WeightCell
from ztorch.errors import ConfigError

X = np.random.default_rng(0).normal(3.0, 2.0, (8, 4)).astype(np.float32)
SCALES = np.arange(1.0, 5.0, dtype=np.float32)


class Counting(zt.layers.Layer):
    """Counts its calls in a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")
        self.norm = L.BatchNormalization(momentum=0.5)

    def call(self, x: Any, training: bool = False) -> Any:  # type: ignore[override]
        self.count.assign_add(1.0)
        return self.norm(x * self.count, training=training)


def moving(layer: Any) -> np.ndarray:
    return np.stack([np.asarray(w) for w in layer.get_weights()[2:]])


def after_calls(calls: int) -> np.ndarray:
    """The moving mean and variance, with momentum 0.5, after calls in training."""
    mean, variance, x = np.zeros(4), np.ones(4), X.astype(np.float64)
    for _ in range(calls):
        mean, variance = (mean + x.mean(0)) / 2, (variance + x.var(0)) / 2
    return np.stack([mean, variance])


def test_calls_in_training_move_statistics_as_in_keras() -> None:
    ours, theirs = (of.BatchNormalization(momentum=0.5) for of in (L, references.keras().layers))
    for training in (True, False, True):
        y, want = (layer(X, training=training) for layer in (ours, theirs))
        np.testing.assert_allclose(y.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moving(ours), moving(theirs), rtol=1e-5)
    np.testing.assert_allclose(moving(ours), after_calls(2), rtol=1e-5)
    model = zt.Sequential([L.Input((4,)), L.BatchNormalization(momentum=0.5)])
    model(X, training=True)
    model.compile("cpu", batch_size=8, loss="mse")  # the program has the weights now
    model(X, training=True)
    np.testing.assert_allclose(moving(model), after_calls(2), rtol=1e-5)
    zt.value_and_grad(lambda x: (model(x, training=True) ** 2.0).sum())(zt.tensor(X))
    np.testing.assert_allclose(moving(model), after_calls(3), rtol=1e-5)
    want = (X - moving(model)[0]) / np.sqrt(moving(model)[1] + 1e-3)
    np.testing.assert_allclose(model.predict(X), want, rtol=1e-4, atol=1e-5)


def test_a_call_keeps_the_assignments_of_its_own_trace() -> None:
    """Not of the last one that was traced."""
    layer = Counting()
    layer(X, training=True)
    layer(X[:3])  # traced later
    for calls in (3, 4):
        layer(X, training=True)
        assert layer.count.value == calls
    mean = X.mean(0) * np.dot([1, 3, 4], [0.125, 0.25, 0.5])
    np.testing.assert_allclose(moving(layer.norm)[0], mean, rtol=1e-5)


def test_compiled_functions_read_and_change_the_weights_of_layers() -> None:
    dense, counting = L.Dense(1, use_bias=False), Counting()
    scores = zt.compiled(lambda x: dense(x))
    trained = zt.compiled(lambda x: counting(x, training=True))
    for k in range(3):
        dense.set_weights([SCALES[:, None] * k]) if k else dense.build((None, 4))
        np.testing.assert_allclose(scores(zt.tensor(X)).numpy(), X @ dense.get_weights()[0], rtol=1e-5)
        trained(zt.tensor(X))
        assert counting.count.value == k + 1
    mean = X.mean(0) * np.dot([1, 2, 3], [0.125, 0.25, 0.5])
    np.testing.assert_allclose(moving(counting.norm)[0], mean, rtol=1e-5)


def test_repeated_calls_of_compiled_functions_look_weights_up_after_changes_alone(
        monkeypatch: Any) -> None:
    """On the host and in a program that trains them. Each call looked each weight up."""
    model = zt.Sequential([L.Input((4,)), L.Dense(1, use_bias=False), L.Dense(1, use_bias=False)])
    scores, looked_up = zt.compiled(lambda x: model(x)), []
    node: Any = WeightCell.node
    monkeypatch.setattr(WeightCell, "node", property(
        lambda cell: (looked_up.append(cell), node.fget(cell))[1], node.fset))

    def check() -> None:
        for again in (False, False, False, True):
            if again:
                looked_up.clear()
            first, second = model.get_weights()
            np.testing.assert_allclose(scores(zt.tensor(X)).numpy(), X @ first @ second, rtol=1e-4)
        assert not looked_up

    check()
    model.set_weights([SCALES[:, None], np.full((1, 1), 2.0)])
    check()
    model.compile("cpu", batch_size=8, optimizer="sgd", loss="mse")
    check()
    model.train_on_batch(X, X[:, :1])
    check()
    model.set_weights([SCALES[:, None], np.full((1, 1), 3.0)])
    check()
    model.layers[-1].set_weights([np.full((1, 1), 4.0)])
    check()


def test_a_file_of_a_function_has_the_weights_of_now(tmp_path: Path) -> None:
    dense = L.Dense(1, use_bias=False)
    dense.build((None, 4))
    want = X @ dense.get_weights()[0]
    zt.export(lambda x: dense(x), tmp_path / "f.zt", "f32[8,4]", device="cpu")
    dense.set_weights([SCALES[:, None]])
    np.testing.assert_allclose(zt.load_function(tmp_path / "f.zt")(X), want, rtol=1e-5)


def test_settings_of_layers_may_change_between_calls() -> None:
    norm, dropout = L.BatchNormalization(), L.Dropout(0.5)
    model = zt.Sequential([L.Input((4,)), norm, dropout])
    assert (model(X, training=True).numpy() == 0).any()
    dropout.rate = 0.0
    batch = (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-3)
    np.testing.assert_allclose(model(X, training=True).numpy(), batch, rtol=1e-4, atol=1e-5)
    norm.trainable = False  # it has its moving statistics then
    want = (X - moving(norm)[0]) / np.sqrt(moving(norm)[1] + 1e-3)
    np.testing.assert_allclose(model(X, training=True).numpy(), want, rtol=1e-4, atol=1e-5)


def test_calls_on_numbers_trace_once() -> None:
    """Each call was traced anew, which took most of its time. Layers set later count."""
    log = io.StringIO()

    def traces() -> int:
        return len(log.getvalue())

    class Headed(zt.Model):
        def __init__(self) -> None:
            super().__init__()
            self.head = L.Dense(2, kernel_initializer="ones")
            self.others: list[Any] = []

        def call(self, x: Any) -> Any:
            log.write(".")  # what it reads stays the same object
            for other in [self.head, *self.others]:
                x = other(x)
            return x

    model, x = Headed(), zt.ones((1, 3))
    assert model(x).tolist() == [[3.0, 3.0]]
    first = traces()
    assert model(x + 1.0).tolist() == [[6.0, 6.0]] and traces() == first
    assert model(zt.ones((4, 3))).shape == (4, 2) and traces() > first
    model.others.append(L.Dense(1, kernel_initializer="ones"))
    assert model(x).tolist() == [[6.0]]
    model.head, model.others = L.Dense(5, kernel_initializer="ones"), []
    assert model(x).tolist() == [[3.0] * 5]


TABLE = np.ones(4, np.float32)
STEP = 1.0


def shifted(x: Any) -> Any:
    return x + STEP


class Tabled(L.Layer):
    """Reads an array, lists in a dict, a tensor, an object, a function and globals."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.table, self.tensor = np.ones(4, np.float32), zt.ones(4)
        self.settings: dict[str, Any] = {"scales": [1.0] * 4}
        self.options = SimpleNamespace(power=1.0)
        self.function: Any = lambda x: x

    def call(self, x: Any) -> Any:
        x = self.function(x) * self.table * self.tensor * zt.ops.array(self.settings["scales"])
        return shifted(x * TABLE * self.options.power * self.factor)


def test_calls_on_numbers_read_what_attributes_and_closures_hold_now(monkeypatch: Any) -> None:
    """They had the values of the first call."""
    layer, rate = Tabled(), 2.0
    want = X + 1.0
    np.testing.assert_allclose(layer(X).numpy(), want, rtol=1e-5)
    here = sys.modules[__name__]
    changes: list[tuple[Callable[[], object], float, float]] = [  # a change, its factor and offset
        (lambda: layer.table.fill(3.0), 3.0, 1.0),
        (lambda: setattr(layer, "table", np.full(4, 5.0, np.float32)), 5.0, 1.0),
        (lambda: setattr(layer, "tensor", zt.ones(4) * 2.0), 10.0, 1.0),
        (lambda: layer.settings["scales"].__setitem__(slice(4), [0.5] * 4), 5.0, 1.0),
        (lambda: setattr(layer.options, "power", 3.0), 15.0, 1.0),
        (lambda: setattr(layer, "function", lambda x: x * rate), 30.0, 1.0),
        (lambda: monkeypatch.setattr(here, "TABLE", TABLE * 2.0), 60.0, 1.0),
        (lambda: monkeypatch.setattr(here, "STEP", 4.0), 60.0, 4.0),
        (lambda: monkeypatch.setattr(Tabled, "factor", 0.5), 30.0, 4.0),
    ]
    for change, factor, offset in changes:
        change()
        np.testing.assert_allclose(layer(X).numpy(), X * factor + offset, rtol=1e-5)
    rate = 4.0
    np.testing.assert_allclose(layer(X).numpy(), X * 60.0 + 4.0, rtol=1e-5)


def test_changed_regularizers_count_in_calls_on_numbers() -> None:
    dense = L.Dense(1, kernel_regularizer=zt.regularizers.L2(1.0), kernel_initializer="ones")
    for factor in (1.0, 3.0):
        dense.kernel_regularizer.l2 = factor
        dense(X)
        np.testing.assert_allclose(float(dense.losses[0]), 4.0 * factor, rtol=1e-6)


def test_weights_that_are_arguments_in_a_compiled_function_are_those_of_the_call() -> None:
    """They were constants of the first call, so that training did not go on."""
    dense = L.Dense(1, use_bias=False, kernel_initializer="ones")
    dense.build((None, 4))
    optimizer = zt.optimizers.SGD(0.01)

    def step(x: Any) -> Any:
        def loss(weights: Any) -> Any:
            return (dense.stateless_call(weights, [], x)[0] ** 2.0).mean()

        value, gradients = zt.value_and_grad(loss)(dense.trainable_weights)
        optimizer.apply(gradients, dense.trainable_weights)
        return value

    compiled, weight = zt.compiled(step), np.ones((4, 1))
    for _ in range(3):
        scores = X.astype(np.float64) @ weight
        np.testing.assert_allclose(float(compiled(zt.tensor(X))), (scores ** 2).mean(), rtol=1e-4)
        weight -= 0.01 * 2.0 * X.T @ scores / len(X)
        np.testing.assert_allclose(dense.get_weights()[0], weight, rtol=1e-3)


@pytest.mark.parametrize("read", [lambda dense: dense.kernel.numpy(), lambda dense: np.asarray(dense.kernel),
                                  lambda dense: dense.get_weights()[0],
                                  lambda dense: zt.Sequential([L.Input((4,)), dense]).get_weights()[0]])
def test_numbers_of_weights_in_a_compiled_function_are_an_error(read: Any) -> None:
    dense = L.Dense(1, use_bias=False)
    dense.build((None, 4))
    with pytest.raises(ConfigError, match=r"weight 'dense.*kernel' is asked for its numbers while a function is compiled"):
        zt.compiled(lambda x: x @ zt.tensor(read(dense)))(zt.tensor(X))
    assert read(dense).shape == (4, 1)
