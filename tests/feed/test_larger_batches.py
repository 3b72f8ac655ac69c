"""Batches of a generator that are larger than its first: steps of their own, as in Keras."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.references import keras
from ztorch import layers as L

SIZES = (4, 8, 3, 9, 8)
RNG = np.random.default_rng(0)
X = [RNG.normal(size=(n, 5)).astype(np.float32) for n in SIZES]
Y = [RNG.integers(0, 3, n) for n in SIZES]
WEIGHTS = [np.linspace(0.5, 1, n, dtype=np.float32) for n in SIZES]


def batches(passes: int, weighted: bool = False) -> Iterator[tuple[Any, ...]]:
    for _ in range(passes):
        yield from zip(X, Y, WEIGHTS) if weighted else zip(X, Y)  # noqa: B905 - of equal length


def network(library: Any, layers: Any) -> Any:
    """Its batch statistics and its optimizer's slots show a batch that is cut."""
    model = library.Sequential([layers.Input((5,)), layers.Dense(6, activation="tanh"), layers.BatchNormalization(),
                                layers.Dense(3, activation="softmax")])
    options = {"device": "cpu:scalar"} if library is zt else {}
    model.compile(**options, optimizer=library.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy",
                  metrics=["accuracy"])
    return model


@pytest.mark.parametrize("weighted", [False, True])
def test_the_history_is_that_of_keras(weighted: bool) -> None:
    peer_library = keras()
    peer, model = network(peer_library, peer_library.layers), network(zt, L)
    model.set_weights(peer.get_weights())
    numbers: list[int] = []
    options = {"steps_per_epoch": len(SIZES), "epochs": 2, "verbose": 0}
    expected = peer.fit(batches(2, weighted), **options).history
    history = model.fit(batches(2, weighted), **options, callbacks=zt.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: numbers.append(batch))).history
    for name, curve in expected.items():
        np.testing.assert_allclose(history[name], curve, rtol=1e-5, err_msg=name)
    for own, other in zip(model.get_weights(), peer.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, atol=1e-5)  # a thousandth of a step of Adam
    assert numbers == [*range(len(SIZES))] * 2
    # As many rows as in Keras are read, and no more sizes are compiled than are larger than all before.
    scores, own_scores = peer.evaluate(batches(1), steps=3, verbose=0), model.evaluate(batches(1), steps=3, verbose=0)
    np.testing.assert_allclose(own_scores, scores, rtol=1e-5)
    outputs = model.predict(iter(X), steps=2)
    np.testing.assert_allclose(outputs, peer.predict(batches(1), steps=2, verbose=0), atol=1e-5)
    assert [program.batch_size for program in model._programs.all] == [32, 4, 8, 9]


def test_rows_that_count_together_are_never_padded() -> None:
    """Steps of plain SGD against NumPy, of a model that subtracts the mean over its batch."""
    x, kernel = L.Input((5,)), np.ones((5, 1), np.float32)
    y = L.Dense(1, use_bias=False, kernel_initializer="ones")(x)
    model = zt.Model(x, L.Lambda(lambda y: y - zt.ops.mean(y, 0, keepdims=True))(y))
    model.compile("cpu:scalar", optimizer=zt.optimizers.SGD(0.1), loss="mse")
    model.fit(batches(1), steps_per_epoch=4, verbose=0)
    for rows, labels in zip(X[:4], Y[:4], strict=True):
        centered = rows - rows.mean(0)
        kernel = kernel - 0.1 * 2 * centered.T @ (centered @ kernel - labels[:, None]) / len(rows)
    np.testing.assert_allclose(model.get_weights()[0], kernel, rtol=1e-5)
    mean = np.mean(np.concatenate([((a - a.mean(0)) @ kernel - b[:, None]) ** 2 for a, b in zip(X[1:4], Y[1:4], strict=True)]))
    np.testing.assert_allclose(model.evaluate([*zip(X[1:4], Y[1:4], strict=True)], verbose=0), mean, rtol=1e-5)


def test_validation_without_a_count_compiles_nothing() -> None:
    """The parts of a batch have the scores of all of it."""
    model = network(zt, L)
    pairs = [*zip(X, Y, strict=True)]
    history = model.fit(pairs[0][0], pairs[0][1], batch_size=4, validation_data=iter(pairs), verbose=0).history
    np.testing.assert_allclose(history["val_loss"][0], model.evaluate(np.concatenate(X), np.concatenate(Y), verbose=0)[0],
                               rtol=1e-5)
    assert [program.batch_size for program in model._programs.all] == [32, 4]


def test_steps_over_larger_batches_keep_weights_that_callbacks_set() -> None:
    """States are those of the model before and after each step, not of the larger program alone."""
    model = network(zt, L)

    def forget(batch: int, logs: Any) -> None:
        model.set_weights([np.zeros_like(w) for w in model.get_weights()])

    model.fit(batches(1), steps_per_epoch=4, verbose=0, callbacks=zt.callbacks.LambdaCallback(on_train_batch_end=forget))
    assert all((w == 0).all() for w in model.get_weights())
    assert model.optimizer.iterations == 4


def test_programs_have_the_sizes_of_calls() -> None:
    """That of a call, or of the batches in an iterator, or all rows of one batch."""
    model = zt.Sequential([L.Input((5,)), L.Dense(3, activation="softmax")])
    model.compile("cpu:scalar", optimizer="sgd", loss="sparse_categorical_crossentropy")
    rows, labels = np.concatenate(X), np.concatenate(Y)
    expected = -np.log(model.predict(rows)[np.arange(len(rows)), labels]).mean()
    for call in (lambda: model.evaluate(rows, labels, batch_size=7, verbose=0),
                 lambda: model.evaluate([(rows[:20], labels[:20]), (rows[20:], labels[20:])], verbose=0),
                 lambda: model.test_on_batch(np.tile(rows, (2, 1)), np.tile(labels, 2))):
        np.testing.assert_allclose(call(), expected, rtol=1e-5)
    assert [program.batch_size for program in model._programs.all] == [32, 7, 20, 64]
    kernel = np.zeros((5, 3))
    model.set_weights([np.zeros_like(w) for w in model.get_weights()])
    model.train_on_batch(np.tile(rows, (2, 1)), np.tile(labels, 2), class_weight={0: 3.0})
    shares = np.where(labels == 0, 3.0, 1.0)[:, None] * (1 / 3 - np.eye(3)[labels]) / len(rows)
    kernel -= 0.01 * rows.T @ shares
    np.testing.assert_allclose(model.get_weights()[0], kernel, atol=1e-6)
