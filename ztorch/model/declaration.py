"""A model as data: an artifact's record of how it was declared and compiled."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ztorch.config import Named
from ztorch.errors import ZtorchError
from ztorch.files.kinds import LONGEST_TEXT
from ztorch.graph.value import Value
from ztorch.layers.network import Network
from ztorch.model.objectives import Objective
from ztorch.names.class_names import is_ours
from ztorch.optimizers import Optimizer
from ztorch.runtime.snapshot import Declaration, NamedConfig
from ztorch.tabular.record import TextRecord


def declaration_of(model: Network, outputs: Mapping[str, Value],
                   objectives: Mapping[str, Objective], optimizer: Optimizer | None) -> Declaration:
    """The declaration of a model that is compiled for these objectives."""
    description, lacks = _description(model)
    by_output = {name: objectives.get(name) for name in outputs}
    losses = {name: _named_config(o.loss) if o and o.loss else None
              for name, o in by_output.items()}
    metrics = {name: tuple(config for metric in (o.metrics if o else ())
                           if (config := _named_config(metric)) is not None)
               for name, o in by_output.items()}
    trainer = None if optimizer is None else _named_config(optimizer)
    configs = [*losses.values(), *(c for each in metrics.values() for c in each), trainer]
    names = [*_class_names(description), *(name for c in configs if c for name in (
        c.name, *_class_names(c.config)))]
    return Declaration(
        model=description, lacks=lacks[:LONGEST_TEXT],
        custom=tuple(name for name in dict.fromkeys(names) if _is_custom(name)),
        loss=losses, loss_weights={name: o.weight if o else None for name, o in by_output.items()},
        metrics=metrics, optimizer=trainer)


def texts_of(model: Network) -> dict[str, TextRecord | None]:
    """The encoders of text inputs, by the names of all inputs; empty if there are none."""
    texts = {name: None if x.encoder is None else TextRecord(
        type(x.encoder).__name__, x.encoder.get_config(), x.text_shape)
        for name, x in model.inputs_by_name.items()}
    return texts if any(texts.values()) else {}


def _description(model: Network) -> tuple[dict[str, Any] | None, str]:
    """Class and config of a model, or None and the reason why it has no config."""
    try:
        config = json.loads(json.dumps(model.get_config(), allow_nan=False))
    except (ZtorchError, TypeError, ValueError, RecursionError) as error:
        return None, str(error)
    return {"class_name": type(model).config_name, "config": config}, ""


def _named_config(member: Named) -> NamedConfig | None:
    """Class and config of a loss, a metric or an optimizer; None if it contains a function."""
    name = type(member).config_name
    if member.known.get(name) is not type(member):
        return None
    try:
        config = json.loads(json.dumps(member.get_config(), allow_nan=False))
    except (ZtorchError, TypeError, ValueError, RecursionError):
        return None
    return NamedConfig(name, config)


def _class_names(config: Any) -> Iterator[str]:
    """The names of classes in a config, including nested ones."""
    if isinstance(config, dict):
        if isinstance(config.get("class_name"), str):
            yield config["class_name"]
        for value in config.values():
            yield from _class_names(value)
    elif isinstance(config, list):
        for value in config:
            yield from _class_names(value)


def classes_named(name: str) -> list[type[Named]]:
    """The classes with this name in all families: layers, losses, initializers and so on.

    >>> [c.__name__ for c in classes_named("relu")], classes_named("Nobody")
    ([], [])
    """
    return [family.known[name] for family in Named.families if name in family.known]


def _is_custom(name: str) -> bool:
    """Whether a class with this name is user-defined."""
    classes = classes_named(name)
    return bool(classes) and not any(map(is_ours, classes))
