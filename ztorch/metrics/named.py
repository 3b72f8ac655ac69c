"""Looks up metrics by name, and creates the metrics of a model."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from ztorch.errors import ConfigError, UnknownName, unknown
from ztorch.losses.loss import Loss, TargetSpec
from ztorch.losses.numbers import LossFunction
from ztorch.metrics.accuracy import (
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
)
from ztorch.metrics.functions import FunctionMetric, LossAsMetric, LossMetric, MetricFunction
from ztorch.metrics.metric import Metric
from ztorch.metrics.updated import as_program_metric
from ztorch.metrics.weighted import WeightedMetric

ACCURACY = ("accuracy", "acc")


def get(spec: Any, target: TargetSpec, prediction: tuple[int, ...]) -> Metric:
    """The metric for a name, an instance, a loss or a function.

    As in Keras, `"accuracy"` becomes binary, sparse or categorical accuracy, depending on the
    shapes.

    Args:
        spec: A name such as `"accuracy"`, a `Metric`, a `Loss`, or a function of `(y_true,
            y_pred)`.
        target: Description of the targets, from `Loss.target`.
        prediction: Shape of the predictions, including the batch.

    Returns:
        The metric.

    Raises:
        UnknownName: No metric or loss has this name.

    Examples:
        >>> from ztorch.dtypes import i32
        >>> get("accuracy", TargetSpec((32,), i32, 10), (32, 10))
        SparseCategoricalAccuracy(name='accuracy')
    """
    if isinstance(spec, str) and spec.lower() in ACCURACY:
        if prediction[-1:] == (1,):
            return BinaryAccuracy(spec)
        sparse = len(target.shape) < len(prediction) or target.shape[-1] == 1
        return SparseCategoricalAccuracy(spec) if sparse else CategoricalAccuracy(spec)
    if isinstance(spec, str):
        if spec in Metric.known or spec.lower() in {k.lower() for k in Metric.known}:
            return _named(Metric.named(spec), spec)
        if spec in Loss.known:
            return LossMetric(spec, spec)
        names = {"accuracy", *(m.names[0] for m in Metric.known.values() if m.names)}
        error = unknown("metric", spec, names, [*ACCURACY, *Metric.known, *Loss.known])
        raise UnknownName(f"{error}, and all losses")
    if isinstance(spec, (LossFunction, MetricFunction)):
        return get(spec.__name__, target, prediction)
    if isinstance(spec, WeightedMetric):
        return WeightedMetric(get(spec.metric, target, prediction), spec.name)
    if isinstance(spec, dict) and spec.get("class_name") == "WeightedMetric":
        return get(WeightedMetric(**spec["config"]), target, prediction)
    if isinstance(spec, LossAsMetric):
        return spec()
    if isinstance(spec, Loss):
        return LossMetric(spec)
    if callable(spec) and not isinstance(spec, (Metric, type)):
        return FunctionMetric(spec)
    return as_program_metric(Metric.get(spec))


def _named(cls: type[Metric], name: str) -> Metric:
    metric = cls()
    metric.name = name
    return as_program_metric(metric)


def resolve(specs: Iterable[Any], target: TargetSpec, prediction: tuple[int, ...]) -> list[Metric]:
    """All metrics of a model, with distinct names that also differ from "loss". As in Keras,
    metrics without a given name are numbered, such as auc and auc_1."""
    if isinstance(specs, str) or not isinstance(specs, Iterable):
        specs = [specs]
    metrics = [get(s, target, prediction) for s in specs]
    names_before: set[str] = set()
    for m in metrics:
        if m.name in names_before and m.name == m.default_name and isinstance(m, Metric):
            m.name = next(n for n in (f"{m.name}_{k}" for k in count(1)) if n not in names_before)
        names_before.add(m.name)
    names = [(False, "loss"), *((isinstance(m, WeightedMetric), m.name) for m in metrics)]
    for weighted, name in names:
        if names.count((weighted, name)) > 1:
            raise ConfigError(f"two metrics are named {name!r}; give one a different name, such as "
                              f"BinaryAccuracy(name='other')")
    return metrics
