"""Batches of different lengths, as datasets for text give them, and losses that combine steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch import ops

LENGTHS = (3, 5, 4)


class Buckets(zt.utils.PyDataset):
    """Each batch has another length."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(k)
        return rng.integers(1, 9, (4, LENGTHS[k])), rng.integers(0, 3, (4, LENGTHS[k]))


class Loader:
    """The same batches in passes, as a loader of PyTorch gives them. It knows their number."""

    def __init__(self) -> None:
        self.read = 0  # batches

    def __len__(self) -> int:
        return len(LENGTHS)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for k in range(len(LENGTHS)):
            self.read += 1
            yield Buckets()[k]


class Block(L.Layer, abstract=True):
    def __init__(self) -> None:
        super().__init__()
        self.inner = zt.Sequential([L.Dense(6, activation="relu"), L.Dense(4)])

    def call(self, x: Any) -> Any:  # type: ignore[override]
        return L.add([x, self.inner(x)])


class Tagger(zt.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.block = L.Embedding(9, 4), Block()
        self.out = L.Dense(3, activation="softmax")

    def call(self, x: Any) -> Any:  # type: ignore[override]
        return self.out(self.block(self.embed(x)))


def functional() -> zt.Model:
    x = L.Input((None,), dtype="int32")
    return zt.Model(x, Tagger()(x))


def tagger_for(first: int) -> zt.Model:
    model = Tagger()
    model(np.ones((2, first), "int64"))
    return model


def losses_by_hand(model: zt.Model, counts: Any) -> list[float]:
    """The mean of -log p of each batch, over positions where `counts` of the targets."""
    table, first, first_bias, second, second_bias, out, bias = map(np.asarray, model.get_weights())
    means = []
    for k in range(len(LENGTHS)):
        x, y = Buckets()[k]
        h = table[x]
        h = h + np.maximum(h @ first + first_bias, 0) @ second + second_bias
        logits = h @ out + bias
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        gaps = -np.log(np.take_along_axis(p, y[..., None], -1)[..., 0])
        means.append(float((gaps * counts(y)).sum() / counts(y).sum()))
    return means


MAKERS = {"functional": functional, "class": Tagger, "called": lambda: tagger_for(3),
          "called on others": lambda: tagger_for(7)}


@pytest.mark.parametrize("made", [*MAKERS])
def test_each_batch_of_a_dataset_has_its_own_length(made: str) -> None:
    model = MAKERS[made]()
    model.compile(zt.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    loss = model.fit(Buckets(), shuffle=False, verbose=0).history["loss"][0]
    np.testing.assert_allclose(loss, np.mean(losses_by_hand(model, np.ones_like)), rtol=1e-4)


def generator() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same batches, and their first and last again, which is the longest."""
    yield from (Buckets()[k] for k in range(len(LENGTHS)))
    yield Buckets()[0]
    yield tuple(np.tile(part, (1, 3)) for part in Buckets()[2])  # type: ignore[misc]


@pytest.mark.parametrize("combined", [False, True])
@pytest.mark.parametrize("made", [*MAKERS])
def test_each_batch_of_a_generator_may_be_longer_than_those_before(
        made: str, combined: bool) -> None:
    """Training on a generator equals training on a list of its batches, for which all sizes are
    known beforehand."""
    losses, values = [], []
    weights = None
    for data in (generator, lambda: [*generator()]):
        model = MAKERS[made]()
        model.build((None, 3))
        weights = model.get_weights() if weights is None else weights
        model.set_weights(weights)
        model.compile(zt.optimizers.SGD(0.5), masked if combined else
                      "sparse_categorical_crossentropy")
        first = model.fit(data(), shuffle=False, verbose=0).history
        history = model.fit(data(), shuffle=False, validation_data=data(), verbose=0).history
        losses.append([*first["loss"], *history["loss"], *history["val_loss"],
                       model.evaluate(data(), verbose=0)])
        values.append(model.predict(data()))
    assert losses[0][1] < losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert [len(row) for row in values[0]] == [n for n in (3, 5, 4, 3, 12) for _ in range(4)]
    for ours, want in zip(*values, strict=True):
        np.testing.assert_allclose(ours, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("made", ["functional", "called"])
def test_a_loader_is_read_once_for_the_lengths_of_its_batches(made: str) -> None:
    model, loader = MAKERS[made](), Loader()
    model.compile(zt.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    want = np.mean(losses_by_hand(model, np.ones_like))
    before = model.fit(loader, epochs=2, verbose=0).history["loss"]
    np.testing.assert_allclose(before, want, rtol=1e-4)
    read = loader.read
    np.testing.assert_allclose(model.fit(loader, verbose=0).history["loss"], want, rtol=1e-4)
    assert loader.read - read < 2 * len(LENGTHS) + (made == "called")  # it looks at two batches


def masked(y_true: Any, y_pred: Any) -> Any:
    """The mean over targets above 0: it combines all positions of a batch."""
    each = ops.sparse_categorical_crossentropy(y_true, y_pred)
    counts = ops.cast(y_true > 0, "float32")
    return ops.sum(each * counts) / ops.sum(counts)


@pytest.mark.parametrize("made", ["functional", "called"])
def test_a_loss_that_combines_steps_is_compiled_for_each_length(made: str) -> None:
    model = MAKERS[made]()
    model.compile(zt.optimizers.SGD(0.0), masked)
    loss = model.fit(Buckets(), shuffle=False, verbose=0).history["loss"][0]
    np.testing.assert_allclose(
        loss, np.mean(losses_by_hand(model, lambda y: y > 0)), rtol=1e-4)


def test_a_sequential_learns_the_length_of_rows_anew_at_each_call() -> None:
    model = zt.Sequential([L.Dense(2, kernel_initializer="ones")])
    for length in (3, 5):
        x = np.random.default_rng(length).normal(size=(2, length, 4)).astype("float32")
        np.testing.assert_allclose(
            model(x).numpy(), np.repeat(x.sum(-1, keepdims=True), 2, axis=-1), rtol=1e-4,
            atol=1e-5)
    with pytest.raises(zt.errors.ShapeError, match="another shape than declared"):
        model(np.ones((2, 3, 5), "float32"))


def test_weights_take_dtypes_of_floats() -> None:
    layer = L.Dense(1)
    weight = layer.add_weight(shape=(2,), initializer="ones", dtype="float32", name="scale")
    np.testing.assert_array_equal(weight.numpy(), np.ones(2))
    with pytest.raises(zt.errors.Unsupported, match=r"weight of dtype int32.*use dtype='float32'"):
        layer.add_weight(shape=(), dtype="int32", name="count")
