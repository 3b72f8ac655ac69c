"""Pieces of scripts that users of Keras bring along: targets networks, upscaling, masks, sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch import ops

rng = np.random.default_rng(5)


def doubled(x: Any, by: float = 2.0) -> Any:
    return by * x


def test_a_clone_shares_the_functions_of_its_layers() -> None:
    model = zt.Sequential([L.Input((3,)), L.Lambda(doubled, arguments={"by": 3.0}),
                           L.Dense(2, activation=lambda x: x * x)])
    clone = zt.models.clone_model(model)
    clone.set_weights(model.get_weights())
    x = rng.normal(size=(4, 3)).astype("float32")
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(clone.predict(x), (3 * x @ kernel + bias) ** 2, rtol=1e-5)
    assert clone.layers[0].function is doubled
    clone.layers[1].kernel.assign(np.zeros((3, 2)))
    assert np.any(model.get_weights()[0])


class Averaged(zt.Model):
    """A network and the average of its weights, both of the same name."""

    def __init__(self) -> None:
        super().__init__()
        self.network = zt.Sequential([L.Input((3,)), L.Dense(1)], name="net")
        self.average = zt.models.clone_model(self.network)

    def train_step(self, data: Any) -> Any:
        x, y = data
        loss = self.loss(y, self.network(x, training=True))
        weights = self.network.trainable_weights
        self.optimizer.apply(self.gradients(loss, weights), weights)
        for w, mean in zip(self.network.weights, self.average.weights, strict=True):
            mean.assign(0.9 * mean + 0.1 * w)
        return {"loss": loss}


def test_two_networks_of_one_name_are_parts_of_a_class() -> None:
    model = Averaged()
    assert (model.network.name, model.average.name) == ("net", "net")
    start, mean = model.network.get_weights(), model.average.get_weights()[0]
    model.compile(optimizer=zt.optimizers.SGD(0.1), loss=zt.losses.MeanSquaredError())
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 1))
    loss = model.fit(x, y, batch_size=8, verbose=0).history["loss"][0]
    gap = x @ start[0] + start[1] - y
    np.testing.assert_allclose(loss, np.mean(gap**2), rtol=1e-5)
    kernel = start[0] - 0.1 * 2 * x.T @ gap / 8
    np.testing.assert_allclose(model.network.get_weights()[0], kernel, rtol=1e-4)
    np.testing.assert_allclose(model.average.get_weights()[0], 0.9 * mean + 0.1 * kernel,
                               rtol=1e-4)
    assert {"net/dense/kernel", "average/dense/kernel"} <= {w.path for w in model.weights}


def test_the_loss_of_compile_is_an_attribute_that_a_model_may_hide() -> None:
    model = zt.Sequential([L.Input((3,)), L.Dense(1)])
    with pytest.raises(AttributeError, match="loss"):
        _ = model.loss
    model.compile("adam", "mse")
    assert model.loss == "mse"
    model.loss = "mine"
    assert model.loss == "mine"


@pytest.mark.parametrize("dtype", ["int8", "int32", "bool", "float32"])
@pytest.mark.parametrize("kind", [np.asarray, zt.tensor])
def test_masks_of_numbers_hide_positions_of_symbolic_attention(kind: Any, dtype: str) -> None:
    x = L.Input((3, 4))
    layer = L.MultiHeadAttention(1, 4)
    mask = kind((1 - np.eye(3))[None].astype(dtype))
    model = zt.Model(x, layer(x, x, attention_mask=mask))
    rows = rng.normal(size=(2, 3, 4)).astype("float32")
    expected = layer(zt.tensor(rows), zt.tensor(rows), attention_mask=zt.tensor(1 - np.eye(3)) > 0)
    np.testing.assert_allclose(model.predict(rows), expected.numpy(), atol=1e-5)


def test_sizes_that_ops_computed_are_numbers() -> None:
    class Sized(L.Layer, abstract=True):
        def call(self, x: Any) -> Any:  # type: ignore[override]
            rows, columns = (ops.cast(n, "int64") for n in ops.shape(x))
            lengths = columns * ops.ones((rows, 1), dtype="int32")
            return x / columns + ops.cast(lengths, "float32") + ops.zeros((rows, columns))

    x = rng.normal(size=(2, 4)).astype("float32")
    inputs = L.Input((4,))
    np.testing.assert_allclose(zt.Model(inputs, Sized()(inputs)).predict(x), x / 4 + 4, rtol=1e-6)


def test_parts_without_weights_need_no_shape_before_their_call() -> None:
    class Scaled(zt.Model):
        def __init__(self) -> None:
            super().__init__()
            self.scale = zt.Sequential([L.Rescaling(0.5)])
            self.head = zt.Sequential([L.Flatten(), L.Dense(1, kernel_initializer="ones")])

        def train_step(self, data: Any) -> Any:
            x, y = data
            loss = ops.mean((self.head(x) - y) ** 2)
            weights = self.head.trainable_weights
            self.optimizer.apply(self.gradients(loss, weights), weights)
            return {"loss": loss}

        def test_step(self, data: Any) -> Any:
            x, y = data
            return {"loss": ops.mean(self.head(self.scale(x)) - y)}

    model = Scaled()
    model.compile(zt.optimizers.SGD(0.0))
    x, y = rng.normal(size=(8, 2, 2)), rng.normal(size=(8, 1))
    loss = model.fit(x, y, batch_size=8, verbose=0).history["loss"][0]
    np.testing.assert_allclose(loss, np.mean((x.reshape(8, 4).sum(1, keepdims=True) - y) ** 2),
                               rtol=1e-5)
    np.testing.assert_allclose(model.evaluate(x, y, verbose=0),
                               np.mean(x.reshape(8, 4).sum(1, keepdims=True) / 2 - y), rtol=1e-4)


class Both(zt.Model):
    """A step over two data sets at once: `fit` gets pairs of (rows, labels)."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = L.Dense(1, use_bias=False, kernel_initializer="ones")

    def train_step(self, data: Any) -> Any:
        (a, _), (b, labels) = data
        loss = ops.mean(self.dense(a)) + ops.mean(self.dense(b)) + ops.mean(labels)
        weights = self.dense.trainable_weights
        self.optimizer.apply(self.gradients(loss, weights), weights)
        return {"loss": loss}


def test_a_step_gets_pairs_of_pairs() -> None:
    a, b = rng.normal(size=(2, 8, 3)).astype("float32")
    labels = rng.normal(size=(2, 8)).astype("float32")
    model = Both()
    model.compile("sgd")
    loss = model.fit([((a, labels[0]), (b, labels[1]))], verbose=0).history["loss"][0]
    np.testing.assert_allclose(
        loss, a.sum(-1).mean() + b.sum(-1).mean() + labels[1].mean(), rtol=1e-4)


class Wrapped(zt.Model):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.network = zt.Sequential([L.Input((3,)), L.Dense(1)], name="net")

    def call(self, x: Any) -> Any:  # type: ignore[override]
        return self.network(x)


def test_a_class_around_a_network_is_saved_with_the_shape_of_its_rows(tmp_path: Path) -> None:
    model, x = Wrapped(), rng.normal(size=(4, 3)).astype("float32")
    kernel, bias = (np.full(shape, 0.5) for shape in ((3, 1), (1,)))
    model(x)
    model.set_weights([kernel, bias])
    model.save(tmp_path / "wrapped.keras")
    again = zt.models.load_model(tmp_path / "wrapped.keras", custom_objects={"Wrapped": Wrapped})
    np.testing.assert_allclose(again.predict(x), x @ kernel + bias, rtol=1e-5)
    assert again.input_shape == (None, 3)
