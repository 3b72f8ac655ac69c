"""The graph of a functional model in a Keras file: which layer is called on which tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

ARRAYS = ("__numpy__", "__tensor__")  # the classes of arrays in configs


def histories(node: Any) -> list[tuple[str, int, int]]:
    """The tensors that a layer is called on, each as (layer, call, number)."""
    tensors: list[tuple[str, int, int]] = []
    stack = [node["args"], node["kwargs"]]
    while stack:
        x = stack.pop()
        if isinstance(x, dict) and x.get("class_name") == "__keras_tensor__":
            tensors.append(tuple(x["config"]["keras_history"]))
        elif isinstance(x, dict | list):
            stack += x.values() if isinstance(x, dict) else x
    return tensors


def without_masks(specs: dict[str, Any]) -> dict[str, Any]:
    """The layers without ops that only compute masks: ztorch passes masks along by itself."""
    readers: dict[str, set[tuple[str, str]]] = {}  # by layer: (who reads it, as which argument)
    for name, spec in specs.items():
        for node in spec["inbound_nodes"]:
            for key, value in (("", node["args"]), *node["kwargs"].items()):
                for history in histories({"args": value, "kwargs": {}}):
                    readers.setdefault(history[0], set()).add((name, key))
    masks = {name for name, spec in specs.items()
             if str(spec.get("module", "")).startswith("keras.src.ops") and name in readers}
    while True:
        mask_only = {name for name in masks if all(key.endswith("mask") or reader in masks
                                                   for reader, key in readers[name])}
        if mask_only == masks:
            break
        masks = mask_only

    def unmasked(node: dict[str, Any]) -> dict[str, Any]:
        return {"args": node["args"], "kwargs": {
            key: value for key, value in node["kwargs"].items()
            if not any(h[0] in masks for h in histories({"args": value, "kwargs": {}}))}}

    return {name: {**spec, "inbound_nodes": [unmasked(node) for node in spec["inbound_nodes"]]}
            for name, spec in specs.items() if name not in masks}


def arguments(x: Any, tensors: dict[Any, Any]) -> Any:
    """An argument of a call as a value: tensors, slices and arrays in place of their configs."""
    if isinstance(x, list):
        return [arguments(item, tensors) for item in x]
    if not isinstance(x, dict):
        return x
    kind, config = x.get("class_name"), x.get("config") or {}
    if kind == "__keras_tensor__":
        return tensors[tuple(x["config"]["keras_history"])]
    if kind == "__slice__":
        return slice(*(arguments(config[end], tensors) for end in ("start", "stop", "step")))
    if kind == "__ellipsis__":
        return Ellipsis
    if kind in ARRAYS:
        return np.asarray(config["value"], config["dtype"])
    return x


def unwrapped(x: Any) -> Any:
    """The item of a list of one; anything else unchanged."""
    return x[0] if isinstance(x, list) and len(x) == 1 else x
