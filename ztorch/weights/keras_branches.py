"""Merge layers with branches, such as `Add(Dense(4), Dense(4))`, as Keras has them: the branches
are layers of the model, and the merge layer is called on a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.layers.merge import Merge
from ztorch.layers.nested import Container
from ztorch.layers.symbol import LayerCall


def has_flat_branches(layer: Any) -> bool:
    """Whether a layer merges branches that Keras can have side by side: none of them has branches
    of its own."""
    return isinstance(layer, Merge) and bool(layer.inner) and not any(
        isinstance(branch, Container) for branch in layer.inner)


def with_flat_branches(calls: Sequence[LayerCall]) -> tuple[list[LayerCall], dict[Any, str]]:
    """The calls of a row of layers with those of branches, and the names of branches, which differ
    from those of other layers."""
    flat: list[LayerCall] = []
    names: dict[Any, str] = {}
    for call in calls:
        layer: Any = call.layer
        if not has_flat_branches(layer):
            flat.append(call)
            continue
        results = []
        for branch in layer.inner:
            names[branch] = f"{layer.name}_{branch.name}"
            results.append(branch(call.args[0]))
            flat.append(branch.calls[-1])
        flat.append(LayerCall(layer, (results,), {}, call.result))
    return flat, names
