"""Metrics of binary predictions: counts of correct and wrong ones at thresholds, and ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.config import number, whole
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.metrics.metric import SumMetric, Weigh, alike

LOWEST = 1e10  # minus this number is below all thresholds, as in Keras
COUNTS = ("true_positives", "false_positives", "true_negatives", "false_negatives")


def ratio(a: Value, b: Value) -> Value:
    """a / b, and 0 where b is 0."""
    return OPS.where(OPS.equal(b, 0.0), OPS.zeros_like(a), a / OPS.where(OPS.equal(b, 0.0), 1.0, b))


class Thresholded(SumMetric, abstract=True):
    """Base class of metrics that count predictions above thresholds. A nonzero target is
    positive."""

    counts: tuple[str, ...] = COUNTS  # the counts that the metric needs
    top_k: int | None = None  # per row, only so many of the largest predictions may be positive
    multi_label = False  # whether each class is counted separately
    label_weights: Sequence[float] | None = None  # weights of the counts of each class

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

    def by_threshold(self, scores: Value) -> Value:
        """The score of the only threshold, or one for each of them."""
        return scores[0] if len(self.limits()) == 1 else scores

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        y = alike(self.name, y_true, y_pred)
        if self.top_k is not None:
            y_pred = largest_of_rows(self.name, y_pred, self.top_k)
        if self.class_id is not None:
            if not y.rank or self.class_id >= y.shape[-1]:
                raise ConfigError(f"metric {self.name!r}: class {self.class_id} does not exist in "
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
    """Predictions in which all but the k largest of each row are very low."""
    if not y_pred.rank or k > y_pred.shape[-1]:
        raise ConfigError(f"metric {name!r}: top_k={k} is too large for predictions of shape "
                          f"{y_pred.shape[1:]}")
    _, places = OPS.top_k(y_pred, k)
    classes = OPS.iota((y_pred.shape[-1], 1), 0, places.dtype)
    is_top = OPS.any(OPS.equal(OPS.expand_dims(places, -2), classes), axis=-1)
    return OPS.where(is_top, y_pred, -LOWEST)


class _Count(Thresholded, abstract=True):
    """Base class of the four counts."""

    def __init__(self, thresholds: Any = None, name: str | None = None):
        super().__init__(thresholds, None, name)

    def result(self, sums: Mapping[str, Value]) -> Value:
        [count] = self.counts
        return self.by_threshold(sums[count])


class TruePositives(_Count, names=("true_positives",)):
    """The number of predictions above a threshold with a positive target.

    Args:
        thresholds: A prediction above it is positive. A list gives a score for each. `None` means
            0.5. Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> TruePositives().limits()
        [0.5]
    """

    counts = ("true_positives",)


class FalsePositives(_Count, names=("false_positives",)):
    """The number of predictions above a threshold with a negative target.

    Args:
        thresholds: A prediction above it is positive. A list gives a score for each. `None` means
            0.5. Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> FalsePositives(thresholds=0.3).limits()
        [0.3]
    """

    counts = ("false_positives",)


class TrueNegatives(_Count, names=("true_negatives",)):
    """The number of predictions not above a threshold with a negative target.

    Args:
        thresholds: A prediction above it is positive. A list gives a score for each. `None` means
            0.5. Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> TrueNegatives().name
        'true_negatives'
    """

    counts = ("true_negatives",)


class FalseNegatives(_Count, names=("false_negatives",)):
    """The number of predictions not above a threshold with a positive target.

    Args:
        thresholds: A prediction above it is positive. A list gives a score for each. `None` means
            0.5. Default: `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> FalseNegatives().name
        'false_negatives'
    """

    counts = ("false_negatives",)


class Precision(Thresholded, names=("precision",)):
    """The fraction of predicted positives that are correct; 0 if there are none.

    Args:
        thresholds: A prediction above it is positive. A list gives a score for each. `None` means
            0.5, or, with `top_k`, no threshold. Default: `None`.
        top_k: Number of the largest predictions of a row that may be positive. `None` means all.
            Default: `None`.
        class_id: The class that counts, an index of the last axis. `None` means all. Default:
            `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> Precision(thresholds=0.4).limits()
        [0.4]
    """

    counts = ("true_positives", "false_positives")

    def __init__(self, thresholds: Any = None, top_k: int | None = None,
                 class_id: int | None = None, name: str | None = None):
        super().__init__(thresholds, class_id, name)
        self.top_k = None if top_k is None else whole("Precision(top_k=...)", top_k, 1)

    def result(self, sums: Mapping[str, Value]) -> Value:
        right = sums["true_positives"]
        return self.by_threshold(ratio(right, right + sums["false_positives"]))


class Recall(Thresholded, names=("recall",)):
    """The fraction of true positives that are predicted; 0 if there are none.

    Args:
        thresholds: A prediction above it is positive. A list gives a score for each. `None` means
            0.5, or, with `top_k`, no threshold. Default: `None`.
        top_k: Number of the largest predictions of a row that may be positive. `None` means all.
            Default: `None`.
        class_id: The class that counts, an index of the last axis. `None` means all. Default:
            `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> Recall(class_id=2).class_id
        2
    """

    counts = ("true_positives", "false_negatives")

    def __init__(self, thresholds: Any = None, top_k: int | None = None,
                 class_id: int | None = None, name: str | None = None):
        super().__init__(thresholds, class_id, name)
        self.top_k = None if top_k is None else whole("Recall(top_k=...)", top_k, 1)

    def result(self, sums: Mapping[str, Value]) -> Value:
        right = sums["true_positives"]
        return self.by_threshold(ratio(right, right + sums["false_negatives"]))
