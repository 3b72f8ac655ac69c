"""Metrics with variables that each batch updates, as in Keras: `update_state` and `result`.

The program computes the change of the variables per batch, and an epoch sums the changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.batching import repeated, vectorized
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value, topological
from ztorch.metrics.metric import Metric, SumMetric, Weigh
from ztorch.metrics.variables import MetricVariable, adding, totals_of


class UpdatedMetric(SumMetric, abstract=True):
    """The part of a metric with `update_state` that the program computes."""

    def __init__(self, metric: Metric):
        super().__init__(metric.name)
        self.metric: Any = metric  # its `result` takes no sums
        self.variables = metric.variables
        if not self.variables:
            raise ConfigError(f"metric {metric.name!r} has update_state but no variables; create "
                              "some in __init__: self.total = self.add_weight(name='total')")

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        row_weights = weigh(OPS.full((y_pred.shape[0],), 1.0, y_pred.dtype))
        added = self._added(y_true, y_pred, row_weights)
        weighted = _made_of(row_weights, topological(added.values()))
        spread = any(v.shape.count(y_pred.shape[0]) > 1 for v in weighted)
        return added if weighted and not spread else self._added_by_row(y_true, y_pred, weigh)

    def _added(self, y_true: Value, y_pred: Value, row_weights: Value) -> dict[str, Value]:
        """The sums that a batch adds to the variables."""
        try:
            inspect.signature(self.metric.update_state).bind(None, None, sample_weight=None)
        except TypeError:
            raise ConfigError(f"metric {self.name!r}: update_state must take (y_true, y_pred, "
                              "sample_weight) to be a metric of compile; update it in the call of "
                              "a layer or in a step, or pass compile a subclass that takes them"
                              ) from None
        with adding(self.variables, y_pred.dtype) as added:
            self.metric.update_state(y_true, y_pred, sample_weight=row_weights)
        return added

    def _added_by_row(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        """The same, if `update_state` ignores the weights, or multiplies each row by all weights,
        as (batch, 1) by (batch,). Each row is then its own batch, so that padding rows can be left
        out."""
        count = y_pred.shape[0]
        target, prediction = (leaf("input", name, (1, *v.shape[1:]), v.dtype)
                              for name, v in (("y_true", y_true), ("y_pred", y_pred)))
        added = self._added(target, prediction, OPS.full((1,), 1.0, y_pred.dtype))
        rows = vectorized(added.values(), {target: OPS.expand_dims(y_true, 1),
                                           prediction: OPS.expand_dims(y_pred, 1)}, count)
        return {name: OPS.sum(weigh(rows[x] if x in rows else repeated(x, count)), 0)
                for name, x in added.items()}

    def result(self, sums: Mapping[str, Value]) -> Value:
        with totals_of(self.variables, sums):
            result = self.metric.result()
            return result.tensor if isinstance(result, MetricVariable) else result


def _made_of(x: Value, values: Iterable[Value]) -> set[Value]:
    """x, and those of the values (in order) that depend on it."""
    dependent: set[Value] = set()
    for v in values:
        if v is x or not dependent.isdisjoint(v.args):
            dependent.add(v)
    return dependent


def as_program_metric(metric: Metric) -> Metric:
    """The metric in the form that a program computes."""
    updates = type(metric).update_state is not Metric.update_state
    return UpdatedMetric(metric) if updates and not isinstance(metric, SumMetric) else metric
