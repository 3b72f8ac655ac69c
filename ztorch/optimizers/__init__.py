"""Optimizers, whose steps are part of the graph. The formulas are Keras'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztorch import schedules
from ztorch.errors import unknown
from ztorch.names.member_names import SHARED, class_named, file_named, shared
from ztorch.optimizers.optimizer import Optimizer
from ztorch.optimizers.slots import Slots

if TYPE_CHECKING:  # the files of members load when a member is first named
    from ztorch.optimizers.adam import Adam, Adamax, AdamW, Nadam
    from ztorch.optimizers.adaptive import Adadelta, Adafactor, Ftrl
    from ztorch.optimizers.by_layer import Lamb, Muon
    from ztorch.optimizers.rmsprop import Adagrad, RMSprop
    from ztorch.optimizers.schedule_free import ScheduleFreeAdamW
    from ztorch.optimizers.several import LossScaleOptimizer, MultiOptimizer, OptimizerMap
    from ztorch.optimizers.sgd import SGD, Lion

__all__ = ["SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lamb",
           "Lion", "LossScaleOptimizer", "MultiOptimizer", "Muon", "Nadam", "Optimizer",
           "OptimizerMap", "RMSprop", "ScheduleFreeAdamW", "Slots", "get", "schedules"]

get = Optimizer.get

if not TYPE_CHECKING:  # it knows the names of this package

    def __getattr__(name: str) -> Any:
        if (file := file_named(__name__, name)) is not None:
            return file
        if name in SHARED:
            return shared(name)
        if name == "OptimizerMap":
            from ztorch.optimizers.several import OptimizerMap

            return OptimizerMap
        if (kind := class_named(Optimizer, name)) is not None:
            return kind
        helpers = ("Optimizer", "OptimizerMap", "Slots", "get", "schedules")
        names = [other for other in __all__ if other not in helpers]
        raise AttributeError(str(unknown("optimizer", name, names)))


def __dir__() -> list[str]:
    return __all__
