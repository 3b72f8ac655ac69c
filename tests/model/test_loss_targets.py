"""Functions as losses: their targets are the data's, of any shape and dtype."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch import ops
from ztorch.graph.value import Value

RANDOM = np.random.default_rng(3)
STEPS, TAGS = 4, 3
MOVES = RANDOM.normal(size=(TAGS, TAGS)).astype(np.float32)  # the score of each pair of successive tags
X = RANDOM.integers(0, 9, (10, STEPS)).astype(np.int32)
Y = RANDOM.integers(0, TAGS, (10, STEPS)).astype(np.int32)


def crf(y_true: Value, y_pred: Value) -> Value:
    """-log p of the tags of each row, over all sequences of tags."""

    def step(alpha: Value, scores: Value) -> tuple[Value, Value]:
        alpha = ops.logsumexp(ops.expand_dims(alpha, 2) + MOVES, axis=1) + scores
        return alpha, alpha

    tags = ops.one_hot(y_true, TAGS)
    own = ops.sum(tags * y_pred, axis=(1, 2)) + ops.sum(
        ops.matmul(tags[:, :-1], MOVES) * tags[:, 1:], axis=(1, 2))
    alpha, _ = ops.scan(step, y_pred[:, 0], ops.transpose(y_pred[:, 1:], (1, 0, 2)))
    return ops.logsumexp(alpha, axis=1) - own


def by_enumeration(scores: np.ndarray, tags: np.ndarray) -> float:
    """The mean of `crf`, in float64, with every sequence of tags written out."""

    def score(row: np.ndarray, way: tuple[int, ...]) -> float:
        return sum(float(row[k, tag]) for k, tag in enumerate(way)) + sum(
            float(MOVES[pair]) for pair in itertools.pairwise(way))

    ways = list(itertools.product(range(TAGS), repeat=STEPS))
    return float(np.mean([np.logaddexp.reduce([score(row, way) for way in ways])
                          - score(row, tuple(own)) for row, own in zip(scores, tags, strict=True)]))


def test_a_tagger_learns_by_a_crf_whose_tags_are_integers(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((STEPS,), dtype="int32"), L.Embedding(9, 4),
                           L.SimpleRNN(5, return_sequences=True), L.Dense(TAGS)], seed=1)
    model.compile("cpu", batch_size=4, loss=crf, optimizer=zt.optimizers.SGD(0.1), threads=1,
                  metrics=["accuracy"])
    before = model.predict(X)  # no tags yet, and the weights that training begins with
    np.testing.assert_allclose(model.evaluate(X, Y, verbose=0), [
        by_enumeration(before, Y), np.mean(before.argmax(axis=2) == Y)], rtol=1e-5)
    model.fit(iter([(X[:4], Y[:4]), (X[4:8], Y[4:8])]), steps_per_epoch=2, verbose=0)
    model.train_on_batch(X[:4], Y[:4])
    after = by_enumeration(model.predict(X), Y)
    assert after < by_enumeration(before, Y) - 1e-3
    model.save(tmp_path / "tagger.zt")
    saved = zt.load(tmp_path / "tagger.zt")
    assert saved.metadata.target_shape == {"": (STEPS,)}
    np.testing.assert_allclose(saved.evaluate(X, Y, verbose=0)[0], after, rtol=1e-5)


def test_custom_losses_accept_targets_of_other_shapes() -> None:
    seen = []

    def picked(y_true: Value, y_pred: Value) -> Value:
        seen.append((y_true.shape, y_true.dtype.long))
        return ops.mean(y_pred, axis=-1) * ops.mean(ops.cast(y_true, "float32"))

    x = zt.layers.Input((2,))
    model = zt.Model(x, {"a": L.Dense(3, name="a")(x), "b": L.Dense(1, name="b")(x)})
    model.compile("cpu", batch_size=5, loss={"a": picked, "b": "mse"}, threads=1)
    assert {(shape[1:], d) for shape, d in seen} == {((3,), "float32")}
    rows = RANDOM.normal(size=(5, 2)).astype(np.float32)
    wide = np.arange(-1, 19, dtype=np.int64).reshape(5, 4)
    scores = model.evaluate(rows, {"a": wide, "b": np.zeros(5)}, verbose=0, return_dict=True)
    assert seen[-1] == ((5, 4), "int32")
    a = model.predict(rows)["a"]
    np.testing.assert_allclose(scores["a_loss"], a.mean() * wide.mean(), rtol=1e-5)
    like, program = np.ones((5, 3)), model.program
    model.evaluate(rows, {"a": wide, "b": np.ones((5, 1))}, verbose=0)
    assert model.program is program  # nothing new
    model.evaluate(rows, {"a": like, "b": np.zeros(5)}, verbose=0)
    assert seen[-1] == ((5, 3), "float32")


@pytest.mark.parametrize("own", [lambda y, p: ops.mean(p**2, axis=-1), lambda y, p: ops.mean(y**2, axis=-1)])
def test_a_saved_program_evaluates_with_a_loss_of_one_side(tmp_path: Path, own: Any) -> None:
    x, y = RANDOM.normal(size=(5, 3)), RANDOM.normal(size=(5, 2))
    model = zt.Sequential([L.Input((3,)), L.Dense(2)])
    model.compile(loss=own, optimizer="sgd")
    loss = model.evaluate(x, y, verbose=0)
    model.save(tmp_path / "model.zt")
    np.testing.assert_allclose(zt.load(tmp_path / "model.zt").evaluate(x, y, verbose=0), loss, rtol=1e-6)


def test_one_number_per_row_is_compared_with_one_prediction_per_row() -> None:
    model = zt.Sequential([L.Input((2,)), L.Dense(1)])
    model.compile("cpu", batch_size=4, loss=lambda t, p: (t - p) ** 2, threads=1)
    rows, y = RANDOM.normal(size=(4, 2)).astype(np.float32), np.arange(4)
    program = model.program
    np.testing.assert_allclose(model.evaluate(rows, y, verbose=0),
                               np.mean((model.predict(rows)[:, 0] - y) ** 2), rtol=1e-5)
    assert model.program is program


def test_labels_of_steps_may_differ_in_length() -> None:
    """As with the loss of that name, whose targets are known beforehand."""
    def sparse(y_true: Value, y_pred: Value) -> Value:
        return ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)

    lengths = (3, 5, 8, 2)
    rows = [RANDOM.normal(size=(n, 2)).astype(np.float32) for n in lengths]
    labels = [RANDOM.integers(0, TAGS, n) for n in lengths]
    losses = []
    for loss in (sparse, zt.losses.SparseCategoricalCrossentropy(from_logits=True)):
        model = zt.Sequential([L.Input(("time", 2)), L.SimpleRNN(4, return_sequences=True),
                               L.Dense(TAGS)], seed=1)
        model.compile("cpu", batch_size=2, sizes={"time": (4, 8)}, loss=loss, threads=1,
                      optimizer=zt.optimizers.SGD(0.1))
        before = model.predict(rows)  # no labels yet
        history = model.fit(rows, labels, epochs=2, shuffle=False, verbose=0).history["loss"]
        program = model.program
        losses.append([*history, model.evaluate(rows, [list(y) for y in labels], verbose=0),
                       model.train_on_batch(np.ones((2, 5, 2)), np.ones((2, 5), int))])
        assert [len(y) for y in before] == [*lengths] and model.program is program
    np.testing.assert_allclose(*losses, rtol=1e-5)
    waiting = zt.Sequential([L.Input((None, 2)), L.Dense(TAGS)])
    waiting.compile("cpu", loss=lambda t, p: ops.sum(sparse(t, p), axis=1), threads=1)
    y = waiting.predict(rows)  # of sizes that data have
    sums = [float(ops.sum(sparse(zt.tensor(t[None]), zt.tensor(p[None]))).numpy()) for t, p in zip(labels, y, strict=True)]
    np.testing.assert_allclose(waiting.evaluate(rows, labels, verbose=0), np.mean(sums), rtol=1e-5)
