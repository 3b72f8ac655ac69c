"""Metrics written as in Keras: variables, `update_state` and `result`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.programs import classifier, flowers, regressor
from ztorch import metrics
from ztorch.errors import ConfigError, ShapeError, Unsupported, ZtorchError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.metrics.variables import MetricVariable

X, Y = flowers(21)
WEIGHTS = np.linspace(0, 2, 21).astype("f")


def pearson(kind: Any, ops: Any) -> Any:
    """The squared correlation of all elements, from sums; the same class of ours and of Keras."""
    class Correlation(kind.metrics.Metric):
        def __init__(self, name: str = "correlation", **more: Any):
            super().__init__(name=name, **more)
            self.sums = self.add_weight(name="sums", shape=(5,), initializer="zeros")
            self.count = self.add_variable(shape=(), initializer="zeros", name="count")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            p, y = ops.reshape(y_pred, (-1,)), ops.cast(ops.reshape(y_true, (-1,)), "float32")
            w = ops.ones_like(p) if sample_weight is None else ops.reshape(sample_weight, (-1,))
            self.sums.assign_add(ops.stack([ops.sum(w * part) for part in (
                p, y, p * p, y * y, p * y)]))
            self.count.assign_add(ops.sum(w))

        def result(self) -> Any:
            p, y, pp, yy, py = [self.sums[k] / self.count for k in range(5)]
            return (py - p * y) ** 2 / ((pp - p * p) * (yy - y * y))

    return Correlation()


def test_an_epoch_equals_keras_over_all_rows() -> None:
    """With a last batch that is not full, and weights of rows."""
    keras = references.keras()
    program = regressor(batch_size=8, metrics=[metrics.WeightedMetric(pearson(zt, zt.ops))])
    x, y = X[:, :2], X[:, 2]
    for weights in (None, WEIGHTS):
        theirs = pearson(keras, keras.ops)
        theirs.update_state(y, program.predict(x), sample_weight=weights)
        ours = program.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
        np.testing.assert_allclose(ours["correlation"], float(theirs.result()), rtol=1e-4)
    history = program.fit(x, y, epochs=2, verbose=0, validation_data=(x, y))
    assert len(history.history["val_correlation"]) == 2
    np.testing.assert_allclose(history.history["val_correlation"][-1], program.evaluate(
        x, y, verbose=0, return_dict=True)["correlation"])


def test_it_is_called_on_tensors_too() -> None:
    metric = pearson(zt, zt.ops)
    y = np.random.default_rng(0).normal(size=(12,)).astype("f")
    p = y + np.random.default_rng(1).normal(size=(12,)).astype("f")
    for part in (slice(5), slice(5, 12)):
        metric.update_state(zt.tensor(y[part]), zt.tensor(p[part]))
    np.testing.assert_allclose(metric.result().item(), np.corrcoef(y, p)[0, 1] ** 2, rtol=1e-4)
    metric.reset_state()
    assert metric.count.tensor == 0.0


class Base(metrics.Metric):
    def __init__(self) -> None:
        super().__init__("mine")
        self.total = self.add_weight("total")

    def result(self) -> Any:
        return self.total + 0.0


class Largest(Base):
    """The mean over rows of the largest prediction, which no weight changes."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = self.add_weight("rows")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(zt.ops.sum(zt.ops.max(y_pred, axis=-1)))
        self.rows.assign_add(y_pred.shape[0])

    def result(self) -> Any:
        return self.total / self.rows


def test_one_that_ignores_weights_counts_each_row_once() -> None:
    """21 rows in batches of 8: padding of the last one is not a row."""
    program = classifier(metrics=[Largest()])
    scores = program.evaluate(X, Y, sample_weight=WEIGHTS, verbose=0, return_dict=True)
    np.testing.assert_allclose(scores["mine"], program.predict(X).max(-1).mean(), rtol=1e-5)


def of_batches(kind: Any, ops: Any) -> list[Any]:
    """Metrics that ignore weights: the mean of the largest errors of batches, and one that adds an
    F score to a mean; the same classes of ours and of Keras."""

    class Worst(kind.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="worst")
            self.total = self.add_weight(name="total", initializer="zeros")
            self.batches = self.add_weight(name="batches", initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.total.assign_add(ops.max(ops.abs(y_true - y_pred)))
            self.batches.assign_add(1.0)

        def result(self) -> Any:
            return self.total / self.batches

    class Composed(kind.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="composed")
            self.precision = kind.metrics.Precision(thresholds=0.0)
            self.recall = kind.metrics.Recall(thresholds=0.0)
            self.size = kind.metrics.Mean()

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            positive = ops.cast(y_true > 0.0, "float32")
            self.precision.update_state(positive, y_pred, sample_weight)
            self.recall.update_state(positive, y_pred)
            self.size.update_state(ops.abs(y_pred))

        def result(self) -> Any:
            p, r = self.precision.result(), self.recall.result()
            return 2.0 * p * r / (p + r) + self.size.result()

    return [Worst(), Composed()]


def test_metrics_of_whole_batches_and_of_other_metrics_are_those_of_keras() -> None:
    """21 rows in batches of 8: the last one has 5."""
    keras = references.keras()
    x, y = X[:, :2], X[:, 2:3]
    inputs = zt.Input((2,))
    ours = zt.Model(inputs, zt.layers.Dense(1)(inputs))
    theirs = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    theirs.set_weights(ours.get_weights())
    ours.compile(zt.optimizers.SGD(0.01), "mse", metrics=of_batches(zt, zt.ops))
    theirs.compile(keras.optimizers.SGD(0.01), "mse", metrics=of_batches(keras, keras.ops))
    for model in (ours, theirs):
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    mine, other = (model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
                   for model in (ours, theirs))
    assert set(mine) == {"loss", "worst", "composed"}
    for name, value in mine.items():
        np.testing.assert_allclose(value, other[name], rtol=1e-4)
    metric, reference = of_batches(zt, zt.ops)[1], of_batches(keras, keras.ops)[1]
    for each in (metric, reference):
        each.update_state(np.ones_like(y), -y)
        each.reset_state()
        each.update_state(y, y + 0.5)
    np.testing.assert_allclose(float(metric.result()), float(reference.result()), rtol=1e-5)


@pytest.mark.parametrize(("update", "error", "message"), [
    (lambda m, y, p, w: m.total.assign(zt.ops.sum(w)), Unsupported,
     r"assigns to its variable 'total'.*self\.total\.assign_add"),
    (lambda m, y, p, w: m.total.assign_add(m.total * zt.ops.sum(w)), Unsupported,
     "reads its variable 'total' in update_state"),
    (lambda m, y, p, w: m.total.assign_add(w), ShapeError, r"adds to its variable 'total':.*ops\.sum"),
])
def test_what_a_program_cannot_add_up(update: Any, error: type[ZtorchError], message: str) -> None:
    class Mine(Base):
        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            update(self, y_true, y_pred, sample_weight)

    with pytest.raises(error, match=message):
        classifier(metrics=[Mine()])


def test_wrong_variables() -> None:
    with pytest.raises(Unsupported, match=r"variables start at zero.*not at 'ones'"):
        Base().add_weight("more", initializer="ones")
    with pytest.raises(ConfigError, match="two variables named 'total'"):
        Base().add_weight("total")

    class Empty(metrics.Metric):
        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            pass

    with pytest.raises(ConfigError, match="metric 'Empty' has update_state but no variables"):
        classifier(metrics=[Empty()])


def test_assigning_a_total_plus_a_batch_adds_the_batch() -> None:
    """As Keras' metrics do; another op on a total is refused."""
    variable = MetricVariable("mine", "total", ())
    variable.total, variable.updating = leaf("state", "total", (), "float32"), True
    batch = leaf("input", "batch", (), "float32")
    variable.assign(variable + batch)
    variable.assign(zt.ops.add(batch, variable))
    [total] = evaluate([variable.total], {leaf_: np.float32(number) for leaf_, number in (
        (batch, 2.0), (next(v for v in Graph({"y": variable.total}).leaves("state")), 1.0))})
    assert total == 5.0
    for refused in (lambda: zt.ops.multiply(variable, batch), lambda: zt.ops.abs(variable)):
        with pytest.raises(Unsupported, match="reads its variable 'total' in update_state"):
            refused()
