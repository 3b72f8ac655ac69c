"""The configs of preprocessing layers, which run on the host, in .keras files."""

from __future__ import annotations

from typing import Any

from ztorch.layers.core import Input


def host_layer(layer: Any, name: str | None = None) -> dict[str, Any]:
    """The config of a preprocessing layer; its default name is that of its class."""
    kind = type(layer).__name__
    return {"module": "keras.layers", "class_name": kind, "registered_name": None, "config": {
        **layer.get_config(), "name": name or layer.name or kind.lower()}}


def call_on_text(x: Input, name: str) -> dict[str, Any]:
    """The config of the layer that reads an input of strings. `name`: of the input."""
    text = {"class_name": "__keras_tensor__", "config": {
        "shape": [None, *x.text_shape], "dtype": "string", "keras_history": [name, 0, 0]}}
    spec = host_layer(x.encoder, f"{name}_{type(x.encoder).__name__.lower()}")
    return {**spec, "name": spec["config"]["name"], "inbound_nodes": [
        {"args": [text], "kwargs": {}}]}
