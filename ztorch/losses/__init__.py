"""Losses, which training minimizes. Each gives one number for each row: the mean over its
elements."""

from __future__ import annotations

from ztorch.losses.classification import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    CategoricalHinge,
    Hinge,
    KLDivergence,
    SparseCategoricalCrossentropy,
    SquaredHinge,
)
from ztorch.losses.ctc import CTC
from ztorch.losses.focal import BinaryFocalCrossentropy, CategoricalFocalCrossentropy
from ztorch.losses.loss import Loss, TargetSpec, get
from ztorch.losses.overlap import Dice, Tversky
from ztorch.losses.regression import (
    CosineSimilarity,
    Huber,
    LogCosh,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    Poisson,
)

__all__ = ["CTC", "BinaryCrossentropy", "BinaryFocalCrossentropy", "CategoricalCrossentropy",
           "CategoricalFocalCrossentropy", "CategoricalHinge", "CosineSimilarity", "Dice", "Hinge",
           "Huber", "KLDivergence", "LogCosh", "Loss", "MeanAbsoluteError",
           "MeanAbsolutePercentageError", "MeanSquaredError", "MeanSquaredLogarithmicError",
           "Poisson", "SparseCategoricalCrossentropy", "SquaredHinge", "TargetSpec", "Tversky",
           "get"]
