"""Metrics, which are reported beside the loss. Most give a number for each row, whose mean an
epoch reports; others add up sums over all rows, and compute one number from them."""

from __future__ import annotations

from ztorch.metrics.accuracy import (
    BinaryAccuracy,
    CategoricalAccuracy,
    CosineSimilarity,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
)
from ztorch.metrics.confusion import (
    F1Score,
    FalseNegatives,
    FalsePositives,
    FBetaScore,
    Precision,
    Recall,
    TrueNegatives,
    TruePositives,
)
from ztorch.metrics.curves import (
    AUC,
    PrecisionAtRecall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
    SpecificityAtSensitivity,
)
from ztorch.metrics.mean import Mean
from ztorch.metrics.metric import LossMetric, Metric, SumMetric
from ztorch.metrics.named import get, resolve
from ztorch.metrics.numbers import R2Score, RootMeanSquaredError
from ztorch.metrics.overlap import IoU, MeanIoU

__all__ = ["AUC", "BinaryAccuracy", "CategoricalAccuracy", "CosineSimilarity", "F1Score",
           "FBetaScore", "FalseNegatives", "FalsePositives", "IoU", "LossMetric", "Mean", "MeanIoU",
           "Metric", "Precision", "PrecisionAtRecall", "R2Score", "Recall", "RecallAtPrecision",
           "RootMeanSquaredError", "SensitivityAtSpecificity", "SparseCategoricalAccuracy",
           "SparseTopKCategoricalAccuracy", "SpecificityAtSensitivity", "SumMetric",
           "TopKCategoricalAccuracy", "TrueNegatives", "TruePositives", "get", "resolve"]
