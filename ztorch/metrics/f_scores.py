"""F scores: harmonic means of precision and recall, over classes."""

from __future__ import annotations

from collections.abc import Mapping

from ztorch.config import fraction, number
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.metrics.confusion import ratio
from ztorch.metrics.metric import SumMetric, Weigh, alike


class FBetaScore(SumMetric, names=("fbeta_score",)):
    """The weighted harmonic mean of precision and recall, over classes.

    Targets and predictions have shape `(batch, classes)`; targets may hold class numbers.

    Args:
        average: How scores of classes are combined: `"macro"` is their mean, `"weighted"` weights
            them by the positive targets, `"micro"` counts all classes together. `None`
            gives a score for each class. Default: `None`.
        beta: Recall counts so many times as much as precision. Default: `1.0`.
        threshold: A prediction above it is positive. `None` means only the largest of a row.
            Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> FBetaScore("macro", beta=2.0).average
        'macro'
    """

    def __init__(self, average: str | None = None, beta: float = 1.0,
                 threshold: float | None = None, name: str | None = None):
        super().__init__(name)
        kind = type(self).__name__
        if average not in (None, "macro", "weighted", "micro"):
            raise ConfigError(f"{kind}(average={average!r}) must be 'macro', 'weighted', 'micro', "
                              "or None for a score of each class")
        self.average, self.beta = average, number(f"{kind}(beta=...)", beta, above=0)
        self.threshold = None if threshold is None else fraction(
            f"{kind}(threshold=...)", threshold, below_one=False)

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        y = one_hot_of(self.name, y_true, y_pred)
        if self.threshold is not None:
            chosen = y_pred > self.threshold
        else:  # as in Keras a row of zeros has no yes
            largest = OPS.equal(y_pred, OPS.max(y_pred, axis=-1, keepdims=True))
            chosen = OPS.logical_and(largest, OPS.abs(y_pred) > 1e-9)
        p = OPS.cast(chosen, y.dtype)
        axes = tuple(range(y.rank if self.average == "micro" else y.rank - 1))
        return {"true_positives": OPS.sum(weigh(y * p), axis=axes),
                "false_positives": OPS.sum(weigh((1.0 - y) * p), axis=axes),
                "false_negatives": OPS.sum(weigh(y * (1.0 - p)), axis=axes)}

    def result(self, sums: Mapping[str, Value]) -> Value:
        right, more, missed = (sums[n] for n in (
            "true_positives", "false_positives", "false_negatives"))
        square = self.beta ** 2
        scores = ratio((1.0 + square) * right, (1.0 + square) * right + square * missed + more)
        if self.average == "weighted":
            yes = right + missed
            return ratio(OPS.sum(scores * yes), OPS.sum(yes))
        return OPS.mean(scores) if self.average == "macro" else scores


class F1Score(FBetaScore, names=("f1_score",)):
    """The harmonic mean of precision and recall, over classes.

    Targets and predictions have shape `(batch, classes)`; targets may hold class numbers.

    Args:
        average: How scores of classes are combined: `"macro"` is their mean, `"weighted"` weights
            them by the positive targets, `"micro"` counts all classes together. `None`
            gives a score for each class. Default: `None`.
        threshold: A prediction above it is positive. `None` means only the largest of a row.
            Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> F1Score(threshold=0.5).beta
        1.0
    """

    def __init__(self, average: str | None = None, threshold: float | None = None,
                 name: str | None = None):
        super().__init__(average, 1.0, threshold, name)


def one_hot_of(name: str, y_true: Value, y_pred: Value) -> Value:
    """Targets with a number for each class, from those or from class numbers."""
    if y_true.size == y_pred.size:
        return alike(name, y_true, y_pred)
    labels = OPS.cast(OPS.reshape(y_true, y_pred.shape[:-1]), "int32")
    classes = OPS.iota(y_pred.shape, -1, "int32")
    return OPS.cast(OPS.equal(OPS.expand_dims(labels, -1), classes), y_pred.dtype)
