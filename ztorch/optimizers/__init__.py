"""Optimizers, whose steps are part of the graph. The formulas are Keras'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztorch import schedules
from ztorch.errors import unknown
from ztorch.names.member_names import SHARED, shared
from ztorch.optimizers.adam import Adam, Adamax, AdamW, Nadam
from ztorch.optimizers.adaptive import Adadelta, Adafactor, Ftrl
from ztorch.optimizers.by_layer import Lamb, Muon
from ztorch.optimizers.optimizer import Optimizer
from ztorch.optimizers.rmsprop import Adagrad, RMSprop
from ztorch.optimizers.schedule_free import ScheduleFreeAdamW
from ztorch.optimizers.several import LossScaleOptimizer, MultiOptimizer, OptimizerMap
from ztorch.optimizers.sgd import SGD, Lion
from ztorch.optimizers.slots import Slots

__all__ = ["SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lamb",
           "Lion", "LossScaleOptimizer", "MultiOptimizer", "Muon", "Nadam", "Optimizer",
           "OptimizerMap", "RMSprop", "ScheduleFreeAdamW", "Slots", "get", "schedules"]

get = Optimizer.get

if not TYPE_CHECKING:  # it knows the names of this package

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in SHARED:
            return shared(name)
        helpers = ("Optimizer", "OptimizerMap", "Slots", "get", "schedules")
        names = [other for other in __all__ if other not in helpers]
        raise AttributeError(str(unknown("optimizer", name, names)))
