"""Weights of rows count, as in Keras, for the loss and `weighted_metrics`, not for metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch.errors import ConfigError, Unsupported

random = np.random.default_rng(5)
X = random.normal(size=(10, 3)).astype(np.float32)  # the last of three batches is not full
LABELS = random.integers(0, 3, 10)
TARGETS = [random.normal(size=(10, 1)).astype(np.float32) for _ in range(2)]
WEIGHTS = random.uniform(0, 3, 10).astype(np.float32)
BY_CLASS = {0: 1.0, 1: 5.0, 2: 0.5}
START = [random.normal(size=(3, 3)).astype(np.float32), np.zeros(3, np.float32)]


def classifier(kind: Any) -> Any:
    model = kind.Sequential([kind.layers.Input((3,)), kind.layers.Dense(3, activation="softmax")])
    model.compile(optimizer=kind.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy",
                  metrics=["accuracy"],
                  weighted_metrics=["accuracy", "sparse_categorical_crossentropy"])
    model.set_weights(START)
    return model


def scores_of(kind: Any) -> list[Any]:
    """All that a session says, in order; the names as they come."""
    model = classifier(kind)
    more = {"batch_size": 4, "shuffle": False, "verbose": 0}
    histories = [model.fit(X, LABELS, class_weight=BY_CLASS, epochs=2, **more).history,
                 model.fit(X, LABELS, sample_weight=WEIGHTS, validation_data=(X, LABELS, WEIGHTS),
                           **more).history,
                 model.evaluate(X, LABELS, batch_size=4, sample_weight=WEIGHTS, return_dict=True,
                                verbose=0)]
    for weights in ({"sample_weight": WEIGHTS[:4]}, {"class_weight": BY_CLASS}):
        if kind is not zt:
            model.reset_metrics()
        histories.append(model.train_on_batch(X[:4], LABELS[:4], return_dict=True, **weights))
    return [*histories, *model.get_weights()]


def test_all_reported_values_match_keras() -> None:
    for ours, theirs in zip(scores_of(zt), scores_of(references.keras()), strict=True):
        if isinstance(ours, dict):
            assert set(ours) == set(theirs)
            ours, theirs = ([scores[name] for name in sorted(scores)] for scores in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


def two_outputs(kind: Any, **measured: Any) -> dict[str, float]:
    x = kind.layers.Input((3,))
    model = kind.Model(x, [kind.layers.Dense(1, name=name)(x) for name in ("first", "second")])
    model.compile(loss=["mse", "mae"], **measured)
    model.set_weights([START[0][:, :1], START[1][:1], START[0][:, 1:2], START[1][:1]])
    scores: dict[str, float] = model.evaluate(
        X, TARGETS, batch_size=4, sample_weight=WEIGHTS, return_dict=True, verbose=0)
    return scores


@pytest.mark.parametrize("measured", [
    {"metrics": ["mae", "mse"], "weighted_metrics": ["mae", "mse"]},
    {"metrics": {"first": ["mae"]}, "weighted_metrics": {"second": ["mse"]},
     "loss_weights": {"first": 2.0, "second": 0.5}}], ids=["alike", "by name"])
def test_with_several_outputs_each_has_its_own(measured: dict[str, Any]) -> None:
    ours, theirs = two_outputs(zt, **measured), two_outputs(references.keras(), **measured)
    assert set(ours) == set(theirs)
    for name, score in theirs.items():
        assert ours[name] == pytest.approx(float(score), rel=1e-5), name


@pytest.mark.parametrize("reduction", ["sum", "mean", "mean_with_sample_weight"])
def test_the_reduction_of_a_loss_sets_its_divisor(reduction: str) -> None:
    model = zt.Sequential([zt.layers.Input((3,)), zt.layers.Dense(1, use_bias=False)])
    model.compile("cpu", batch_size=4, optimizer=zt.optimizers.SGD(0.5),
                  loss=zt.losses.MeanSquaredError(reduction=reduction))
    kernel = START[0][:, :1].astype(np.float64)
    model.set_weights([kernel])
    history = model.fit(X[:3], TARGETS[0][:3], sample_weight=WEIGHTS[:3], verbose=0).history
    x, y, w = X[:3].astype(np.float64), TARGETS[0][:3], WEIGHTS[:3, None].astype(np.float64)
    divisor = {"sum": 1.0, "mean": 3.0, "mean_with_sample_weight": w.sum()}[reduction]
    errors = x @ kernel - y
    assert history["loss"][0] == pytest.approx((w * errors ** 2).sum() / divisor, rel=1e-5)
    np.testing.assert_allclose(model.get_weights()[0], kernel - 0.5 * x.T @ (
        2 * w * errors) / divisor, rtol=1e-5)


def test_masked_steps_count_alike_in_all_batches() -> None:
    """Batches with few real steps must not weigh as much as those with many."""
    ids = random.integers(0, 3, (10, 6))
    y = random.normal(size=(10, 6, 1)).astype(np.float32)
    model = zt.Sequential([zt.layers.Input((6,), dtype="int32"),
                           zt.layers.Embedding(3, 1, mask_zero=True)])
    model.compile("cpu", batch_size=4, loss="mse", metrics=["mae"], weighted_metrics=["mse"])
    scores = model.evaluate(ids, y, sample_weight=WEIGHTS, return_dict=True, verbose=0)
    errors = model.get_weights()[0][ids, 0] - y[..., 0]
    real, weights = ids != 0, np.where(ids != 0, WEIGHTS[:, None], 0.0)
    assert scores["mae"] == pytest.approx(np.abs(errors[real]).mean(), rel=1e-5)
    assert scores["mse"] == pytest.approx(np.average(errors ** 2, weights=weights), rel=1e-5)


def test_weighted_metrics_are_kept_by_files(tmp_path: Any) -> None:
    model = classifier(zt)
    expected = model.evaluate(X, LABELS, sample_weight=WEIGHTS, return_dict=True, verbose=0)
    for name in ("kept.zt", "kept.keras"):
        model.save(tmp_path / name)
        kept = zt.models.load_model(tmp_path / name)
        assert kept.evaluate(X, LABELS, sample_weight=WEIGHTS, return_dict=True,
                             verbose=0) == pytest.approx(expected)


def test_invalid_weights_are_refused() -> None:
    model = zt.Sequential([zt.layers.Input((3,)), zt.layers.Dense(1)])
    with pytest.raises(ConfigError, match="weighted_metrics='mae' is not a list"):
        model.compile("dummy", loss="mse", weighted_metrics="mae")
    with pytest.raises(Unsupported, match="reduction='none'; compile needs one number"):
        model.compile("dummy", loss=zt.losses.MeanSquaredError(reduction="none"))
