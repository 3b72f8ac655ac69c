"""Metrics of yes-or-no predictions: counts of right and wrong ones at thresholds, their ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.config import fraction, number, whole
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.metrics.metric import SumMetric, Weigh, alike

LOWEST = 1e10  # the size of a prediction that is below all thresholds, as in Keras
COUNTS = ("true_positives", "false_positives", "true_negatives", "false_negatives")


def ratio(a: Value, b: Value) -> Value:
    """a / b, and 0 where b is 0."""
    return OPS.where(OPS.equal(b, 0.0), OPS.zeros_like(a), a / OPS.where(OPS.equal(b, 0.0), 1.0, b))


class Thresholded(SumMetric, abstract=True):
    """Base of metrics that count predictions above thresholds. Targets that are not 0 are yes."""

    counts: tuple[str, ...] = COUNTS  # those that the metric needs
    top_k: int | None = None  # in a row, so many of the largest predictions may be a yes
    multi_label = False  # whether each class is counted alone
    label_weights: Sequence[float] | None = None  # of all counts of a class

    def __init__(self, thresholds: Any = None, class_id: int | None = None,
                 name: str | None = None):
        super().__init__(name)
        self.thresholds = None if thresholds is None else [
            number(f"{type(self).__name__}(thresholds=...)", t) for t in (
                thresholds if isinstance(thresholds, (list, tuple)) else [thresholds])]
        self.class_id = None if class_id is None else whole(
            f"{type(self).__name__}(class_id=...)", class_id)

    def limits(self) -> Sequence[float]:
        """The thresholds."""
        if self.thresholds is not None:
            return self.thresholds
        return [0.5] if self.top_k is None else [-LOWEST / 2]

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        y = alike(self.name, y_true, y_pred)
        if self.top_k is not None:
            y_pred = largest_of_rows(self.name, y_pred, self.top_k)
        if self.class_id is not None:
            if not y.rank or self.class_id >= y.shape[-1]:
                raise ConfigError(f"metric {self.name!r}: there is no class {self.class_id} in "
                                  f"predictions of shape {y_pred.shape[1:]}")
            y, y_pred = y[..., self.class_id], y_pred[..., self.class_id]
        limits = constant(np.asarray(self.limits(), y_pred.dtype.working), y_pred.dtype)
        above = OPS.cast(OPS.expand_dims(y_pred, -1) > limits, y.dtype)
        yes = OPS.cast(OPS.expand_dims(OPS.not_equal(y, 0.0), -1), y.dtype)
        values = {"true_positives": yes * above, "false_positives": (1.0 - yes) * above,
                  "true_negatives": (1.0 - yes) * (1.0 - above),
                  "false_negatives": yes * (1.0 - above)}
        if self.label_weights is not None and not self.multi_label:
            weights = constant(np.reshape(self.label_weights, (-1, 1)), y.dtype)
            values = {n: x * weights for n, x in values.items()}
        axes = tuple(range(y.rank - self.multi_label))
        return {n: OPS.sum(weigh(values[n]), axis=axes) for n in self.counts}


def largest_of_rows(name: str, y_pred: Value, k: int) -> Value:
    """Predictions of which all but the k largest of each row are very low."""
    if not y_pred.rank or k > y_pred.shape[-1]:
        raise ConfigError(f"metric {name!r}: top_k={k}, and predictions have shape "
                          f"{y_pred.shape[1:]}")
    _, places = OPS.top_k(y_pred, k)
    classes = OPS.iota((y_pred.shape[-1], 1), 0, places.dtype)
    kept = OPS.any(OPS.equal(OPS.expand_dims(places, -2), classes), axis=-1)
    return OPS.where(kept, y_pred, -LOWEST)


class _Count(Thresholded, abstract=True):
    """Base of the four counts."""

    def __init__(self, thresholds: float | None = None, name: str | None = None):
        super().__init__(_single(type(self).__name__, thresholds), None, name)

    def result(self, sums: Mapping[str, Value]) -> Value:
        [count] = self.counts
        return sums[count][0]


class TruePositives(_Count, names=("true_positives",)):
    """The number of predictions above a threshold whose target is yes.

    Args:
        thresholds: A prediction above it is a yes. `None` means 0.5. Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> TruePositives().limits()
        [0.5]
    """

    counts = ("true_positives",)


class FalsePositives(_Count, names=("false_positives",)):
    """The number of predictions above a threshold whose target is no.

    Args:
        thresholds: A prediction above it is a yes. `None` means 0.5. Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> FalsePositives(thresholds=0.3).limits()
        [0.3]
    """

    counts = ("false_positives",)


class TrueNegatives(_Count, names=("true_negatives",)):
    """The number of predictions not above a threshold whose target is no.

    Args:
        thresholds: A prediction above it is a yes. `None` means 0.5. Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> TrueNegatives().name
        'true_negatives'
    """

    counts = ("true_negatives",)


class FalseNegatives(_Count, names=("false_negatives",)):
    """The number of predictions not above a threshold whose target is yes.

    Args:
        thresholds: A prediction above it is a yes. `None` means 0.5. Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> FalseNegatives().name
        'false_negatives'
    """

    counts = ("false_negatives",)


class Precision(Thresholded, names=("precision",)):
    """The share of predicted yeses that are right; 0 where there are none.

    Args:
        thresholds: A prediction above it is a yes. `None` means 0.5, and with `top_k` none.
            Default: `None`.
        top_k: In a row, so many of the largest predictions may be a yes. `None` means all.
            Default: `None`.
        class_id: The class that counts, an index of the last axis. `None` means all. Default:
            `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> Precision(thresholds=0.4).limits()
        [0.4]
    """

    counts = ("true_positives", "false_positives")

    def __init__(self, thresholds: float | None = None, top_k: int | None = None,
                 class_id: int | None = None, name: str | None = None):
        super().__init__(_single("Precision", thresholds), class_id, name)
        self.top_k = None if top_k is None else whole("Precision(top_k=...)", top_k, 1)

    def result(self, sums: Mapping[str, Value]) -> Value:
        right = sums["true_positives"]
        return ratio(right, right + sums["false_positives"])[0]


class Recall(Thresholded, names=("recall",)):
    """The share of true yeses that are predicted; 0 where there are none.

    Args:
        thresholds: A prediction above it is a yes. `None` means 0.5, and with `top_k` none.
            Default: `None`.
        top_k: In a row, so many of the largest predictions may be a yes. `None` means all.
            Default: `None`.
        class_id: The class that counts, an index of the last axis. `None` means all. Default:
            `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> Recall(class_id=2).class_id
        2
    """

    counts = ("true_positives", "false_negatives")

    def __init__(self, thresholds: float | None = None, top_k: int | None = None,
                 class_id: int | None = None, name: str | None = None):
        super().__init__(_single("Recall", thresholds), class_id, name)
        self.top_k = None if top_k is None else whole("Recall(top_k=...)", top_k, 1)

    def result(self, sums: Mapping[str, Value]) -> Value:
        right = sums["true_positives"]
        return ratio(right, right + sums["false_negatives"])[0]


class FBetaScore(SumMetric, names=("fbeta_score",)):
    """The weighted harmonic mean of precision and recall, over classes.

    Targets and predictions have shape `(batch, classes)`; targets may hold class numbers.

    Args:
        average: How scores of classes become one: `"macro"` is their mean, `"weighted"` weighs
            them by the yeses among the targets, `"micro"` counts all classes together. Default:
            `"macro"`.
        beta: Recall counts so many times as much as precision. Default: `1.0`.
        threshold: A prediction above it is a yes. `None` makes the largest of a row the only yes.
            Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> FBetaScore(beta=2.0).average
        'macro'
    """

    def __init__(self, average: str = "macro", beta: float = 1.0, threshold: float | None = None,
                 name: str | None = None):
        super().__init__(name)
        kind = type(self).__name__
        if average not in ("macro", "weighted", "micro"):
            raise ConfigError(f"{kind}(average={average!r}): a score is one number; choose "
                              "'macro', 'weighted' or 'micro'")
        self.average, self.beta = average, number(f"{kind}(beta=...)", beta, above=0)
        self.threshold = None if threshold is None else fraction(
            f"{kind}(threshold=...)", threshold, below_one=False)

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        y = one_hot_of(self.name, y_true, y_pred)
        chosen = (OPS.equal(y_pred, OPS.max(y_pred, axis=-1, keepdims=True))
                  if self.threshold is None else y_pred > self.threshold)
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
        return OPS.mean(scores)


class F1Score(FBetaScore, names=("f1_score",)):
    """The harmonic mean of precision and recall, over classes.

    Targets and predictions have shape `(batch, classes)`; targets may hold class numbers.

    Args:
        average: How scores of classes become one: `"macro"` is their mean, `"weighted"` weighs
            them by the yeses among the targets, `"micro"` counts all classes together. Default:
            `"macro"`.
        threshold: A prediction above it is a yes. `None` makes the largest of a row the only yes.
            Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> F1Score(threshold=0.5).beta
        1.0
    """

    def __init__(self, average: str = "macro", threshold: float | None = None,
                 name: str | None = None):
        super().__init__(average, 1.0, threshold, name)


def one_hot_of(name: str, y_true: Value, y_pred: Value) -> Value:
    """Targets with a number for each class, from those or from class numbers."""
    if y_true.size == y_pred.size:
        return alike(name, y_true, y_pred)
    labels = OPS.cast(OPS.reshape(y_true, y_pred.shape[:-1]), "int32")
    classes = OPS.iota(y_pred.shape, -1, "int32")
    return OPS.cast(OPS.equal(OPS.expand_dims(labels, -1), classes), y_pred.dtype)


def _single(kind: str, threshold: Any) -> Any:
    """A threshold, which may be a list of one."""
    if isinstance(threshold, (list, tuple)):
        if len(threshold) != 1:
            raise ConfigError(f"{kind}(thresholds={threshold!r}): a score is one number, so there "
                              "is one threshold; add a metric for each, with names of their own")
        return threshold[0]
    return threshold
