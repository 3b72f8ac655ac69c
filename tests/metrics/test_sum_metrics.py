"""Metrics that are computed from sums over all rows: Keras' numbers, whatever the batches are."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.grouping import together
from ztorch import layers as L
from ztorch import metrics as M
from ztorch.errors import ConfigError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value
from ztorch.metrics.metric import SumMetric

random = np.random.default_rng(5)
SCORES = random.random((60, 3)).astype(np.float32)
SCORES[:5] = SCORES[5:10]  # ties
YES = (random.random((60, 3)) < SCORES).astype(np.float32)
LABELS = random.integers(0, 3, 60).astype(np.int32)
ONE_HOT = np.eye(3, dtype=np.float32)[LABELS]
REAL = random.normal(size=(60, 3)).astype(np.float32)
NEAR = (REAL + 0.3 * random.normal(size=(60, 3))).astype(np.float32)
FOUND = np.where(random.random(60) < 0.6, LABELS, 0).astype(np.int32)
WEIGHTS = random.random(60).astype(np.float32)

# Name, ours, arguments of Keras' where they differ, targets, predictions.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None, np.ndarray, np.ndarray]] = {
    "count of scores at the threshold": ("TruePositives", {"thresholds": 0.5}, None, YES, np.full_like(SCORES, 0.5)),
    **{name: (name, {}, None, YES, SCORES) for name in (
        "TruePositives", "FalsePositives", "TrueNegatives", "FalseNegatives", "Precision",
        "Recall", "AUC")},
    "count at 0.3": ("TruePositives", {"thresholds": 0.3}, None, YES, SCORES),
    "precision at 0.7": ("Precision", {"thresholds": [0.7]}, None, YES, SCORES),
    "precision of nothing": ("Precision", {"thresholds": 1.0}, None, YES, SCORES),
    "recall of a class": ("Recall", {"class_id": 1}, None, YES, SCORES),
    **{f"AUC {curve} {method}": (
        "AUC", {"curve": curve, "summation_method": method, "num_thresholds": 30}, None, YES,
        SCORES) for curve in ("ROC", "PR") for method in ("interpolation", "minoring", "majoring")},
    "AUC at thresholds": ("AUC", {"thresholds": [0.7, 0.2, 0.5]}, None, YES, SCORES),
    **{f"AUC {curve} of labels": ("AUC", {
        "curve": curve, "multi_label": True, "num_labels": 3, "label_weights": [1.0, 0.0, 2.0]}, None, YES, SCORES)
       for curve in ("ROC", "PR")},
    "AUC of weighted labels": ("AUC", {"label_weights": [1.0, 0.0, 2.0]}, None, YES, SCORES),
    "precision of the top": ("Precision", {"top_k": 2}, None, YES, SCORES),
    "recall of the top, of a class": ("Recall", {"top_k": 1, "class_id": 2, "thresholds": 0.4}, None, YES, SCORES),
    "AUC of logits": ("AUC", {"from_logits": True}, None, YES, SCORES * 4 - 2),
    **{name: (name, {arg: 0.6, "num_thresholds": 50}, None, YES, SCORES) for name, arg in (
        ("PrecisionAtRecall", "recall"), ("RecallAtPrecision", "precision"),
        ("SensitivityAtSpecificity", "specificity"), ("SpecificityAtSensitivity", "sensitivity"))},
    "RecallAtPrecision, never": ("RecallAtPrecision", {"precision": 1.0}, None, 1 - YES, SCORES),
    **{f"F1 {average}": ("F1Score", {"average": average}, None, ONE_HOT, SCORES)
       for average in ("macro", "micro", "weighted")},
    "F2 at 0.4": ("FBetaScore", {"beta": 2.0, "threshold": 0.4, "average": "macro"}, None, YES, SCORES),
    "F2 of each class": ("FBetaScore", {"beta": 2.0, "threshold": 0.4}, None, YES, SCORES),
    "F1 of rows of zeros": ("F1Score", {}, None, ONE_HOT, SCORES * (SCORES > 0.8)),
    **{f"{name} at thresholds": (name, {"thresholds": [0.2, 0.5, 0.8]}, None, YES, SCORES)
       for name in ("Precision", "Recall", "TruePositives", "FalseNegatives")},
    "R2 of each output": ("R2Score", {"class_aggregation": None}, None, REAL, NEAR),
    "R2 adjusted": ("R2Score", {"class_aggregation": None, "num_regressors": 2}, None, REAL, NEAR),
    "RootMeanSquaredError": ("RootMeanSquaredError", {}, None, REAL, NEAR),
    **{f"R2 {average}": ("R2Score", {"class_aggregation": average}, None, REAL, NEAR)
       for average in ("uniform_average", "variance_weighted_average")},
    "MeanIoU": ("MeanIoU", {"num_classes": 4}, None, LABELS, FOUND),
    "MeanIoU of scores": ("MeanIoU", {"num_classes": 3, "sparse_y_pred": False}, None, LABELS,
                          SCORES),
    "MeanIoU without a class": ("MeanIoU", {"num_classes": 3, "ignore_class": 0}, None, LABELS,
                                FOUND),
    "IoU": ("IoU", {"num_classes": 3, "target_class_ids": [0, 2]}, None, LABELS, FOUND),
    "BinaryIoU": ("BinaryIoU", {"threshold": 0.3}, None, YES[:, 0], SCORES[:, 0]),
    "BinaryIoU of a class": ("BinaryIoU", {"target_class_ids": [1]}, None, YES[:, 0], SCORES[:, 0]),
    "OneHotIoU": ("OneHotIoU", {"num_classes": 3, "target_class_ids": [0, 2]}, None, ONE_HOT, SCORES),
    "OneHotMeanIoU": ("OneHotMeanIoU", {"num_classes": 3}, None, ONE_HOT, SCORES),
    "PearsonCorrelation": ("PearsonCorrelation", {}, None, REAL, NEAR),
    "ConcordanceCorrelation": ("ConcordanceCorrelation", {}, None, REAL, NEAR),
    "Accuracy": ("Accuracy", {}, None, LABELS, FOUND.astype(np.float32)),
    "CosineSimilarity": ("CosineSimilarity", {}, None, REAL, NEAR),
}


def weigh_all(values: Value, weights: Value) -> Value:
    return values * OPS.reshape(OPS.cast(weights, values.dtype), (-1, *(1,) * (values.rank - 1)))


def measured(metric: M.Metric, y: np.ndarray, p: np.ndarray, w: np.ndarray) -> Any:
    """By batches of 25 rows, as in an epoch."""
    totals: dict[str, np.ndarray] = {}
    for rows in (slice(0, 25), slice(25, 50), slice(50, 60)):
        leaves = [leaf("input", n, a[rows].shape, "int32" if a.dtype.kind == "i" else "float32")
                  for n, a in (("y", y), ("p", p), ("w", w))]
        feeds = dict(zip(leaves, (y[rows], p[rows], w[rows]), strict=True))
        y_true, y_pred, weights = leaves
        if isinstance(metric, SumMetric):
            sums = metric.sums(y_true, OPS.cast(y_pred, "float32"),
                               lambda x, w=weights: weigh_all(x, w))  # type: ignore[misc]
        else:
            sums = {"row": OPS.sum(metric.per_row(y_true, y_pred) * weights), "w": OPS.sum(weights)}
        for name, value in zip(sums, evaluate(list(sums.values()), feeds), strict=True):
            totals[name] = totals.get(name, 0.0) + value.astype(np.float64)
    if not isinstance(metric, SumMetric):
        return float(totals["row"] / totals["w"])
    ends = {n: leaf("input", n, t.shape, "float32") for n, t in totals.items()}
    result = metric.result(ends)
    return evaluate([result], {v: totals[n] for n, v in ends.items()})[0]


@together()
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_are_those_of_keras(name: str, weighted: bool) -> None:
    keras = references.keras()
    kind, arguments, other, y, p = CASES[name]
    more = {"dtype": "float32"} if "IoU" in kind else {}  # else it counts in whole numbers
    theirs = getattr(keras.metrics, kind)(**(arguments if other is None else other), **more)
    theirs.update_state(y, p, sample_weight=WEIGHTS if weighted else None)
    ours = measured(getattr(M, kind)(**arguments), y, p,
                    WEIGHTS if weighted else np.ones_like(WEIGHTS))
    expected = keras.ops.convert_to_numpy(theirs.result())
    assert np.shape(ours) == expected.shape
    np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=1e-6)


def test_an_epoch_reports_them_of_all_rows() -> None:
    """In a program: over batches that are not full, in training, artifacts and on tensors."""
    x, y = SCORES, YES[:, :1]
    model = zt.Sequential([L.Input((3,)), L.Dense(1, activation="sigmoid")])
    model.compile("cpu:scalar", batch_size=16, optimizer="sgd", loss="binary_crossentropy",
                  metrics=["precision", "auc", "accuracy", "rmse"])
    scores = model.evaluate(x, y, verbose=0, return_dict=True)
    assert list(scores) == ["loss", "precision", "auc", "accuracy", "rmse"] == model.metrics_names
    p, ones = model.predict(x), np.ones(60, np.float32)
    for metric in (M.Precision(), M.AUC(), M.RootMeanSquaredError()):
        short = "rmse" if metric.name == "root_mean_squared_error" else metric.name
        np.testing.assert_allclose(scores[short], measured(metric, y, p, ones), rtol=1e-5)
    np.testing.assert_allclose(scores["accuracy"], ((p > 0.5) == y).mean(), rtol=1e-6)
    assert model.evaluate(zt.tensor(x), zt.tensor(y), verbose=0, return_dict=True) == scores
    history = model.fit(x, y, epochs=2, shuffle=False, validation_data=(x, y), verbose=0).history
    assert history["val_auc"][-1] == model.evaluate(x, y, verbose=0, return_dict=True)["auc"]
    assert 0 < history["rmse"][1] < history["rmse"][0] < 1


def test_masked_steps_do_not_count() -> None:
    model = zt.Sequential([L.Input((4, 3)), L.Masking(), L.Dense(1, activation="sigmoid")])
    x = SCORES[:40].reshape(10, 4, 3).copy()
    x[:, 2:] = 0.0
    y = YES[:40, :1].reshape(10, 4, 1)
    program = model.compile("cpu:scalar", batch_size=4, loss="binary_crossentropy",
                            metrics=[M.TrueNegatives(), M.FalsePositives()])
    scores = program.evaluate(x, y, verbose=0, return_dict=True)
    yes = program.predict(x)[:, :2] > 0.5
    assert scores["true_negatives"] == (~yes & (y[:, :2] == 0)).sum()
    assert scores["false_positives"] == (yes & (y[:, :2] == 0)).sum() > 0


def test_wrong_arguments() -> None:
    for make, message in (
            (lambda: M.AUC(curve="RC"), "must be 'ROC' or 'PR'"),
            (lambda: M.F1Score(average="mean"), "must be 'macro'"),
            (lambda: M.PrecisionAtRecall(1.2), "from 0 to 1"),
            (lambda: M.IoU(3, [3]), "must be numbers from 0 to 2")):
        with pytest.raises(ConfigError, match=message):
            make()
    y, p = (leaf("input", name, (4, 3), "float32") for name in "yp")
    with pytest.raises(ConfigError, match="class 3 does not exist"):  # classes count from 0
        M.Recall(class_id=3).sums(y, p, lambda x: x)


def test_scores_of_several_numbers_in_logs_files_and_checkpoints(tmp_path: Path) -> None:
    keras = references.keras()
    scores, first = [], np.array([[0.3, -0.5, 1.0]] * 3, np.float32)
    for kind in (keras, zt):
        model = kind.Sequential([kind.layers.Input((3,)), kind.layers.Dense(3, activation="sigmoid")])
        model.set_weights([first, np.zeros(3, np.float32)])
        model.compile(loss="mse", optimizer="sgd", metrics=[
            kind.metrics.F1Score(), kind.metrics.Recall(thresholds=[0.4, 0.6], name="found"),
            kind.metrics.R2Score(num_regressors=3)])
        scores.append(model.evaluate(SCORES, ONE_HOT, batch_size=25, verbose=0, return_dict=True))
    assert {*scores[0]} == {*scores[1]}
    for name, expected in scores[0].items():
        np.testing.assert_allclose(scores[1][name], expected, rtol=2e-5)
    history = model.fit(SCORES, ONE_HOT, epochs=2, batch_size=20, verbose=0, callbacks=[
        zt.callbacks.CSVLogger(tmp_path / "log.csv")])
    assert [value.shape for value in history.history["found"]] == [(2,), (2,)]
    kept = type(history).from_state(json.loads(json.dumps(history.state())))
    np.testing.assert_array_equal(kept.history["f1_score"], history.history["f1_score"])
    assert history.curves["found_1"] == [float(value[1]) for value in history.history["found"]]
    model.save(tmp_path / "m.zt")
    loaded = zt.load(tmp_path / "m.zt")
    np.testing.assert_array_equal(loaded.history.history["found"], history.history["found"])
    np.testing.assert_allclose(loaded.evaluate(SCORES, ONE_HOT, verbose=0, return_dict=True)["f1_score"],
                               model.evaluate(SCORES, ONE_HOT, verbose=0, return_dict=True)["f1_score"])
    with open(tmp_path / "log.csv", newline="") as file:
        assert len(json.loads(list(csv.DictReader(file))[1]["f1_score"])) == 3
    with pytest.raises(ConfigError, match="has 2 numbers, and this takes one"):
        model.fit(SCORES, ONE_HOT, verbose=0, callbacks=[zt.callbacks.EarlyStopping("found")])


def test_values_of_batches_equal_keras() -> None:
    """A loss or metric that gives one number for a batch: the last batch is never filled up."""
    keras, results = references.keras(), []
    for kind in (keras, zt):
        ops = kind.ops
        model = kind.Sequential([kind.layers.Input((3,)), kind.layers.Dense(3)])
        model.set_weights([np.eye(3, dtype=np.float32), np.zeros(3, np.float32)])
        model.compile(optimizer=kind.optimizers.SGD(0.1),
                      loss=lambda y, p, ops=ops: ops.sqrt(ops.mean(ops.square(y - p))),
                      metrics=[lambda y, p, ops=ops: ops.max(ops.abs(y - p))])
        scores = model.evaluate(REAL[:51], NEAR[:51], batch_size=20, verbose=0)
        history = model.fit(REAL[:51], NEAR[:51], batch_size=20, shuffle=False, verbose=0).history
        results.append([*scores, *map(float, np.ravel([history[name] for name in sorted(history)])), *model.get_weights()[0]])
    for ours, theirs in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_equal_targets_are_explained_by_exact_predictions_alone() -> None:
    """As scikit-learn's r2_score says; Keras gives NaN for exact ones."""
    y = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]], np.float32)
    for predicted, scores in ((y, [1.0, 1.0]), (y + 0.5, [0.0, 0.625])):
        score = zt.metrics.R2Score(class_aggregation=None)
        score.update_state(y, predicted)
        np.testing.assert_allclose(score.result(), scores, rtol=1e-6)


def test_scores_of_16_bit_outputs_count_in_float32() -> None:
    """An output cast to float16 has losses and metrics as any other: 5,000 rows are no number of
    float16."""
    x = np.random.default_rng(3).normal(size=(5000, 4)).astype(np.float32)
    y = x.sum(-1, keepdims=True) + 300  # its square is no number of float16, either
    model = zt.Sequential([L.Input((4,)), L.Dense(1, kernel_initializer="ones"),
                           L.Lambda(lambda v: zt.ops.cast(v, "float16"))])
    model.compile(loss="mse", metrics=["mae", M.R2Score(), M.RootMeanSquaredError()])
    scores = model.evaluate(x, y, batch_size=5000, return_dict=True, verbose=0)
    error = model.predict(x).astype(np.float64) - y
    np.testing.assert_allclose(
        [scores["loss"], scores["mae"], scores["root_mean_squared_error"]],
        [np.mean(error ** 2), np.abs(error).mean(), np.sqrt(np.mean(error ** 2))], rtol=1e-4)
    # The variance is a difference of sums of squares in float32, which are 22,500 times as large.
    np.testing.assert_allclose(scores["r2_score"], 1 - np.mean(error ** 2) / y.var(dtype=np.float64),
                               rtol=8 * np.finfo(np.float32).eps * 300 ** 2 / 4)
