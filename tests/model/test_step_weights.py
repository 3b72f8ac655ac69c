"""Weights of steps in custom steps: the third part of their data, as in Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch import ops

rng = np.random.default_rng(11)
X = rng.normal(size=(10, 3, 2)).astype("float32")
Y = rng.normal(size=(10, 3, 1)).astype("float32")
W = (rng.random((10, 3)) > 0.4).astype("float32")
RATE = 0.1


class ByHand(zt.Model):
    """The step computes the loss from its data."""

    def train_step(self, data: Any) -> Any:
        x, y, w = data
        loss = ops.sum((self(x, training=True) - y)[..., 0] ** 2 * w) / ops.sum(w)
        self.optimizer.apply(self.gradients(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


class OwnLoss(zt.Model):
    """`compute_loss` gets the weights, as in a masked language model."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None,
                     sample_weight: Any = None, training: bool = True) -> Any:
        gaps = (y_pred - y)[..., 0] ** 2
        return ops.sum(gaps * sample_weight) / ops.sum(sample_weight)


class OfCompile(zt.Model):
    """`compute_loss` of the model applies the weights to the loss of `compile`."""

    def train_step(self, data: Any) -> Any:
        x, y, w = data
        y_pred = self(x, training=True)
        loss = self.compute_loss(x, y, y_pred, w)
        self.optimizer.apply(self.gradients(loss, self.trainable_weights), self.trainable_weights)
        return {**self.compute_metrics(x, y, y_pred, w), "loss": loss}


class Batches(zt.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, k: int) -> tuple[np.ndarray, ...]:
        rows = slice(4 * k, 4 * k + 4)
        return X[rows], Y[rows], W[rows]


def trained(kernel: np.ndarray, divides: bool) -> tuple[np.ndarray, list[float]]:
    """The kernel after an epoch of batches of 4, 4 and 2 rows, and their losses."""
    losses = []
    for at in (0, 4, 8):
        x, y, w = (a[at:at + 4] for a in (X, Y, W))
        total = w.sum() if divides else w.size
        gap = (x @ kernel - y) * w[..., None]
        losses.append(float((gap**2).sum() / total))
        kernel = kernel - RATE * 2 * np.einsum("nti,nto->io", x, gap) / total
    return kernel, losses


@pytest.mark.parametrize("data", ["arrays", "batches"])
@pytest.mark.parametrize("kind", [ByHand, OwnLoss, OfCompile])
def test_custom_steps_get_a_weight_for_each_step_of_a_row(kind: Any, data: str) -> None:
    x = L.Input((3, 2))
    model = kind(x, L.Dense(1, use_bias=False)(x))
    start = model.get_weights()[0]
    model.compile(zt.optimizers.SGD(RATE), "mse" if kind is OfCompile else None)
    losses = model.fit(Batches(), shuffle=False, verbose=0) if data == "batches" else (
        model.fit(X, Y, sample_weight=W, batch_size=4, shuffle=False, verbose=0))
    kernel, expected = trained(start, kind is not OfCompile)
    np.testing.assert_allclose(model.get_weights()[0], kernel, rtol=1e-4)
    np.testing.assert_allclose(losses.history["loss"][0],
                               np.average(expected, weights=[4, 4, 2]), rtol=1e-4)


class Several(zt.Model):
    def train_step(self, data: Any) -> Any:
        return {"loss": ops.mean(self(data[0])["a"])}


def test_several_outputs_of_a_custom_step_refuse_weights_of_steps() -> None:
    x = L.Input((3, 2))
    model = Several(x, {"a": L.Dense(1)(x), "b": L.Dense(1)(x)})
    model.compile("sgd")
    with pytest.raises(zt.errors.ZtorchError, match="weight"):
        model.fit(X, {"a": Y, "b": Y}, sample_weight={"a": W, "b": W}, verbose=0)
