"""Optimizers: training steps as part of the graph. The formulas are those of Keras."""

from __future__ import annotations

from ztorch.optimizers.adam import Adam, Adamax, AdamW
from ztorch.optimizers.optimizer import Optimizer, Slots
from ztorch.optimizers.rmsprop import Adagrad, RMSprop
from ztorch.optimizers.sgd import SGD, Lion

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Adamax", "Lion", "Optimizer", "RMSprop", "Slots",
           "get"]

get = Optimizer.get
