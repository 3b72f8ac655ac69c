"""The graph of a functional model in a file of Keras: which layer is called on which tensors."""

from __future__ import annotations

from typing import Any

import numpy as np


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
    """Layers without the ops that compute masks, which travel by themselves here."""
    readers: dict[str, set[tuple[str, str]]] = {}  # of each layer: who, as which argument
    for name, spec in specs.items():
        for node in spec["inbound_nodes"]:
            for key, value in (("", node["args"]), *node["kwargs"].items()):
                for history in histories({"args": value, "kwargs": {}}):
                    readers.setdefault(history[0], set()).add((name, key))
    masks = {name for name, spec in specs.items()
             if str(spec.get("module", "")).startswith("keras.src.ops") and name in readers}
    while True:
        kept = {name for name in masks if all(key.endswith("mask") or reader in masks
                                              for reader, key in readers[name])}
        if kept == masks:
            break
        masks = kept

    def used(node: dict[str, Any]) -> dict[str, Any]:
        return {"args": node["args"], "kwargs": {
            key: value for key, value in node["kwargs"].items()
            if not any(h[0] in masks for h in histories({"args": value, "kwargs": {}}))}}

    return {name: {**spec, "inbound_nodes": [used(node) for node in spec["inbound_nodes"]]}
            for name, spec in specs.items() if name not in masks}


def arguments(x: Any, tensors: dict[Any, Any]) -> Any:
    """An argument of a call as a value: tensors, slices and arrays in place of descriptions."""
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
    if kind in ("__numpy__", "__tensor__"):
        return np.asarray(config["value"], config["dtype"])
    return x


def alone(x: Any) -> Any:
    """The item of a list of one; anything else as it is."""
    return x[0] if isinstance(x, list) and len(x) == 1 else x
