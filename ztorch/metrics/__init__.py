"""Metrics, which are reported beside the loss. Most give one number per row, and an epoch reports
their mean. Others accumulate sums over all rows and compute one number from the totals."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ztorch.errors import unknown
from ztorch.losses.loss import Loss
from ztorch.losses.numbers import LossFunction
from ztorch.metrics.metric import Metric, SumMetric
from ztorch.names.member_names import SHARED, class_named, file_named, shared

if TYPE_CHECKING:  # the files of members load when a member is first named
    from ztorch.metrics.accuracy import (
        Accuracy,
        BinaryAccuracy,
        CategoricalAccuracy,
        CosineSimilarity,
        SparseCategoricalAccuracy,
        SparseTopKCategoricalAccuracy,
        TopKCategoricalAccuracy,
    )
    from ztorch.metrics.confusion import (
        FalseNegatives,
        FalsePositives,
        Precision,
        Recall,
        TrueNegatives,
        TruePositives,
    )
    from ztorch.metrics.correlation import ConcordanceCorrelation, PearsonCorrelation
    from ztorch.metrics.curves import (
        AUC,
        PrecisionAtRecall,
        RecallAtPrecision,
        SensitivityAtSpecificity,
        SpecificityAtSensitivity,
    )
    from ztorch.metrics.f_scores import F1Score, FBetaScore
    from ztorch.metrics.functions import (
        LossMetric,
        MeanMetricWrapper,
    )
    from ztorch.metrics.mean import Mean, Sum
    from ztorch.metrics.named import get, resolve
    from ztorch.metrics.numbers import R2Score, RootMeanSquaredError
    from ztorch.metrics.overlap import BinaryIoU, IoU, MeanIoU, OneHotIoU, OneHotMeanIoU
    from ztorch.metrics.weighted import MetricLists, WeightedMetric

__all__ = ["AUC", "Accuracy", "BinaryAccuracy", "BinaryIoU", "CategoricalAccuracy",
           "ConcordanceCorrelation", "CosineSimilarity", "F1Score", "FBetaScore", "FalseNegatives",
           "FalsePositives", "IoU", "LossMetric", "Mean", "MeanIoU", "MeanMetricWrapper", "Metric",
           "MetricLists", "OneHotIoU", "OneHotMeanIoU", "PearsonCorrelation", "Precision",
           "PrecisionAtRecall", "R2Score", "Recall", "RecallAtPrecision", "RootMeanSquaredError",
           "SensitivityAtSpecificity", "SparseCategoricalAccuracy",
           "SparseTopKCategoricalAccuracy", "SpecificityAtSensitivity", "Sum", "SumMetric",
           "TopKCategoricalAccuracy", "TrueNegatives", "TruePositives", "WeightedMetric",
           "get", "resolve"]

_FILES = {"Mean": "mean", "MeanMetricWrapper": "functions", "MetricLists": "weighted",
          "Sum": "mean", "get": "named", "resolve": "named"}  # of names that configs cannot have
_OF_LOSSES = {"LogCoshError": "LogCosh"}  # Keras' name of a loss as a metric

if TYPE_CHECKING:
    def __getattr__(name: str) -> Any: ...
else:

    def __getattr__(name: str) -> Any:
        if (file := file_named(__name__, name)) is not None:
            return file
        if name in SHARED:
            return shared(name)
        if name in _FILES:
            return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
        if (kind := class_named(Metric, name)) is not None:
            return kind
        metric, loss = Metric.known.get(name), Loss.known.get(_OF_LOSSES.get(name, name))
        if metric is not None and not issubclass(metric, SumMetric):
            from ztorch.metrics.functions import MetricFunction

            return MetricFunction(metric, name)
        if metric is None and loss is not None:  # a class, or a lower-case function
            from ztorch.metrics.functions import LossAsMetric

            return LossAsMetric(loss) if name[0].isupper() else LossFunction(loss, name)
        helpers = ("LossMetric", "Metric", "MetricLists", "SumMetric", "get", "resolve")
        names = [other for other in __all__ if other not in helpers]
        raise AttributeError(str(unknown("metric", name, names)))


def __dir__() -> list[str]:
    return __all__
