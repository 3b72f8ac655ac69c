"""Regression metrics that are not means over rows: root mean squared error, R2 score."""

from __future__ import annotations

from collections.abc import Mapping

from ztorch.config import whole
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.metrics.confusion import ratio
from ztorch.metrics.metric import SumMetric, Weigh, alike


class RootMeanSquaredError(SumMetric, names=("root_mean_squared_error", "rmse")):
    """The square root of the mean squared error of all elements.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> RootMeanSquaredError().name
        'root_mean_squared_error'
    """

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        y = alike(self.name, y_true, y_pred)
        return {"squares": OPS.sum(weigh(OPS.square(y_pred - y))),
                "count": OPS.sum(weigh(OPS.ones_like(y)))}

    def result(self, sums: Mapping[str, Value]) -> Value:
        return OPS.sqrt(ratio(sums["squares"], sums["count"]))


class R2Score(SumMetric, names=("r2_score",)):
    """The fraction of the variance of the targets that predictions explain; at most 1.

    Args:
        class_aggregation: How the scores of several outputs are combined: `"uniform_average"` or
            `"variance_weighted_average"`. `None` gives a score per output. Default:
            `"uniform_average"`.
        num_regressors: Number of inputs of the predictor, for the adjusted score. 0 gives the
            standard score. Default: `0`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> R2Score().class_aggregation
        'uniform_average'
    """

    def __init__(self, class_aggregation: str | None = "uniform_average", num_regressors: int = 0,
                 name: str | None = None):
        super().__init__(name)
        if class_aggregation not in (None, "uniform_average", "variance_weighted_average"):
            raise ConfigError(f"R2Score(class_aggregation={class_aggregation!r}) must be "
                              "'uniform_average', 'variance_weighted_average', or None for a score "
                              "of each output")
        self.class_aggregation = class_aggregation
        self.num_regressors = whole("R2Score(num_regressors=...)", num_regressors)

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        y = alike(self.name, y_true, y_pred)
        axes = tuple(range(max(y.rank - 1, 1)))
        parts = {"errors": OPS.square(y - y_pred), "sum": y, "squares": OPS.square(y),
                 "count": OPS.ones_like(y)}
        sums = {n: OPS.sum(weigh(x), axis=axes) for n, x in parts.items()}
        counts = weigh(parts["count"]) > 0.0  # whatever the weight
        return {**sums, "samples": OPS.sum(OPS.cast(counts, y.dtype))}

    def result(self, sums: Mapping[str, Value]) -> Value:
        mean = sums["sum"] / sums["count"]  # of no targets NaN, and so is the score
        total = sums["squares"] - sums["sum"] * mean
        scores = 1.0 - ratio(sums["errors"], total)
        # Targets that are all equal have no variance: only exact predictions explain them.
        wrong = OPS.logical_and(OPS.equal(total, 0.0), sums["errors"] > 0.0)
        scores = OPS.where(wrong, 0.0, scores)
        if self.class_aggregation == "uniform_average":
            scores = OPS.mean(scores)
        elif self.class_aggregation is not None:
            scores = ratio(OPS.sum(scores * total), OPS.sum(total))
        return self._adjusted(scores, sums["samples"]) if self.num_regressors else scores

    def _adjusted(self, scores: Value, samples: Value) -> Value:
        """Scores adjusted for the number of inputs, where there are targets enough. The samples are
        those of all outputs, as in Keras."""
        left = samples - (self.num_regressors + 1.0)
        factor = (samples - 1.0) / OPS.where(left > 0.0, left, 1.0)
        return OPS.where(left > 0.0, 1.0 - (1.0 - scores) * factor, scores)
