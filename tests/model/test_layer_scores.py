"""Losses that layers add, and metrics that their calls update."""

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch import ops
from ztorch.errors import ConfigError

rng = np.random.default_rng(3)


@pytest.mark.parametrize("loss", [None, "mse"])
def test_losses_and_metrics_of_layers_are_those_of_keras(loss):
    def results(room, layers, ops, device):
        class Largest(room.metrics.Metric):
            def __init__(self, name="largest"):
                super().__init__(name=name)
                self.total = self.add_weight(name="total", initializer="zeros")
                self.count = self.add_weight(name="count", initializer="zeros")

            def update_state(self, x, sample_weight=None):
                self.total.assign_add(ops.sum(ops.max(x, axis=-1)))
                self.count.assign_add(ops.cast(ops.shape(x)[0], "float32"))

            def result(self):
                return self.total / self.count

        class Watched(layers.Layer):
            def __init__(self):
                super().__init__()
                self.size, self.largest = room.metrics.Mean(name="size"), Largest()

            def call(self, x):
                self.add_loss(0.1 * ops.mean(ops.square(x)))
                self.size.update_state(ops.mean(ops.abs(x)))
                self.largest.update_state(x)
                return x

        class Absolute(room.metrics.Mean):
            def update_state(self, y_true, y_pred, sample_weight=None):
                return super().update_state(ops.abs(y_true - y_pred), sample_weight)

        tensor = layers.Input((4,))
        model = room.Model(tensor, layers.Dense(2)(Watched()(layers.Dense(3)(tensor))))
        model.set_weights(weights)
        model.compile(*device, optimizer="sgd", loss=loss,
                      metrics=[Absolute(name="absolute")] if loss else [])
        shape = model.predict(x, verbose=0).shape
        history = model.fit(x, *([y] if loss else []), batch_size=8, epochs=2, verbose=0,
                            shuffle=False).history
        return shape, history, model.evaluate(x, *([y] if loss else []), batch_size=8, verbose=0,
                                              return_dict=True)

    x, y = rng.normal(size=(21, 4)).astype("f"), rng.normal(size=(21, 2)).astype("f")
    weights = [rng.normal(size=shape).astype("f") for shape in ((4, 3), (3,), (3, 2), (2,))]
    keras = references.keras()
    shape, *ours = results(zt, L, ops, ("cpu:scalar",))
    other_shape, *theirs = results(keras, keras.layers, keras.ops, ())
    assert shape == other_shape
    for mine, other in zip(ours, theirs, strict=True):
        assert set(mine) == set(other) == {"loss", "size", "largest", *(["absolute"] if loss else [])}
        for name in other:  # the last batch has fewer rows
            np.testing.assert_allclose(mine[name], other[name], rtol=1e-4, err_msg=name)


def test_losses_that_depend_on_no_data_are_refused():
    model = zt.Sequential([L.Input((3,)), L.Dense(1, kernel_regularizer="l2")])
    with pytest.raises(ConfigError, match="an optimizer but no loss"):
        model.compile("cpu", optimizer="sgd")

    class Decayed(L.Layer):
        def build(self, input_shape):
            self.scale = self.add_weight(shape=())

        def call(self, x):
            self.add_loss(self.scale ** 2)
            return x * self.scale

    model = zt.Sequential([L.Input((3,)), Decayed()])
    model.compile("cpu", optimizer="sgd")
    with pytest.raises(ConfigError, match="depends only on weights, not on data"):
        model.fit(np.ones((4, 3)), verbose=0)
