"""Keras' order of the layers of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from ztorch.layers.layer import Layer
from ztorch.layers.symbol import LayerCall, SymbolicTensor, symbols
from ztorch.layers.tree import LayerNode


def layers_in_order(calls: list[LayerCall], ends: Any, inputs: Iterable[LayerNode] = ()
                    ) -> list[Layer]:
    """The layers of the calls that lead to these tensors, in Keras' order: those farthest from the
    outputs first.

    Args:
        calls: The calls, in an order of dependency.
        ends: The tensors.
        inputs: The Inputs, if they count as layers. One that no call reads is as near as the
            outputs. Default: `()`.
    """
    depth: dict[LayerCall, int] = {}
    of_layer: dict[LayerNode, int] = dict.fromkeys(inputs, 0)
    for call in reversed(calls):
        depth[call] = max(depth.get(call, 0), of_layer.get(call.layer, 0))
        of_layer[call.layer] = depth[call]
        for symbol in call.inputs:
            if symbol.call is not None:
                depth[symbol.call] = max(depth.get(symbol.call, 0), depth[call] + 1)
            elif symbol.layer in of_layer:
                of_layer[symbol.layer] = max(of_layer[symbol.layer], depth[call] + 1)
    rank = {layer: k for k, layer in enumerate(_met(_sorted_leaves(ends)))}
    ordered = sorted(of_layer, key=lambda layer: (-of_layer[layer], rank.get(layer, -1)))
    return cast("list[Layer]", ordered)  # only a Layer is ever called


def _met(ends: list[SymbolicTensor]) -> Iterator[LayerNode]:
    """The layers, including Inputs, in the order of a walk back from the outputs."""
    visited: set[LayerCall] = set()
    layers: set[LayerNode] = set()
    stack = list(reversed(ends))
    while stack:
        symbol = stack.pop()
        if symbol.call in visited:
            continue
        if symbol.layer not in layers:
            layers.add(symbol.layer)
            yield symbol.layer
        if symbol.call is not None:
            visited.add(symbol.call)
            stack.extend(reversed(_sorted_symbols(symbol.call)))


def _sorted_symbols(call: LayerCall) -> list[SymbolicTensor]:
    return symbols(_sorted_leaves((call.args, call.keywords)))


def _sorted_leaves(x: Any) -> list[Any]:
    """The leaves of nested lists and dicts; dicts are ordered by key, as in Keras."""
    if isinstance(x, dict):
        return [leaf for key in sorted(x) for leaf in _sorted_leaves(x[key])]
    return [leaf for item in x for leaf in _sorted_leaves(item)] if isinstance(
        x, (list, tuple)) else [x]
