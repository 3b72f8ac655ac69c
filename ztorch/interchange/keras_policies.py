"""The dtype policies in the configs of Keras layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_WIDE = (None, "float32", "float64")  # compile(dtype=...) chooses among them


def common_policy(spec: Any) -> str:
    """The policy of a model for all layers without their own: the first of mixed precision,
    or float32."""
    return next((name for name in _policies(spec) if name.startswith("mixed_")), "float32")


def own_dtype(policy: Any, common: str) -> dict[str, Any]:
    """The `dtype` of a layer as an argument; nothing where the model has the same."""
    name = _name(policy)
    same = name in _WIDE and common in _WIDE
    return {} if name in (None, common) or same else {"dtype": name}


def _name(policy: Any) -> Any:
    return policy["config"].get("name") if isinstance(policy, dict) else policy


def _policies(spec: Any) -> Iterator[str]:
    """The names of policies, in the order of layers."""
    if isinstance(spec, dict):
        if isinstance(name := _name(spec.get("dtype")), str):
            yield name
        for item in spec.values():
            yield from _policies(item)
    elif isinstance(spec, list):
        for item in spec:
            yield from _policies(item)
