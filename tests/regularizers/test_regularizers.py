"""Regularizers and constraints beside Keras: their values, and training steps with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.numpy_executable import compile_numpy
from tests.programs import compiled
from ztorch import layers as L
from ztorch import regularizers
from ztorch.errors import ConfigError, ShapeError, UnknownName
from ztorch.model.sequential import Sequential
from ztorch.optimizers import SGD

RANDOM = np.random.default_rng(5)
MATRIX = RANDOM.normal(size=(4, 5)).astype("f")


@pytest.mark.cheap
@pytest.mark.parametrize(("name", "how"), [
    ("OrthogonalRegularizer", {}), ("L1", {}), ("L2", {}), ("L1L2", {}), ("L2", {"l2": 0.3}), ("L1L2", {"l1": 0.1, "l2": 0.2}),
    ("OrthogonalRegularizer", {"factor": 2.0, "mode": "columns"})])
def test_penalties_are_those_of_keras(name: str, how: dict[str, Any]) -> None:
    ours = getattr(regularizers, name)(**how)
    theirs = getattr(references.keras().regularizers, name)(**how)
    expected = theirs(references.torch().tensor(MATRIX)).item()
    np.testing.assert_allclose(ours(zt.tensor(MATRIX)).item(), expected, rtol=2e-6)
    config = ours.get_config()
    assert list(config) == list(theirs.get_config())
    assert repr(regularizers.Regularizer.get({"class_name": name, "config": config})) == repr(ours)


def model_of(kind: Any) -> Any:
    """The same model of ours or of Keras."""
    K = kind.layers
    return kind.Sequential([
        K.Input((6, 6, 2)),
        K.Conv2D(4, 3, kernel_regularizer="l2", kernel_constraint=kind.constraints.MaxNorm(
            0.4, axis=(0, 1, 2)), bias_constraint="non_neg", activity_regularizer="l1"),
        K.DepthwiseConv2D(2, depthwise_regularizer=kind.regularizers.L1(0.05),
                          depthwise_constraint=kind.constraints.MinMaxNorm(0.2, 0.6, 0.7)),
        K.BatchNormalization(gamma_regularizer="l2", beta_constraint="unit_norm"),
        K.Flatten(),
        K.Dense(5, kernel_regularizer=kind.regularizers.OrthogonalRegularizer(0.1),
                bias_regularizer=kind.regularizers.L1L2(0.01, 0.1)),
        K.Reshape((5, 1)),
        K.LSTM(3, kernel_regularizer="l2", recurrent_regularizer="l1",
               recurrent_constraint=kind.constraints.UnitNorm(axis=1)),
        K.Dense(2, trainable=False, kernel_regularizer="l2"),
        K.Dense(1, activity_regularizer=kind.regularizers.L2(0.5))])


def test_twenty_steps_are_those_of_keras() -> None:
    keras = references.keras()
    ours, theirs = model_of(zt), model_of(keras)
    ours.set_weights(theirs.get_weights())
    program = compiled(ours, 8, optimizer=SGD(0.05, momentum=0.5), loss="mse")
    theirs.compile(keras.optimizers.SGD(0.05, momentum=0.5), "mse")
    x = RANDOM.normal(size=(20, 8, 6, 6, 2)).astype("f")
    y = RANDOM.normal(size=(20, 8, 1)).astype("f")
    for k in range(20):
        before = np.ravel(program.train_on_batch(x[k], y[k]))[0]
        np.testing.assert_allclose(before, np.ravel(theirs.train_on_batch(x[k], y[k]))[0],
                                   rtol=1e-4, err_msg=f"step {k}")
    for w, value, array in zip(ours.weights, program.get_weights(), theirs.get_weights(),
                               strict=True):
        np.testing.assert_allclose(value, array, rtol=1e-3, atol=2e-5, err_msg=w.path)
    np.testing.assert_allclose(np.ravel(program.evaluate(x[0], y[0], verbose=0))[0], np.ravel(
        theirs.evaluate(x[0], y[0], verbose=0))[0], rtol=1e-4)
    again = Sequential.from_json(ours.to_json())
    assert again.layers[0].rules_config() == ours.layers[0].rules_config() != {}


def test_own_functions_and_losses_of_layers() -> None:
    """A scalar counts once, a number a row as the mean of all rows, whatever their weights."""
    class Adds(L.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(zt.ops.zeros(()) + 3.0)
            self.add_loss(zt.ops.sum(x, axis=1))
            return x

    model = Sequential([L.Input((2,)), Adds(), L.Dense(
        1, kernel_initializer="ones", kernel_regularizer=lambda w: 10.0 * zt.ops.sum(w),
        kernel_constraint=lambda w: w * 0.0 + 7.0)])
    program = compile_numpy(model, 4, optimizer=SGD(0.1), loss="mse")
    x, w = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([1.0, 0.0, 3.0])
    loss = program.train_on_batch(x, x.sum(1), sample_weight=w)
    np.testing.assert_allclose(loss, 0.0 + 3.0 + (3.0 + 7.0 + 11.0) / 3 + 20.0)
    np.testing.assert_array_equal(program.get_weights()[0], [[7.0], [7.0]])
    with pytest.raises(ConfigError, match="is a function, which cannot"):
        model.to_json()


def test_wrong_regularizers() -> None:
    with pytest.raises(UnknownName, match=r"Dense\(kernel_regularizer=...\): unknown regularizer "
                                          "'l3'; did you mean 'l1' or 'l2'"):
        L.Dense(3, kernel_regularizer="l3")
    with pytest.raises(UnknownName, match=r"argument of Dense 'kernel_regulariser'; did you mean "
                                          "'kernel_regularizer'"):
        L.Dense(3, kernel_regulariser="l2")
    for wrong in ("L1(-1)", "L2('a')", "L1L2(l1=float('nan'))", "OrthogonalRegularizer(mode='x')"):
        with pytest.raises(ConfigError, match=wrong.partition("(")[0]):
            eval(f"regularizers.{wrong}")
    with pytest.raises(ShapeError, match="OrthogonalRegularizer takes a matrix"):
        regularizers.OrthogonalRegularizer()(zt.ones((3,)))
    model = Sequential([L.Input((2,)), L.Dense(1, kernel_regularizer=lambda w: w)])
    with pytest.raises(ConfigError, match="regularizer '<lambda>' returned"):
        compile_numpy(model, 4, optimizer="sgd", loss="mse")


def test_a_row_of_zeros_has_a_slope() -> None:
    penalty = regularizers.OrthogonalRegularizer()
    rows = zt.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, -1.0]])
    slope = np.asarray(zt.grad(lambda w: penalty(w))(rows))
    assert np.isfinite(slope).all() and slope[0].any()
    np.testing.assert_allclose(slope[[0, 2]], np.asarray(
        zt.grad(lambda w: penalty(w))(rows[zt.tensor([0, 2])])) / 3, rtol=1e-5)
