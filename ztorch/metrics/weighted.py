"""Metrics that apply the weights of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.value import Value
from ztorch.losses.loss import Loss
from ztorch.metrics.metric import Metric, SumMetric, Weigh


@dataclass(frozen=True)
class MetricLists:
    """The metrics of `compile`, as the user wrote them."""

    plain: Any
    weighted: Any


class WeightedMetric(SumMetric):
    """A metric that applies `sample_weight` and `class_weight`: one of `weighted_metrics`.

    Args:
        metric: A metric, a loss, or the name of one.
        name: Name in the history. `None` uses the metric's name. Default: `None`.

    Examples:
        >>> WeightedMetric("mae").name
        'mae'
    """

    def __init__(self, metric: Any, name: str | None = None):
        if not isinstance(metric, (str, dict, Metric, Loss)) and not callable(metric):
            raise ConfigError(f"WeightedMetric(metric={metric!r}) must be a metric, a loss, or the "
                              "name of one")
        self.metric = metric
        own = getattr(metric, "name", None) or (metric if isinstance(metric, str) else None)
        super().__init__(name or own)

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        sums: dict[str, Value] = self.metric.batch_sums(y_true, y_pred, weigh)
        return sums

    def of_batch(self, y_true: Value, y_pred: Value) -> Value | None:
        of_batch: Value | None = self.metric.of_batch(y_true, y_pred)
        return of_batch

    def result(self, sums: Mapping[str, Value]) -> Value:
        total: Value = self.metric.of_sums(sums)
        return total
