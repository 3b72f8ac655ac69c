"""The trace of one example of a network: shapes, and the values that layers computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ztorch.graph.value import Value, topological
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.symbol import nested


@dataclass(frozen=True)
class Traced:
    """A layer in the trace of one example. Its inner layers follow, one level deeper."""

    depth: int  # 0 for the layers of the model itself
    layer: Layer
    shape: Any  # of its output; a list or dict of shapes if there are several
    nodes: list[Value]  # computed by the layer itself, not by inner layers


def traced_shapes(outputs: Mapping[str, Value], context: Context,
                  layers: Iterable[tuple[int, Layer]], named: bool
                  ) -> tuple[dict[str, Any], list[Traced]]:
    """The shapes of outputs by name, and the layers that were called in a context.

    Args:
        outputs: The outputs of the network by name.
        context: Context of the trace.
        layers: All layers, each with its depth.
        named: Whether shapes show the names of variable axes.
    """
    shape = context.padding.named_shape if named else lambda v: v.shape[1:]
    nodes: dict[str, list[Value]] = {}
    for v in topological(outputs.values()):
        nodes.setdefault(v.layer, []).append(v)
    return {name: shape(y) for name, y in outputs.items()}, [
        Traced(depth, layer, nested(shape, context.results[layer]), nodes.get(layer.path, []))
        for depth, layer in layers if layer in context.results]
