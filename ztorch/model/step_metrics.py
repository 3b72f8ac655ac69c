"""Metrics of a custom step, and the scores that it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ztorch.dispatch import is_tensor
from ztorch.errors import ConfigError
from ztorch.graph.op import as_value
from ztorch.graph.value import Value, layer_scope
from ztorch.metrics import Metric
from ztorch.runtime.spec import SUMS

Scores = dict[str, Value]


class Result(NamedTuple):
    """The value of a metric of `compile` in a step: a number, or sums that an epoch accumulates."""

    scores: Scores


class KeptSums(NamedTuple):
    """A metric of the model within a step. An epoch accumulates its sums."""

    metric: Metric
    sums: Scores


@dataclass(frozen=True)
class CompiledMetric:
    """The loss or a metric of compile within a step, with Keras' methods."""

    step: Any  # the `TracedStep`
    name: str
    output: str  # the output that it measures
    metric: Metric | None  # None: the loss

    def update_state(self, y_true: Any, y_pred: Any = None, sample_weight: Any = None) -> None:
        """Measures the batch; the loss takes only its value."""
        if self.metric is None:
            self.step.loss = y_true
            return
        if isinstance(y_pred, (list, tuple, dict)):
            y_true, y_pred = (named[self.output] for named in self.step.by_output(y_true, y_pred))
        self.step.results[self.metric] = self.step.row_scores(sample_weight).metric(
            self.metric, self.name, y_true, y_pred)

    def result(self) -> Any:
        """The metric's value, for a step to return under its name."""
        if self.metric is None:
            if self.step.loss is None:
                raise ConfigError("the loss has no result before compute_loss")
            return self.step.loss
        if self.metric not in self.step.results:
            raise ConfigError(f"metric {self.name!r} has no result before update_state")
        return Result(self.step.results[self.metric])


@dataclass(frozen=True)
class EpochScore:
    """A score of compile outside of steps, with Keras' methods."""

    name: str
    epochs: list[float]  # its values in `fit`

    def result(self) -> float:
        """The value of the last epoch of `fit`; 0 before the first, as in Keras."""
        return self.epochs[-1] if self.epochs else 0.0

    def reset_state(self) -> None:
        """Does nothing: each epoch starts at zero."""


def score_name(label: str) -> str:
    """The name of the score that contains an output of a step.

    >>> score_name("loss"), score_name(f"{SUMS}auc/positives")
    ('loss', 'auc')
    """
    return label.removeprefix(SUMS).rpartition("/")[0] if label.startswith(SUMS) else label


def logged(logs: Any, method: str, metrics: dict[str, Metric],
           read: Mapping[Value, KeptSums]) -> Scores:
    """The scores of a step, as outputs of a function; `metrics` gets the metrics that are computed
    from sums, by the names under which the step returned them. `read` are results of metrics."""
    if not isinstance(logs, Mapping) or not logs:
        raise ConfigError(f"{method} returned {logs!r}; return a dict of scalars by name, such as "
                          "{'loss': loss}")
    scores: Scores = {}
    for name, x in logs.items():
        if isinstance(x, (int, float, np.number)) or is_tensor(x):  # the same in each step
            x = as_value(np.asarray(x, np.float32))
        if isinstance(x, Result):
            scores |= x.scores
        elif isinstance(x, Value) and x in read:
            metrics[name] = read[x].metric
            scores |= {f"{SUMS}{name}/{key}": part for key, part in read[x].sums.items()}
        elif isinstance(x, Value) and (x.shape == () or name.startswith(SUMS)):
            with layer_scope(name):
                scores[name] = x
        else:
            shape = getattr(x, "shape", None)
            raise ConfigError(f"{method} returned {name}={x!r}" + (
                "" if shape is None else f" of shape {tuple(shape)}") + "; return a scalar tensor, "
                "such as zt.ops.mean(x)")
    return scores
