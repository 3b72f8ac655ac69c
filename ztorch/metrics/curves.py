"""Metrics of binary predictions over all thresholds: areas under curves, and points on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ztorch.config import elements, flag, fraction, number, whole
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.metrics.confusion import Thresholded, ratio
from ztorch.metrics.metric import Weigh

_BEYOND = 1e-7  # the first and last thresholds are this far outside 0 and 1, as in Keras


class _Curve(Thresholded, abstract=True):
    """Base class of metrics over evenly spaced thresholds."""

    def __init__(self, num_thresholds: int = 200, class_id: int | None = None,
                 name: str | None = None):
        super().__init__(None, class_id, name)
        self.num_thresholds = whole(f"{type(self).__name__}(num_thresholds=...)", num_thresholds, 2)

    def limits(self) -> Sequence[float]:
        if self.thresholds is not None:
            return [-_BEYOND, *sorted(self.thresholds), 1.0 + _BEYOND]
        n = self.num_thresholds
        return [-_BEYOND, *(k / (n - 1) for k in range(1, n - 1)), 1.0 + _BEYOND]


class AUC(_Curve, names=("auc",)):
    """The area under a curve of binary predictions, as a Riemann sum over thresholds.

    Args:
        num_thresholds: Number of thresholds, evenly spaced from 0 to 1. An integer of at least 2.
            Default: `200`.
        curve: `"ROC"` for true over false positives, `"PR"` for precision over recall. Default:
            `"ROC"`.
        summation_method: `"interpolation"`, or `"minoring"` or `"majoring"` for the smaller or the
            larger height of each interval. Default: `"interpolation"`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
        thresholds: Thresholds from 0 to 1 to use instead; 0 and 1 are added. Default: `None`.
        multi_label: Whether to compute the mean of one area per label, where labels are the last
            axis. Default: `False`.
        num_labels: The number of labels, which the predictions determine as well. Default: `None`.
        label_weights: The weight of each label, in the mean of areas or in its counts. Default:
            `None`.
        from_logits: Whether predictions are logits, before the sigmoid. Default: `False`.

    Examples:
        >>> AUC(curve="PR").num_thresholds
        200
    """

    def __init__(self, num_thresholds: int = 200, curve: str = "ROC",
                 summation_method: str = "interpolation", name: str | None = None,
                 thresholds: Sequence[float] | None = None, multi_label: bool = False,
                 num_labels: int | None = None, label_weights: Sequence[float] | None = None,
                 from_logits: bool = False):
        if thresholds is not None:
            thresholds = [fraction("AUC(thresholds=...)", t, below_one=False)
                          for t in elements("AUC(thresholds=...)", thresholds)]
            num_thresholds = len(thresholds) + 2
        super().__init__(num_thresholds, None, name)
        self.thresholds = thresholds
        self.multi_label = flag("AUC(multi_label=...)", multi_label)
        self.num_labels = num_labels
        self.label_weights = None if label_weights is None else [
            number("AUC(label_weights=...)", w, least=0)
            for w in elements("AUC(label_weights=...)", label_weights)]
        if curve not in ("ROC", "PR"):
            raise ConfigError(f"AUC(curve={curve!r}) must be 'ROC' or 'PR'")
        if summation_method not in ("interpolation", "minoring", "majoring"):
            raise ConfigError(f"AUC(summation_method={summation_method!r}) must be "
                              "'interpolation', 'minoring' or 'majoring'")
        self.curve, self.summation_method = curve, summation_method
        self.from_logits = from_logits

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        labels = self.num_labels if self.label_weights is None else len(self.label_weights)
        if labels is not None and y_pred.shape[-1:] != (labels,):
            raise ConfigError(f"metric {self.name!r} expects {labels} labels, and predictions have "
                              f"shape {y_pred.shape[1:]}")
        return super().sums(y_true, OPS.sigmoid(y_pred) if self.from_logits else y_pred, weigh)

    def result(self, sums: Mapping[str, Value]) -> Value:
        areas = self._areas(sums)
        if not self.multi_label or self.label_weights is None:
            return OPS.mean(areas)
        weights = constant(np.array(self.label_weights), areas.dtype)
        return ratio(OPS.sum(areas * weights), OPS.sum(weights))

    def _areas(self, sums: Mapping[str, Value]) -> Value:
        tp, fp = sums["true_positives"], sums["false_positives"]
        fn, tn = sums["false_negatives"], sums["true_negatives"]
        if self.curve == "PR" and self.summation_method == "interpolation":
            return self._interpolated(tp, fp, fn)
        recall = ratio(tp, tp + fn)
        x, y = (ratio(fp, fp + tn), recall) if self.curve == "ROC" else (recall, ratio(tp, tp + fp))
        first, second = y[..., :-1], y[..., 1:]
        heights = ((first + second) * 0.5 if self.summation_method == "interpolation" else
                   OPS.minimum(first, second) if self.summation_method == "minoring" else
                   OPS.maximum(first, second))
        return OPS.sum((x[..., :-1] - x[..., 1:]) * heights, axis=-1)

    @staticmethod
    def _interpolated(tp: Value, fp: Value, fn: Value) -> Value:
        """The area if the counts grow linearly between thresholds, so that precision does not."""
        p, low, high = tp + fp, (..., slice(1, None)), (..., slice(None, -1))
        step = tp[high] - tp[low]
        slope = ratio(step, OPS.maximum(p[high] - p[low], 0.0))
        offset = tp[low] - slope * p[low]
        positive = OPS.logical_and(p[high] > 0.0, p[low] > 0.0)
        growth = OPS.where(positive, ratio(p[high], OPS.maximum(p[low], 0.0)), OPS.ones_like(step))
        gain = ratio(slope * (step + offset * OPS.log(growth)),
                     OPS.maximum(tp[low] + fn[low], 0.0))
        return OPS.sum(gain, axis=-1)


class _AtValue(_Curve, abstract=True):
    """Base class of the best value of one rate over the thresholds at which another rate reaches a
    bound."""

    bound = ""  # the argument that holds the bound

    def __init__(self, value: float, num_thresholds: int, class_id: int | None,
                 name: str | None):
        super().__init__(num_thresholds, class_id, name)
        setattr(self, self.bound, fraction(f"{type(self).__name__}({self.bound}=...)", value,
                                           below_one=False))

    def best(self, reached: Value, value: Value) -> Value:
        """The largest value at the thresholds that reach the bound; 0 if none does."""
        enough = reached >= float(getattr(self, self.bound))
        return OPS.max(OPS.where(enough, value, OPS.zeros_like(value)))


def _sensitivity(sums: Mapping[str, Value]) -> Value:
    return ratio(sums["true_positives"], sums["true_positives"] + sums["false_negatives"])


def _specificity(sums: Mapping[str, Value]) -> Value:
    return ratio(sums["true_negatives"], sums["true_negatives"] + sums["false_positives"])


def _precision(sums: Mapping[str, Value]) -> Value:
    return ratio(sums["true_positives"], sums["true_positives"] + sums["false_positives"])


class PrecisionAtRecall(_AtValue, names=("precision_at_recall",)):
    """The best precision over thresholds with at least a given recall.

    Args:
        recall: The minimum recall, from 0 to 1.
        num_thresholds: Number of thresholds, evenly spaced from 0 to 1. Default: `200`.
        class_id: The class that counts, an index of the last axis. `None` means all. Default:
            `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> PrecisionAtRecall(0.8).recall
        0.8
    """

    bound = "recall"

    def __init__(self, recall: float, num_thresholds: int = 200, class_id: int | None = None,
                 name: str | None = None):
        super().__init__(recall, num_thresholds, class_id, name)

    def result(self, sums: Mapping[str, Value]) -> Value:
        return self.best(_sensitivity(sums), _precision(sums))


class RecallAtPrecision(_AtValue, names=("recall_at_precision",)):
    """The best recall over thresholds with at least a given precision.

    Args:
        precision: The minimum precision, from 0 to 1.
        num_thresholds: Number of thresholds, evenly spaced from 0 to 1. Default: `200`.
        class_id: The class that counts, an index of the last axis. `None` means all. Default:
            `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> RecallAtPrecision(0.8).precision
        0.8
    """

    bound = "precision"

    def __init__(self, precision: float, num_thresholds: int = 200, class_id: int | None = None,
                 name: str | None = None):
        super().__init__(precision, num_thresholds, class_id, name)

    def result(self, sums: Mapping[str, Value]) -> Value:
        return self.best(_precision(sums), _sensitivity(sums))


class SensitivityAtSpecificity(_AtValue, names=("sensitivity_at_specificity",)):
    """The best sensitivity over thresholds with at least a given specificity.

    Args:
        specificity: The minimum fraction of negatives that are predicted as such, from 0 to 1.
        num_thresholds: Number of thresholds, evenly spaced from 0 to 1. Default: `200`.
        class_id: The class that counts, an index of the last axis. `None` means all. Default:
            `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> SensitivityAtSpecificity(0.5).specificity
        0.5
    """

    bound = "specificity"

    def __init__(self, specificity: float, num_thresholds: int = 200,
                 class_id: int | None = None, name: str | None = None):
        super().__init__(specificity, num_thresholds, class_id, name)

    def result(self, sums: Mapping[str, Value]) -> Value:
        return self.best(_specificity(sums), _sensitivity(sums))


class SpecificityAtSensitivity(_AtValue, names=("specificity_at_sensitivity",)):
    """The best specificity over thresholds with at least a given sensitivity.

    Args:
        sensitivity: The minimum fraction of positives that are predicted as such, from 0 to 1.
        num_thresholds: Number of thresholds, evenly spaced from 0 to 1. Default: `200`.
        class_id: The class that counts, an index of the last axis. `None` means all. Default:
            `None`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> SpecificityAtSensitivity(0.5).sensitivity
        0.5
    """

    bound = "sensitivity"

    def __init__(self, sensitivity: float, num_thresholds: int = 200,
                 class_id: int | None = None, name: str | None = None):
        super().__init__(sensitivity, num_thresholds, class_id, name)

    def result(self, sums: Mapping[str, Value]) -> Value:
        return self.best(_sensitivity(sums), _specificity(sums))
