"""The arguments of ops in the config.json of a .keras file."""

from __future__ import annotations

import inspect
from typing import Any

from ztorch.graph.op import ALIASES, REGISTRY
from ztorch.layers.operation import Operation
from ztorch.weights.keras_ops import OPS_OF_KERAS

# Keras' ops by the names of ours.
BY_OP = {"div": OPS_OF_KERAS["Divide"]} | {
    ALIASES.get(row.op, row.op): row for row in reversed(OPS_OF_KERAS.values())}


def op_arguments(layer: Operation, tensors: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of an op in Keras: those of the call, and those of the class."""
    row = BY_OP.get(ALIASES.get(layer.op, layer.op))
    if row is None:
        return [], {}
    signature = inspect.signature(REGISTRY[ALIASES.get(layer.op, layer.op)].call)
    bound = signature.bind(*layer.arguments, **layer.keywords)
    bound.apply_defaults()
    theirs = {row.renamed.get(name, name): name for name in row.arguments}
    call = [_op_value(x, tensors) for name, value in bound.arguments.items()
            if name not in theirs and not _is_default(signature, name, value)
            for x in (value if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
                      else (value,))]
    if row.takes_list:
        call = call[0] if len(call) == 1 and isinstance(call[0], list) else call
        call = [call]
    return call, {theirs[name]: _op_value(value, tensors)
                  for name, value in bound.arguments.items() if name in theirs}


def _is_default(signature: inspect.Signature, name: str, value: Any) -> bool:
    default = signature.parameters[name].default
    return default is not inspect.Parameter.empty and value is default


def _op_value(x: Any, tensors: list[Any]) -> Any:
    """An argument of an `Operation` in Keras' format."""
    if not isinstance(x, dict):
        return x
    kind, value = next(iter(x.items()))
    if kind == "tensor":
        return tensors[value]
    if kind == "array":
        return {"class_name": "__tensor__", "config": {"value": value, "dtype": x["dtype"]}}
    if kind == "ellipsis":
        return {"class_name": "__ellipsis__", "config": {}}
    items = [_op_value(item, tensors) for item in value]
    if kind == "slice":
        return {"class_name": "__slice__", "config": dict(zip(
            ("start", "stop", "step"), items, strict=True))}
    return items
