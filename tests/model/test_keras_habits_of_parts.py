"""Parts of models as users of Keras write them: the same numbers as Keras."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L

RNG = np.random.default_rng(0)
X = RNG.random((50, 3)).astype(np.float32)
Y = (RNG.random((50, 1)) > 0.5).astype(np.float32)


def positives(keras):
    """The metric of Keras' guide, in its spelling."""
    class Positives(keras.metrics.Metric):
        def __init__(self, name="positives", **kwargs):
            super().__init__(name=name, **kwargs)
            self.count = self.add_weight(name="count", initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            values = keras.ops.logical_and(keras.ops.equal(keras.ops.cast(y_true, "bool"), True),
                                           keras.ops.greater(y_pred, 0.5))
            values = keras.ops.cast(values, self.dtype)
            if sample_weight is not None:
                values = values * keras.ops.cast(sample_weight, self.dtype)
            self.count.assign(self.count + keras.ops.sum(values))

        def result(self):
            return self.count

        def reset_state(self):
            self.count.assign(0)

    return Positives()


def scores(keras):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.layers[0].kernel.assign(np.full((3, 1), 0.3))  # weights are there at once
    model.compile("sgd", "mse", metrics=[positives(keras), keras.metrics.AUC(name="auc"),
                                         keras.metrics.AUC(curve="PR", name="pr")])
    history = model.fit(X, Y, epochs=2, shuffle=False, verbose=0).history
    alone = positives(keras)
    alone.update_state(Y[:5], np.full((5, 1), 0.7, np.float32))
    return {**history, "alone": float(alone.result())}


def test_a_metric_that_assigns_to_itself_and_weights_of_layers_before_compile():
    ours, theirs = scores(zt), scores(references.keras())
    assert {*ours} == {*theirs}
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-5)


def test_metrics_without_names_are_numbered():
    model = zt.Sequential([L.Input((3,)), L.Dense(1, activation="sigmoid")])
    model.compile("sgd", "mse", metrics=[zt.metrics.AUC(), zt.metrics.AUC(curve="PR"), "mae"])
    assert model.metrics_names == ["loss", "auc", "auc_1", "mae"]
    with pytest.raises(zt.errors.ConfigError, match="two metrics are named 'a'"):
        model.compile("sgd", "mse", metrics=[zt.metrics.AUC(name="a"), zt.metrics.AUC(name="a")])


@pytest.mark.parametrize("loss", ["Dice", "Tversky"])
@pytest.mark.parametrize("axis", [None, (1, 2), (0, 1)])
def test_regions_of_rows_and_of_batches(loss, axis):
    y, p = (RNG.random((5, 4, 3)) > 0.5).astype("float32"), RNG.random((5, 4, 3)).astype("float32")

    def losses(keras):
        model = keras.Sequential([keras.Input((4, 3)), keras.layers.Dense(3, "sigmoid")])
        model.set_weights([np.eye(3), np.zeros(3)])
        model.compile("sgd", getattr(keras.losses, loss)(axis=axis))
        return [np.asarray(getattr(keras.losses, loss)(axis=axis)(y, p)),
                *model.fit(p, y, batch_size=2, shuffle=False, verbose=0).history["loss"]]

    np.testing.assert_allclose(losses(zt), losses(references.keras()), rtol=1e-5)


def test_labels_of_any_number_for_ctc():
    labels, steps = RNG.integers(1, 6, (4, 3)), RNG.random((4, 10, 3)).astype(np.float32)

    def losses(keras):
        model = keras.Sequential([keras.Input((10, 3)), keras.layers.Dense(6)])
        model.set_weights([np.arange(18).reshape(3, 6) % 5 / 5, np.zeros(6)])
        model.compile("sgd", keras.losses.CTC())
        return model.fit(steps, labels, epochs=2, verbose=0, shuffle=False).history["loss"]

    np.testing.assert_allclose(losses(zt), losses(references.keras()), rtol=1e-5)


def test_custom_steps_scale_the_loss():
    class Own(zt.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return super().compute_loss(x, y, y_pred, sample_weight)

    def losses(model, optimizer, **more):
        x = L.Input((3,))
        made = model(x, L.Dense(1, kernel_initializer="ones")(x))
        made.compile(optimizer, "mse", **more)
        history = made.fit(X, Y, epochs=2, shuffle=False, verbose=0).history["loss"]
        return history, made.program.executable

    sgd = zt.optimizers.SGD
    want, _ = losses(zt.Model, sgd(0.1))
    for optimizer in (sgd(0.1, loss_scale_factor=64.0), zt.optimizers.LossScaleOptimizer(sgd(0.1))):
        np.testing.assert_allclose(losses(Own, optimizer)[0], want, rtol=1e-5)
    got, executable = losses(Own, sgd(0.1), dtype="mixed_float16")
    np.testing.assert_allclose(got, want, rtol=5e-3)
    assert executable.state("optimizer/calm_steps") == 4


def test_a_layer_that_is_frozen_after_compile_is_warned_of() -> None:
    x = np.ones((4, 3), np.float32)
    model = zt.Sequential([L.Input((3,)), L.Dense(2, name="first"), L.Dense(1, name="last")])
    model.compile(optimizer="sgd", loss="mse")
    model.get_layer("first").trainable = False
    with pytest.warns(UserWarning, match=r"without effect on 'first', which still trains; compile it again"):
        model.fit(x, x[:, :1] + 9.0, verbose=0)
    model.compile(optimizer="sgd", loss="mse")
    before = model.get_weights()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(x, x[:, :1] + 9.0, verbose=0)
    changed = [not np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True)]
    assert changed == [False, False, True, True]
    model.get_layer("first").trainable = True
    with pytest.warns(UserWarning, match="without effect on 'first', which does not train;"):
        model.train_on_batch(x, x[:, :1])
