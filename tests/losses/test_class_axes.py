"""Losses of classes along an axis that is not the last."""

from __future__ import annotations

import numpy as np
import pytest

from tests import references
from ztorch import layers as L
from ztorch import losses
from ztorch.errors import ConfigError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.model.sequential import Sequential

random = np.random.default_rng(5)


@pytest.mark.parametrize("axis", [1, -2, 2])
def test_classes_along_any_axis_equal_keras(axis):
    keras = references.keras()
    x = random.normal(size=(2, 3, 4, 3)).astype("f4")
    labels = random.integers(0, x.shape[axis], np.delete(x.shape, axis)).astype("i4")
    targets = np.moveaxis(np.eye(x.shape[axis], dtype="f4")[labels], -1, axis)
    for name, y in (("SparseCategoricalCrossentropy", labels), ("CategoricalCrossentropy", targets)):
        for from_logits in (True, False):
            p = x if from_logits else np.exp(x) / np.exp(x).sum(axis, keepdims=True)
            want = getattr(keras.losses, name)(from_logits=from_logits, axis=axis)(y, p)
            loss = getattr(losses, name)(from_logits=from_logits, axis=axis)
            np.testing.assert_allclose(float(loss(y, p)), float(want), rtol=1e-5)


def test_channels_first_segmentation_trains():
    """The softmax of the model is over the axis of channels, so the loss takes probabilities."""
    model = Sequential([L.Input((3, 4, 5)), L.Conv2D(3, 1, data_format="channels_first"),
                           L.Softmax(axis=1)])
    x = random.normal(size=(4, 3, 4, 5)).astype("f4")
    y = random.integers(0, 3, (4, 4, 5)).astype("i4")
    model.compile("sgd", losses.SparseCategoricalCrossentropy(axis=1))
    p = model.predict(x)
    want = -np.log(np.take_along_axis(p, y[:, None], 1)).mean()
    np.testing.assert_allclose(model.evaluate(x, y), want, rtol=1e-5)
    assert model.fit(x, y, epochs=3, verbose=0).history["loss"][-1] < want
    with pytest.raises(ConfigError, match="axis=4 is not an axis of classes"):
        model.compile("sgd", losses.SparseCategoricalCrossentropy(axis=4))


def test_the_focus_on_certain_but_wrong_predictions_has_a_slope():
    """Keras clips probabilities in the logarithm only."""
    keras, torch = references.keras(), references.torch()
    y, p = np.array([[1.0, 0.0]], "f4"), np.array([[0.0, 1.0]], "f4")
    theirs = torch.tensor(p, requires_grad=True)
    keras.losses.BinaryFocalCrossentropy()(torch.tensor(y), theirs).backward()
    x, target = leaf("input", "p", p.shape, "float32"), leaf("input", "y", y.shape, "float32")
    row = losses.BinaryFocalCrossentropy().per_row(target, x)
    [slope] = evaluate(gradients(row, [x]), {x: p, target: y})
    np.testing.assert_allclose(slope, theirs.grad.numpy(), rtol=5e-3)
