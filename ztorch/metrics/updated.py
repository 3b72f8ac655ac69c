"""Metrics with variables that each batch updates, as in Keras: `update_state` and `result`.

The program computes the change of the variables per batch, and an epoch sums the changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ztorch.errors import ConfigError
from ztorch.graph.batching import repeated, vectorized
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value, topological
from ztorch.metrics.metric import Metric, SumMetric, Weigh
from ztorch.metrics.variables import MetricVariable, adding, totals_of


class UpdatedMetric(SumMetric, abstract=True):
    """The part of a metric with `update_state` that the program computes."""

    def __init__(self, metric: Metric):
        super().__init__(metric.name)
        self.metric: Any = metric  # its `result` takes no sums
        if not metric.variables and len(metric.parts()) == 1:
            raise ConfigError(f"metric {metric.name!r} has update_state but no variables; create "
                              "some in __init__: self.total = self.add_weight(name='total')")

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        row_weights = weigh(OPS.full((y_pred.shape[0],), 1.0, y_pred.dtype))
        added = self._added(y_true, y_pred, row_weights)
        if _weigh_all(row_weights, added.values()):
            return added
        if self._rows_add_up(y_true, y_pred):
            return self._by_row(y_true, y_pred, weigh)
        return self._added(y_true, y_pred, None)

    def of_batch(self, y_true: Value, y_pred: Value) -> Value | None:
        row_weights = OPS.full((y_pred.shape[0],), 1.0, y_pred.dtype)
        added = self._added(y_true, y_pred, row_weights)
        if _weigh_all(row_weights, added.values()) or self._rows_add_up(y_true, y_pred):
            return None
        return next(iter(added.values()))

    def _rows_add_up(self, y_true: Value, y_pred: Value) -> bool:
        """Whether three rows add as much to the variables as each of them alone, for random
        numbers. Rows of a batch can then be left out where `update_state` ignores their weights."""
        random = np.random.default_rng(0)
        numbers = [random.integers(0, 2, (3, *v.shape[1:])) if v.dtype.is_int else
                   random.uniform(0.05, 0.95, (3, *v.shape[1:])) for v in (y_true, y_pred)]
        batch, *rows = (self._numbers(y_true, y_pred, *(x[part] for x in numbers)) for part in (
            slice(None), slice(0, 1), slice(1, 2), slice(2, 3)))
        return all(np.allclose(x, sum(parts), rtol=1e-4, atol=1e-6, equal_nan=True)
                   for x, *parts in zip(batch, *rows, strict=True))

    def _numbers(self, y_true: Value, y_pred: Value, *numbers: np.ndarray) -> list[np.ndarray]:
        """What a batch of these numbers adds to the variables."""
        leaves = [leaf("input", "rows", x.shape, v.dtype)
                  for v, x in zip((y_true, y_pred), numbers, strict=True)]
        added = self._added(leaves[0], leaves[1], None)
        return evaluate(list(added.values()), dict(zip(leaves, numbers, strict=True)), oracle=True)

    def _added(self, y_true: Value, y_pred: Value, row_weights: Value | None
               ) -> dict[str, Value]:
        """The sums that a batch adds to the variables."""
        signature = inspect.signature(self.metric.update_state)
        default = getattr(signature.parameters.get("sample_weight"), "default", None)
        has_default = default is not inspect.Parameter.empty
        try:
            signature.bind(None, None, sample_weight=None)
        except TypeError:
            raise ConfigError(f"metric {self.name!r}: update_state must take (y_true, y_pred, "
                              "sample_weight) to be a metric of compile; update it in the call of "
                              "a layer or in a step, or pass compile a subclass that takes them"
                              ) from None
        with adding(self.metric, y_pred.dtype) as added:
            if row_weights is None and has_default:  # its own default, which may be a number
                self.metric.update_state(y_true, y_pred)
            else:
                self.metric.update_state(y_true, y_pred, sample_weight=row_weights)
        return added

    def _by_row(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
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
        with totals_of(self.metric, sums):
            result = self.metric.result()
            return result.tensor if isinstance(result, MetricVariable) else result


def _weigh_all(row_weights: Value, added: Collection[Value]) -> bool:
    """Whether all sums of a batch depend on the weights of its rows, and none multiplies each row
    by all weights."""
    dependent: set[Value] = set()
    for v in topological(added):
        if v is row_weights or not dependent.isdisjoint(v.args):
            dependent.add(v)
    spread = any(v.shape.count(row_weights.shape[0]) > 1 for v in dependent)
    return dependent.issuperset(added) and not spread


def as_program_metric(metric: Metric) -> Metric:
    """The metric in the form that a program computes."""
    updates = type(metric).update_state is not Metric.update_state
    return UpdatedMetric(metric) if updates and not isinstance(metric, SumMetric) else metric
