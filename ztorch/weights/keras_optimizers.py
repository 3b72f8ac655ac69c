"""The states of optimizers in files of Keras 3. They are identified by their order: the step, the
learning rate unless it is a schedule, and then the slots of all weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.layers.network import Network
from ztorch.layers.weight import Weight
from ztorch.weights.modules import Entry, ModelPart, Values

STEP, RATE = "optimizer/step", "optimizer/learning_rate"  # names of states

# Names of our slots in Keras' order. Those of a group are adjacent for each weight; groups
# follow each other. Slots that an argument of the optimizer adds are listed under its name.
_SLOTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "SGD": (), "Adam": (("m", "v"),), "AdamW": (("m", "v"),), "Lamb": (("m", "v"),),
    "Adamax": (("m", "u"),), "Lion": (("m",),), "Adagrad": (("accumulator",),),
    "Adadelta": (("accumulated_grad", "accumulated_delta_var"),),
    "Ftrl": (("accumulator", "linear"),), "RMSprop": (("velocity",),)}
_ADDED = {("SGD", "momentum"): "momentum", ("Adam", "amsgrad"): "v_max",
          ("AdamW", "amsgrad"): "v_max", ("RMSprop", "momentum"): "momentum",
          ("RMSprop", "centered"): "average_gradient"}
_OTHERS = ("use_ema", "gradient_accumulation_steps")  # arguments that add other states


def _groups(optimizer: Mapping[str, Any]) -> tuple[tuple[str, ...], ...] | None:
    """The slots of an optimizer in a Keras config; None if its states cannot be matched."""
    name, config = optimizer["class_name"], optimizer["config"]
    if name not in _SLOTS or any(config.get(argument) for argument in _OTHERS):
        return None
    return (*_SLOTS[name], *((slot,) for (owner, argument), slot in _ADDED.items()
                             if owner == name and config.get(argument)))


def _has_rate(optimizer: Mapping[str, Any]) -> bool:
    return not isinstance(optimizer["config"].get("learning_rate"), Mapping)  # a schedule


def _entries(model: Network, parts: Sequence[ModelPart]) -> list[Entry]:
    """The tensors of trainable weights in Keras' order."""
    of_weight = {w: entry for part in parts for entry in part.entries.values()
                 for w in entry.weights}
    return list(dict.fromkeys(of_weight[w] for w in model.trainable_weights))


def _slots(groups: Sequence[Sequence[str]], entries: Sequence[Entry]) -> Iterator[
        tuple[Entry, str]]:
    for group in groups:
        for entry in entries:
            for slot in group:
                yield entry, slot


def _state(weight: Weight, slot: str) -> str:
    return f"optimizer/{weight.path}/{slot}"


def variables(optimizer: Mapping[str, Any], model: Network, parts: Sequence[ModelPart],
              states: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The variables of an optimizer in Keras' order; empty if Keras keeps other states.

    Args:
        optimizer: Its config in Keras' format.
        model: The model that it trained.
        parts: The groups of the file.
        states: Our states by name.
    """
    groups = _groups(optimizer)
    if groups is None or STEP not in states:
        return []
    first = [np.asarray(states[STEP], np.int32)]
    if _has_rate(optimizer):
        first.append(np.asarray(states[RATE], np.float32))
    return first + [
        entry.write({w: np.asarray(states[_state(w, slot)], np.float32) for w in entry.weights})
        for entry, slot in _slots(groups, _entries(model, parts))]


def states(optimizer: Mapping[str, Any], model: Network, parts: Sequence[ModelPart],
           stored: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Our states by name, from the variables in a file; empty if they do not match the optimizer.
    Arguments as in `variables`."""
    groups = _groups(optimizer)
    if groups is None:
        return {}
    slots = list(_slots(groups, _entries(model, parts)))
    head = 1 + _has_rate(optimizer)
    if [a.shape for a in stored[head:]] != [entry.shape for entry, _ in slots]:
        return {}
    by_name = dict(zip((STEP, RATE), stored[:head], strict=False))
    for (entry, slot), array in zip(slots, stored[head:], strict=True):
        into: Values = {w: np.zeros(w.shape, np.float32) for w in entry.weights}
        entry.read(array, into)
        by_name |= {_state(w, slot): x for w, x in into.items()}
    return by_name
