"""`zt.Variable`, and weights of layers outside of calls: in other methods, and in loops of one's
own."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch import ops
from ztorch.errors import ConfigError, ShapeError, Unsupported

X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)


class Tied(zt.Model):
    """An autoencoder whose methods share a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = zt.Variable(X[:3, :2])
        self.scale = zt.Variable(2.0, trainable=False)
        self.offsets = [zt.Variable("zeros", shape=(3,)), zt.Variable(np.ones(3), name="own")]

    def encode(self, x: Any) -> Any:
        return x @ self.matrix

    def decode(self, z: Any) -> Any:
        return z @ ops.transpose(self.matrix) * self.scale + self.offsets[0] * self.offsets[1]

    def call(self, x: Any) -> Any:
        return self.decode(self.encode(x))


def test_variables_in_attributes_are_weights() -> None:
    model = Tied()
    model.compile("cpu:scalar", optimizer=zt.optimizers.SGD(0.1), loss="mse")
    model.train_on_batch(X, X)
    assert [(w.path, w.trains) for w in model.weights] == [
        ("matrix", True), ("scale", False), ("offsets", True), ("own", True)]
    w = X[:3, :2].astype(np.float64)
    slope = 2 * (2 * X @ w @ w.T - X) / X.size  # of the loss, by the outputs
    expected = w - 0.1 * 2 * (X.T @ (slope @ w) + slope.T @ (X @ w))
    np.testing.assert_allclose(model.matrix.numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.offsets[0].numpy(), -0.1 * slope.sum(axis=0), atol=1e-6)


def test_methods_use_weights_on_numbers(tmp_path: Path) -> None:
    """With the values of training, and in copies and files."""
    model = Tied()
    model.compile("cpu:scalar", optimizer="sgd", loss="mse")
    model.fit(X, X, verbose=0)
    expected = model.predict(X, verbose=0)
    model.save(tmp_path / "tied.keras")
    again = zt.load_model(tmp_path / "tied.keras", custom_objects={"Tied": Tied})
    for each in (model, copy.deepcopy(model), again):
        np.testing.assert_allclose(each.decode(each.encode(zt.tensor(X))).numpy(), expected,
                                   rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(each.predict(X, verbose=0), expected, rtol=1e-5, atol=1e-6)


def test_weights_are_operands_of_ops() -> None:
    dense = L.Dense(2, kernel_initializer="ones")
    dense.build((None, 3))
    kernel = dense.kernel
    assert kernel.dtype == "float32" and (2.0 * kernel)[0].tolist() == [2.0, 2.0]
    assert ops.sum(kernel).item() == 6.0 and kernel[:, 0].sum().item() == 3.0
    before = kernel * 1.0
    kernel.assign_sub(np.ones((3, 2)))
    assert before.numpy().all() and not (kernel * 1.0).numpy().any()
    assert kernel in [dense.bias, kernel]  # == tells weights apart, as objects


def test_a_training_loop_of_ones_own() -> None:
    """`apply` gives the weights of `update`, and the model predicts with them."""
    model = zt.Sequential([L.Input((3,)), L.Dense(1, kernel_constraint="non_neg")])
    model.compile("cpu:scalar")
    weights = model.trainable_weights
    params = [w.tensor for w in weights]
    ours, twin = (zt.optimizers.AdamW(0.5, weight_decay=0.1) for _ in range(2))
    ours.exclude_from_weight_decay(["bias"])

    def loss(values: Any) -> Any:
        return ops.mean((model.stateless_call(values, [], zt.tensor(X))[0] + 3.0) ** 2.0)

    for _ in range(3):
        slopes = zt.grad(loss)([w.tensor for w in weights])
        ours.apply(slopes, weights)
    twin.exclude_from_weight_decay(["bias"])
    for _ in range(3):
        slopes = zt.grad(loss)(params)
        named = twin.update({"kernel": params[0], "bias": params[1]},
                            {"kernel": slopes[0], "bias": slopes[1]})
        params = [ops.maximum(named["kernel"], 0.0), named["bias"]]
    for w, value in zip(weights, params, strict=True):
        np.testing.assert_allclose(w.numpy(), value.numpy(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(model.predict(X, verbose=0), X @ params[0].numpy() +
                               params[1].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [lambda f: f, zt.compiled])
def test_one_variable_is_optimized(function: Any) -> None:
    image, sgd = zt.Variable(np.zeros((2, 2))), zt.optimizers.SGD(0.25)

    @function
    def step(goal: Any) -> Any:
        slope = zt.grad(lambda x: ops.sum((x - goal) ** 2.0))(image.tensor)
        sgd.apply_gradients([(slope, image)])
        return ops.sum(slope)

    assert [step(zt.tensor(3.0)).item() for _ in range(3)] == [-24.0, -12.0, -6.0]
    np.testing.assert_array_equal(image.numpy(), np.full((2, 2), 2.625))


def test_wrong_uses_are_named() -> None:
    dense, x = L.Dense(3), L.Input((4,))
    y, v = dense(x), zt.Variable(1.0)
    for constant in (lambda: y + dense.bias, lambda: dense.bias * y,
                     lambda: ops.matmul(y, ops.transpose(dense.kernel))):
        with pytest.raises(ConfigError, match="would be a constant of the model"):
            constant()
    model = zt.Model(x, y)
    with pytest.raises(ConfigError, match="would be a constant of the model"):
        model.compile("sgd", lambda y, p: ops.mean((y - p) ** 2) + ops.sum(dense.kernel ** 2))
    with pytest.raises(ConfigError, match="belongs to no layer"):
        L.Lambda(lambda x: x * v)(x)
    with pytest.raises(Unsupported, match="dtype int32: weights are floats"):
        zt.Variable(0, dtype="int32")
    with pytest.raises(ConfigError, match="needs a shape"):
        zt.Variable("zeros")
    sgd = zt.optimizers.SGD(0.1)
    with pytest.raises(ConfigError, match="takes the weights, too"):
        sgd.apply([zt.ones(())])
    with pytest.raises(ShapeError, match="0 gradients and 1 weights"):
        sgd.apply([], [v])
