"""Metrics with variables that each batch updates, as in Keras: `update_state` and `result`.

The program computes what a batch adds to the variables, and an epoch adds it up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value, topological
from ztorch.metrics.metric import Metric, SumMetric, Weigh
from ztorch.metrics.variables import MetricVariable


class UpdatedMetric(SumMetric, abstract=True):
    """What a program computes of a metric with `update_state`."""

    def __init__(self, metric: Metric):
        super().__init__(metric.name)
        self.metric: Any = metric  # its `result` takes no sums
        self.variables = metric.variables
        if not self.variables:
            raise ConfigError(f"metric {metric.name!r} has update_state and no variables; make "
                              "some in __init__: self.total = self.add_weight(name='total')")

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        row_weights = weigh(OPS.full((y_pred.shape[0],), 1.0, y_pred.dtype))
        before = [v.total for v in self.variables]
        for v in self.variables:
            v.total, v.updating = constant(np.zeros(v.shape), y_pred.dtype), True
        try:
            self.metric.update_state(y_true, y_pred, sample_weight=row_weights)
            added = {v.name: v.total for v in self.variables}
        finally:
            for v, total in zip(self.variables, before, strict=True):
                v.total, v.updating = total, False
        if row_weights not in topological(added.values()):
            raise ConfigError(f"update_state of metric {self.name!r} ignores sample_weight, so "
                              "that the rows that fill up the last batch, whose weight is 0, would "
                              "count; multiply by it before you sum up")
        return added

    def result(self, sums: Mapping[str, Value]) -> Value:
        before = [v.total for v in self.variables]
        for v in self.variables:
            v.total = sums[v.name]
        try:
            result = self.metric.result()
        finally:
            for v, total in zip(self.variables, before, strict=True):
                v.total = total
        return result.tensor if isinstance(result, MetricVariable) else result


def as_program_metric(metric: Metric) -> Metric:
    """The metric as a program computes it."""
    updates = type(metric).update_state is not Metric.update_state
    return UpdatedMetric(metric) if updates and not isinstance(metric, SumMetric) else metric
