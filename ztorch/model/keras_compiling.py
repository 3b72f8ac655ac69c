"""How a model was compiled, as Keras stores it in a .keras file."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ztorch import losses, metrics, optimizers
from ztorch.config import Named
from ztorch.errors import ZtorchError
from ztorch.layers.symbol import nested
from ztorch.losses import Loss
from ztorch.metrics import Metric, MetricLists
from ztorch.names.own_functions import own_function, registered_name
from ztorch.optimizers import MultiOptimizer, Optimizer, OptimizerMap
from ztorch.weights.keras_classes import user_class
from ztorch.weights.keras_configs import named

# Short names that Keras also knows, which name the scores of metrics.
_SHORT = frozenset(("acc", "accuracy", "ce", "crossentropy", "mae", "mape", "mse", "msle"))

_FAMILIES: dict[Any, type[Named]] = {losses: Loss, metrics: Metric, optimizers: Optimizer}
_USER = 6  # frames from a warning in this file up to the user's call of `save`
# Arguments of Keras that request the only behavior that exists here.
_WITHOUT_EFFECT = (("axis", -1), ("reduction", "sum_over_batch_size"), ("staircase", False))


def compile_config(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of `compile` in Keras' form. None if it was compiled without a loss, or, with a
    warning, with arguments that a Keras file cannot hold, such as functions."""
    if arguments["loss"] is None:
        return None
    specs = arguments["metrics"]
    listed = specs if isinstance(specs, MetricLists) else MetricLists(specs, None)
    try:
        return {
            "optimizer": (None if arguments["optimizer"] is None else
                          _optimizer(Optimizer.get(arguments["optimizer"]))),
            "loss": nested(_written(Loss.get, "loss"), arguments["loss"]),
            "loss_weights": arguments["loss_weights"],
            "metrics": nested(_written(_metric, "metrics"), _listed(listed.plain)),
            "weighted_metrics": nested(_written(_metric, "weighted_metrics"),
                                       _listed(listed.weighted)),
            "run_eagerly": False, "steps_per_execution": 1, "jit_compile": False}
    except ZtorchError as error:
        warnings.warn(f"the file holds the model, but not the arguments of compile: {error}",
                      stacklevel=_USER)
        return None


def compile_arguments(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of `compile` from Keras' description. None if the model was not compiled, or
    uses something that is missing here."""
    try:
        read = {room.__name__.rpartition(".")[2]: as_members(room, config.get(key))
                for room, key in ((optimizers, "optimizer"), (losses, "loss"),
                                  (metrics, "metrics"))}
        weighted = as_members(metrics, config.get("weighted_metrics"))
    except (ZtorchError, TypeError, AttributeError, KeyError):
        return None
    if read["losses"] is None or read["optimizers"] is None:
        return None
    return {"optimizer": read["optimizers"], "loss": read["losses"],
            "metrics": MetricLists(read["metrics"], weighted) if weighted else
            read["metrics"] or (), "loss_weights": config.get("loss_weights")}


def as_members(room: Any, x: Any) -> Any:
    """The objects that Keras describes, also in lists and dicts, as members of a room."""
    if isinstance(x, Mapping) and x.get("class_name") == "function":
        return own_function(x["config"]) or getattr(room, x["config"])
    if isinstance(x, Mapping) and "class_name" in x:
        name = {"name": x["config"]["name"]} if room is metrics and "name" in x["config"] else {}
        if (kind := user_class(_FAMILIES[room], x)) is not None:
            return kind.from_config(x["config"])
        return getattr(room, x["class_name"])(**_settings(x["config"]), **name)
    if isinstance(x, Mapping):
        return {key: as_members(room, value) for key, value in x.items()}
    return [as_members(room, value) for value in x] if isinstance(x, (list, tuple)) else x


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in a Keras config that have an effect here."""
    return {name: _setting(x) for name, x in config.items() if x is not None
            and name not in ("name", "dtype") and (name, x) not in _WITHOUT_EFFECT}


def _setting(x: Any) -> Any:
    if not isinstance(x, Mapping):
        return x
    if "class_name" in x:  # a schedule, or an optimizer of several
        return {"class_name": x["class_name"], "config": _settings(x["config"])}
    return {name: _setting(each) for name, each in x.items()}


def _optimizer(optimizer: Optimizer) -> dict[str, Any]:
    """An optimizer in Keras' form."""
    described = named(optimizer, "compile(optimizer=...)")
    if isinstance(optimizer, MultiOptimizer) and isinstance(optimizer.optimizer_map, OptimizerMap):
        by_name = optimizer.optimizer_map
        described["config"]["optimizer_map"] = {
            "module": described["module"], "class_name": "OptimizerMap", "registered_name": None,
            "config": {"default_optimizer": _optimizer(by_name.default_optimizer),
                       "optimizer_map": {p: _optimizer(o) for p, o in by_name.patterns.items()}}}
    return described


def _listed(x: Any) -> Any:
    return list(x) if isinstance(x, tuple) else x


def _metric(x: Any) -> Any:
    """A metric, or a loss that is measured."""
    is_loss = isinstance(x, Loss) or (isinstance(x, str) and x not in Metric.known)
    return Loss.get(x) if is_loss else Metric.get(x)


def _written(get: Callable[[str], Any], argument: str) -> Callable[[Any], Any]:
    """Writes a loss or a metric that is a name or an object."""
    def written(x: Any) -> Any:
        if x is None or (isinstance(x, str) and x in _SHORT):
            return x
        if inspect.isfunction(x) and x.__name__ != "<lambda>":  # loading names it again
            return {"module": "builtins", "class_name": "function",
                    "config": registered_name(x) or x.__name__, "registered_name": "function"}
        member = get(x)
        if isinstance(x, str) and isinstance(member, Loss):
            return type(member).names[0]  # Keras' own name, where ours has others
        return named(member, f"compile({argument}=...)") if isinstance(member, Named) else x

    return written
