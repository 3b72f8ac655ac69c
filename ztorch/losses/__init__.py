"""Losses, which training minimizes. Each gives one number per row: the mean over its elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztorch.errors import unknown
from ztorch.losses.loss import Loss, TargetSpec, UnfitTargets, get
from ztorch.losses.numbers import LossFunction
from ztorch.names.member_names import SHARED, class_named, file_named, shared

if TYPE_CHECKING:  # the files of members load when a member is first named
    from ztorch.losses.classification import (
        BinaryCrossentropy,
        CategoricalCrossentropy,
        CategoricalGeneralizedCrossEntropy,
        CategoricalHinge,
        Hinge,
        KLDivergence,
        SparseCategoricalCrossentropy,
        SquaredHinge,
    )
    from ztorch.losses.ctc import CTC
    from ztorch.losses.focal import BinaryFocalCrossentropy, CategoricalFocalCrossentropy
    from ztorch.losses.overlap import Dice, Tversky
    from ztorch.losses.pairs import Circle
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
           "CategoricalFocalCrossentropy", "CategoricalGeneralizedCrossEntropy",
           "CategoricalHinge", "Circle", "CosineSimilarity", "Dice", "Hinge",
           "Huber", "KLDivergence", "LogCosh", "Loss", "MeanAbsoluteError",
           "MeanAbsolutePercentageError", "MeanSquaredError", "MeanSquaredLogarithmicError",
           "Poisson", "SparseCategoricalCrossentropy", "SquaredHinge", "TargetSpec", "Tversky",
           "UnfitTargets", "get"]

if TYPE_CHECKING:
    def __getattr__(name: str) -> Any: ...
else:

    def __getattr__(name: str) -> Any:
        if (file := file_named(__name__, name)) is not None:
            return file
        if name in SHARED:
            return shared(name)
        if (kind := class_named(Loss, name)) is not None:
            return kind
        if name in Loss.known:  # lower-case functions, such as mean_squared_error
            return LossFunction(Loss.known[name], name)
        helpers = ("Loss", "TargetSpec", "UnfitTargets", "get")
        names = [other for other in __all__ if other not in helpers]
        raise AttributeError(str(unknown("loss", name, names)))


def __dir__() -> list[str]:
    return __all__
