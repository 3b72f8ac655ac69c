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
from ztorch.losses.loss import Loss, TargetSpec, get
from ztorch.losses.regression import (
    Huber,
    LogCosh,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    Poisson,
)

__all__ = ["BinaryCrossentropy", "CategoricalCrossentropy", "CategoricalHinge", "Hinge", "Huber",
           "KLDivergence", "LogCosh", "Loss", "MeanAbsoluteError", "MeanAbsolutePercentageError",
           "MeanSquaredError", "MeanSquaredLogarithmicError", "Poisson",
           "SparseCategoricalCrossentropy", "SquaredHinge", "TargetSpec", "get"]
