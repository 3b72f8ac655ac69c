"""Losses, metrics and optimizers that do not fit; and data that do not fit the model."""

from __future__ import annotations

from typing import Any

import numpy as np

import ztorch as zt
from tests.model.wrong_models.cases import Case, row, rows, trained
from ztorch import layers as L

_PROGRAMS: dict[str, Any] = {}
X, LABELS = rows(8, 6), np.arange(8) % 3


def classifier() -> Any:
    """Compiled once."""
    if "classifier" not in _PROGRAMS:
        _PROGRAMS["classifier"] = row(L.Dense(3, activation="softmax")).compile(
            "cpu", batch_size=4, optimizer="sgd", loss="sparse_categorical_crossentropy", threads=1)
    return _PROGRAMS["classifier"]


def predictor() -> Any:
    if "predictor" not in _PROGRAMS:
        _PROGRAMS["predictor"] = row(L.Dense(3)).compile("cpu", batch_size=4, threads=1)
    return _PROGRAMS["predictor"]


def fitted(x: Any, y: Any, **how: Any) -> Any:
    return classifier().fit(x, y, verbose=0, **how)


CASES: dict[str, Case] = {
    # losses and outputs
    "classes with one output": lambda: trained(L.Dense(1), loss="sparse_categorical_crossentropy"),
    "one-hot classes with one output": lambda: trained(L.Dense(1), loss="categorical_crossentropy"),
    "unknown loss": lambda: trained(L.Dense(1), loss="mean_square_error"),
    "a loss that gives a number": lambda: trained(L.Dense(1), loss=lambda y, p: 1.0),
    "an optimizer without a loss": lambda: row(L.Dense(1)).trace(4, optimizer="sgd"),
    "metrics without a loss": lambda: row(L.Dense(1)).trace(4, metrics=["mae"]),
    "unknown optimizer": lambda: trained(L.Dense(1), optimizer="adamm"),
    "a rate below zero": lambda: zt.optimizers.SGD(-0.1),
    "an unknown argument of an optimizer": lambda: zt.optimizers.Adam(lr=0.1),
    "momentum above one": lambda: zt.optimizers.SGD(momentum=1.5),
    "clipping to nothing": lambda: zt.optimizers.Adam(clipnorm=0),
    "unknown metric": lambda: trained(L.Dense(1), metrics=["acuracy"]),
    "a metric twice": lambda: trained(L.Dense(1), metrics=["mae", "mae"]),
    "a metric that does not fit": lambda: trained(
        L.Dense(3), loss="sparse_categorical_crossentropy", metrics=["binary_accuracy"]),
    "top of no classes": lambda: zt.metrics.TopKCategoricalAccuracy(k=0),
    "nothing to train": lambda: trained(L.Dense(1, trainable=False)),
    "a layer without weights to train": lambda: trained(L.ReLU()),
    "smoothing above one": lambda: zt.losses.CategoricalCrossentropy(label_smoothing=2),
    "a delta of zero": lambda: zt.losses.Huber(delta=0),
    "a batch of nothing": lambda: row(L.Dense(1)).trace(0),
    "a model of integers": lambda: row(L.Dense(1)).trace(4, dtype="int32"),
    "two outputs for one loss": lambda: row(L.Dense(1)).trace(4, "sgd", ["mse", "mse"]),
    # data
    "rows of another width": lambda: fitted(X[:, :5], LABELS),
    "one row": lambda: fitted(X[0], LABELS),
    "no rows": lambda: fitted(X[:0], LABELS[:0]),
    "labels too few": lambda: fitted(X, LABELS[:-1]),
    "labels from one": lambda: fitted(X, LABELS + 1),
    "labels below zero": lambda: fitted(X, LABELS - 1),
    "half labels": lambda: fitted(X, LABELS + 0.5),
    "labels with gaps": lambda: fitted(X, np.where(LABELS == 1, np.nan, LABELS)),
    "one-hot labels": lambda: fitted(X, np.eye(3)[LABELS]),
    "no labels": lambda: fitted(X, None),
    "text for numbers": lambda: fitted(np.full((8, 6), "a"), LABELS),
    "a mapping for one input": lambda: fitted({"x": X}, LABELS),
    "two arrays for one input": lambda: fitted((X, X), LABELS),
    "inputs that are not finite": lambda: fitted(np.full((8, 6), np.inf), LABELS),
    "weights of rows below zero": lambda: fitted(X, LABELS, sample_weight=np.full(8, -1.0)),
    "a weight too few": lambda: fitted(X, LABELS, sample_weight=np.ones(7)),
    "weight of an unknown class": lambda: fitted(X, LABELS, class_weight={3: 1.0}),
    "another batch size": lambda: fitted(X, LABELS, batch_size=8),
    "epochs below zero": lambda: fitted(X, LABELS, epochs=-1),
    "all for validation": lambda: fitted(X, LABELS, validation_split=0.99),
    "validation of other rows": lambda: fitted(X, LABELS, validation_data=(X[:, :2], LABELS)),
    "objects for numbers": lambda: fitted(np.full((8, 6), None), LABELS),
    "validation of x alone": lambda: fitted(X, LABELS, validation_data=5),
    "a callback that is none": lambda: fitted(X, LABELS, callbacks=[3]),
    "a stream of x alone": lambda: fitted(iter([X]), None),
    "an empty stream": lambda: fitted(iter([]), None),
    "training what predicts": lambda: predictor().fit(X, LABELS),
    "evaluating what predicts": lambda: predictor().evaluate(X, LABELS),
    "more than a batch at once": lambda: predictor().predict_on_batch(X),
    "a rate by words": lambda: setattr(classifier(), "learning_rate", "slow"),
}
