"""Metrics a row, and how "accuracy" finds out which it is."""

from __future__ import annotations

import numpy as np
import pytest

from tests import references
from ztorch import losses, metrics
from ztorch.dtypes import f32, i32
from ztorch.errors import ConfigError, ShapeError, UnknownName
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant, leaf
from ztorch.losses import TargetSpec
from ztorch.metrics.variables import adding

PREDICTED = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.4, 0.35, 0.25]])
LABELS = np.array([1, 2, 2, 1], np.int32)
SPARSE = TargetSpec((4,), i32, 3)
ONE_HOT = TargetSpec((4, 3), f32)


def measured(metric, y_true, y_pred, target=SPARSE):
    y = leaf("input", "y", y_true.shape, "int32" if y_true.dtype.kind == "i" else "float32")
    p = leaf("input", "p", y_pred.shape, "float32")
    row = metrics.get(metric, target, y_pred.shape).per_row(y, p)
    assert row.shape == y_pred.shape[:1] and row.dtype == f32
    return evaluate([row], {y: y_true, p: y_pred})[0]


def test_sparse_and_categorical_accuracy():
    np.testing.assert_array_equal(measured("accuracy", LABELS, PREDICTED), [1, 0, 1, 0])
    one_hot = np.eye(3)[LABELS]
    np.testing.assert_array_equal(measured("accuracy", one_hot, PREDICTED, ONE_HOT), [1, 0, 1, 0])
    np.testing.assert_array_equal(measured("categorical_accuracy", one_hot, PREDICTED, ONE_HOT),
                                  [1, 0, 1, 0])


def test_binary_accuracy():
    y, p = np.array([[1.0], [0.0], [1.0]]), np.array([[0.9], [0.6], [0.5]])
    target = TargetSpec((3, 1), f32)
    np.testing.assert_array_equal(measured("accuracy", y, p, target), [1, 0, 0])
    np.testing.assert_array_equal(
        measured(metrics.BinaryAccuracy(threshold=0.4), y, p, target), [1, 0, 1])


@pytest.mark.parametrize("k, expected", [(1, [1, 0, 1, 0]), (2, [1, 0, 1, 1]), (3, [1, 1, 1, 1])])
def test_top_k(k, expected):
    for y, target in ((LABELS, SPARSE), (np.eye(3)[LABELS], ONE_HOT)):
        metric = metrics.SparseTopKCategoricalAccuracy(k=k)
        np.testing.assert_array_equal(measured(metric, y, PREDICTED, target), expected)


def test_precision_of_the_largest_of_each_row():
    y_true = np.array([[0, 1, 0], [1, 0, 1]], np.float32)
    y_pred = np.array([[0.6, 0.9, 0.8], [0.2, 0.7, 0.9]], np.float32)
    for k, right in ((1, 2 / 2), (2, 2 / 4), (3, 3 / 6)):
        assert float(metrics.Precision(top_k=k)(y_true, y_pred)) == pytest.approx(right)
    with pytest.raises(ConfigError, match=r"top_k=4 is too large .*\(3,\)"):
        metrics.Precision(top_k=4)(y_true, y_pred)


@pytest.mark.parametrize("curve, thresholds, expected", [
    ("PR", 3, 0.63257194), ("PR", 5, 0.80078650), ("ROC", 3, 2 / 3), ("ROC", 5, 7 / 9)])  # Keras'
def test_areas_under_curves(curve, thresholds, expected):
    y_true = np.array([[0], [0], [1], [1], [0], [1]], np.float32)
    y_pred = np.array([[0.1], [0.5], [0.3], [0.9], [0.6], [0.7]], np.float32)
    area = metrics.AUC(num_thresholds=thresholds, curve=curve)(y_true, y_pred)
    assert float(area) == pytest.approx(expected, rel=1e-6)


def test_nan_is_not_among_the_best():
    y_pred = np.where([[0], [1], [0], [0]], np.nan, PREDICTED)
    y_pred[2, 1] = np.nan  # beside the label
    metric = metrics.SparseTopKCategoricalAccuracy(k=2)
    np.testing.assert_array_equal(measured(metric, LABELS, y_pred), [1, 0, 1, 1])
    np.testing.assert_array_equal(measured(metrics.TopKCategoricalAccuracy(k=1), np.eye(3)[LABELS],
                                           y_pred, ONE_HOT), [1, 0, 0, 0])


def test_the_best_classes_as_sorted_numbers():
    best = np.array([[1, 0], [1, 2], [0, 1], [5, 1]])
    for k, right in ((1, 1 / 4), (2, 3 / 4)):
        metric = metrics.SparseTopKCategoricalAccuracy(k=k, from_sorted_ids=True)
        theirs = references.keras().metrics.SparseTopKCategoricalAccuracy(k, from_sorted_ids=True)
        assert float(metric(LABELS, best)) == float(theirs(LABELS, best)) == right
    with pytest.raises(ConfigError, match=r"k=3 is too large for predictions of shape \(2,\)"):
        metrics.SparseTopKCategoricalAccuracy(k=3, from_sorted_ids=True)(LABELS, best)


def test_positions_beyond_rows_are_averaged():
    y = np.array([[1, 2], [2, 1]], np.int32)
    row = measured("accuracy", y, PREDICTED.reshape(2, 2, 3), TargetSpec((2, 2), i32, 3))
    np.testing.assert_array_equal(row, [0.5, 0.5])


def test_losses_are_metrics():
    y = PREDICTED + 2
    for spec in ("mse", losses.MeanSquaredError()):
        np.testing.assert_allclose(measured(spec, y, PREDICTED, ONE_HOT), [4] * 4, rtol=1e-6)


def test_a_function_is_a_metric():
    def bias(y_true, y_pred):
        return y_pred - y_true

    assert metrics.get(bias, ONE_HOT, (4, 3)).name == "bias"
    np.testing.assert_allclose(measured(bias, PREDICTED - 1, PREDICTED, ONE_HOT), [1] * 4, 1e-6)


@pytest.mark.parametrize("target, prediction, kind", [
    (SPARSE, (4, 3), metrics.SparseCategoricalAccuracy),
    (ONE_HOT, (4, 3), metrics.CategoricalAccuracy),
    (TargetSpec((4, 1), f32), (4, 1), metrics.BinaryAccuracy),
    (TargetSpec((4, 7), i32, 3), (4, 7, 3), metrics.SparseCategoricalAccuracy)])
def test_accuracy_is_resolved_by_shapes_as_in_keras(target, prediction, kind):
    metric = metrics.get("acc", target, prediction)
    assert type(metric) is kind and metric.name == "acc"


def test_names():
    actual = metrics.resolve(["accuracy", "mae", metrics.BinaryAccuracy(name="sharp")],
                             ONE_HOT, (4, 3))
    assert [m.name for m in actual] == ["accuracy", "mae", "sharp"]
    with pytest.raises(ConfigError, match="two metrics are named 'mse'"):
        metrics.resolve(["mse", "mse"], ONE_HOT, (4, 3))
    with pytest.raises(UnknownName, match="did you mean 'accuracy'"):
        metrics.get("acuracy", SPARSE, (4, 3))
    with pytest.raises(ConfigError, match="not a valid metric"):
        metrics.get(3, SPARSE, (4, 3))


def test_shapes_that_cannot_be_compared():
    y, p = leaf("input", "y", (4,), "int32"), leaf("input", "p", (4, 3), "float32")
    with pytest.raises(ShapeError, match=r"'binary_accuracy' compares.*\(4,\) and \(4, 3\)"):
        metrics.BinaryAccuracy()(y, p)
    with pytest.raises(ShapeError, match="one label for each"):
        metrics.SparseCategoricalAccuracy()(OPS.reshape(p, (12,)), p)


def test_agrees_with_keras():
    keras = references.keras()
    p = np.random.default_rng(0).random((50, 7)).astype(np.float32)
    y = np.random.default_rng(1).integers(0, 7, 50).astype(np.int32)
    one_hot = np.eye(7, dtype=np.float32)[y]
    for name, truth in [("sparse_categorical_accuracy", y), ("categorical_accuracy", one_hot),
                        ("sparse_top_k_categorical_accuracy", y), ("binary_accuracy", one_hot),
                        ("top_k_categorical_accuracy", one_hot)]:
        theirs = getattr(keras.metrics, name)(truth, p)
        expected = keras.ops.convert_to_numpy(theirs).reshape(50, -1).mean(1)
        np.testing.assert_allclose(measured(name, truth, p), expected, rtol=1e-6, err_msg=name)


def test_correlations_are_those_of_numpy():
    y, p = np.random.default_rng(0).normal(size=(2, 3, 5))
    expected = [np.corrcoef(a, b)[0, 1] for a, b in zip(y, p, strict=True)]
    np.testing.assert_allclose(measured(metrics.PearsonCorrelation(), y, p, TargetSpec((3, 5), f32)), expected, rtol=1e-5)
    gaps = y.var(1) + p.var(1) + (y.mean(1) - p.mean(1)) ** 2
    agreement = 2 * np.array([np.cov(a, b, bias=True)[0, 1] for a, b in zip(y, p, strict=True)]) / gaps
    np.testing.assert_allclose(
        measured(metrics.ConcordanceCorrelation(), y, p, TargetSpec((3, 5), f32)), agreement, rtol=1e-5)


def test_functions_take_integers() -> None:
    labels, answers = np.array([[1, 0, 1]]), np.array([[1, 0, 0]])
    np.testing.assert_array_equal(metrics.binary_accuracy(labels, answers), [[1.0, 1.0, 0.0]])
    np.testing.assert_allclose(metrics.cosine_similarity(labels, answers), [0.5**0.5])


@pytest.mark.parametrize(("numbers", "weights", "mean"), [
    ([True, False, True, True], None, 0.75), ([1, 2, 3], [0.5, 0.25, 0.25], 1.75)])
def test_means_of_bools_and_integers_in_a_step(numbers: list, weights: list | None,
                                               mean: float) -> None:
    metric = metrics.Mean()
    shares = None if weights is None else constant(np.array(weights, np.float32))
    with adding(metric, f32) as added:
        metric.update_state(constant(np.array(numbers)), shares)
    total, count = evaluate(list(added.values()), {})
    np.testing.assert_allclose(total / count, mean)
