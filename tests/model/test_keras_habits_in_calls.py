"""Habits of Keras' users within calls: comparisons by element, layers that are built by hand, and masks
of integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch.errors import ConfigError

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(6, 4, 8)).astype(np.float32)
IDS = RANDOM.integers(0, 3, size=(6, 4)).astype(np.int32)  # 0 is padding


def models(kind: Any) -> Any:
    """A block with all these habits, and a loss over real steps."""
    L, ops = kind.layers, kind.ops

    class Block(L.Layer):
        def __init__(self, **common: Any):
            super().__init__(**common)
            self.attention, self.dense = L.MultiHeadAttention(2, 4), L.Dense(3)

        def build(self, input_shape: Any) -> None:
            self.attention.build(input_shape, input_shape)
            self.dense.build(input_shape)
            self.shift = L.Dense(3, use_bias=False)
            self.shift.build(input_shape)
            self.built = True

        def call(self, x: Any, training: Any = None) -> Any:
            mask = ops.cast(ops.tril(ops.ones((4, 4))), "int32")[None]
            return self.dense(x + self.attention(x, x, attention_mask=mask)) + self.shift(x)

    @kind.saving.register_keras_serializable("habits")
    def masked(y_true: Any, y_pred: Any) -> Any:
        losses = kind.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
        real = ops.cast(y_true != 0, "float32")
        return ops.sum(losses * real, axis=-1) / (ops.sum(real, axis=-1) + 1.0)

    block = Block()
    block.build((None, 4, 8))
    inputs = kind.layers.Input((4, 8))
    return kind.Model(inputs, block(inputs)), masked, Block


def test_calls_are_those_of_keras() -> None:
    results = []
    for kind in (references.keras(), zt):
        model, masked, _ = models(kind)
        assert len(model.weights) == 11
        model.set_weights(results[0][0] if results else model.get_weights())
        weights = [np.array(w) for w in model.get_weights()]
        model.compile(optimizer=kind.optimizers.SGD(0.1), loss=masked)
        history = model.fit(X, IDS, batch_size=3, shuffle=False, verbose=0).history["loss"]
        results.append((weights, history, np.asarray(model.predict(X, verbose=0))))
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-5)
    np.testing.assert_allclose(results[1][2], results[0][2], rtol=1e-4, atol=1e-5)


def test_a_file_names_a_function(tmp_path: Path) -> None:
    """Keras and ztorch find the loss again, also after a predict."""
    model = zt.Sequential([zt.layers.Input((4, 8)), zt.layers.Dense(3)])
    _, masked, _ = models(zt)
    model.compile(optimizer="sgd", loss=masked)
    model.fit(X, IDS, verbose=0)
    model.save(tmp_path / "m.keras")
    again = zt.load_model(tmp_path / "m.keras")
    again.predict(X)
    np.testing.assert_allclose(again.evaluate(X, IDS, verbose=0),
                               model.evaluate(X, IDS, verbose=0))
    keras = references.keras()
    models(keras)
    theirs = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(theirs.evaluate(X, IDS, verbose=0),
                               model.evaluate(X, IDS, verbose=0), rtol=1e-5)


def test_layers_are_built_by_hand() -> None:
    for kind in (references.keras(), zt):
        L = kind.layers
        for layer, shape, count in (
                (L.Conv2D(3, 3), (None, None, None, 2), 2), (L.Bidirectional(L.GRU(2)), (None, 4, 2), 6),
                (L.TimeDistributed(L.Dense(2)), (None, 4, 3), 2), (L.Embedding(7, 3), (None,), 1)):
            layer.build(shape)
            assert len(layer.weights) == count and layer.built
        late, x = kind.Sequential([L.Dense(2)]), L.Input((3,))
        assert [m.built for m in (late, kind.Sequential([x, L.Dense(2)]), kind.Model(x, L.Dense(2)(x)))] == [
            False, True, True]
        late.build((None, 3))
        assert late.built
    with pytest.raises(ConfigError, match="calls is an attribute of all layers"):
        class Counts(zt.layers.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.calls = 0

            def call(self, x: Any) -> Any:
                return x

        Counts()


def test_statistics_of_rows_normalize_their_sequences() -> None:
    results = []
    for kind in (references.keras(), zt):
        layer = kind.layers.Normalization()
        layer.adapt(X[:, 0])
        results.append(np.asarray(kind.ops.convert_to_numpy(layer(X))))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_a_step_trains_layers_that_it_calls_on_numbers() -> None:
    """Such as a generator on noise: its weights are no constants there."""
    class Step(zt.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = zt.layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, data: Any) -> Any:
            loss = zt.ops.mean(self.dense(zt.ops.ones((3, 8)))) + 0.0 * zt.ops.mean(data)
            self.optimizer.apply(self.gradients(loss), self.trainable_weights)
            return {"loss": loss}

    model = Step()
    model.build((None, 8))
    before = model.get_weights()[0]
    model.compile(optimizer=zt.optimizers.SGD(1.0))
    model.fit(X[:, 0], batch_size=6, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], before - 0.5, rtol=1e-6)
