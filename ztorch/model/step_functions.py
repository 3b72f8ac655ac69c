"""Custom steps of a model: the functions of its program that they define, and their data."""

from __future__ import annotations

from typing import Any, NamedTuple

from ztorch.layers.context import Context, States
from ztorch.layers.network import Network
from ztorch.layers.real_positions import Padding
from ztorch.layers.symbol import leaves
from ztorch.metrics import Metric
from ztorch.model.objectives import losses_of
from ztorch.model.open_axes import sizes_of


class StepData(NamedTuple):
    """The form of the data of a custom step, which follows from those of `fit`."""

    weights: bool = False  # whether they include the weights of rows
    in_tuple: bool = False  # whether x alone is in a tuple
    targets: bool = True  # whether they include targets, where a loss describes them


PLAIN = StepData()  # (x, y), or x


def own_functions(model: Any, loss: Any, optimizer: Any) -> frozenset[str]:
    """The functions of a program that steps of a model define, for arguments of `compile`: those of
    its class, and all that compute scores if only layers add the loss, or keep metrics."""
    own: frozenset[str] = model.own_functions
    trains = optimizer is not None
    if model.has_steps_alone:
        return own
    scored = (trains and "train" not in own) if loss is None else keeps_metrics(model)
    return own | {"evaluate", *(["train"] if trains else [])} if scored else own


def keeps_metrics(model: Network) -> bool:
    """Whether a model or its layers have metrics, which their `call` may update."""
    return any(isinstance(x, Metric) for _, layer in model.walk()
               for attribute in vars(layer).values() for x in leaves(attribute))


def need_some_loss(model: Network, loss: Any, optimizer: Any, metrics: Any, sizes: Any) -> None:
    """Raises an error if nothing gives a model with known inputs a loss of its data."""
    if loss is not None or optimizer is None or "train" in model.own_functions:
        return
    widest = {name: axis[-1] for name, axis in sizes_of(model, sizes).items()}
    context = Context(training=True, states=States(data=False, root=model.path),
                      padding=Padding(widest))
    model.called(model.leaves(1, sizes=widest), context)
    if not (context.losses or context.penalties):
        losses_of(model, loss, optimizer, metrics)  # raises the error
