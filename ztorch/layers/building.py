"""Building layers: their first call makes their weights, or a call of `build` does, as in Keras."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ztorch.graph.op import leaf
from ztorch.graph.value import Value
from ztorch.layers.context import Context, States
from ztorch.layers.plain_calls import adopt_attributes
from ztorch.layers.symbol import nested
from ztorch.layers.tree import LayerNode
from ztorch.layers.weight import Weight


class BuiltLayer(LayerNode, abstract=True):
    """The part of a layer that builds it."""

    built: bool
    own_weights: list[Weight]
    first_weights: list[Weight] | None  # those made in `__init__`
    build: Any
    makes_weights = False  # whether its class has a `build` of its own

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "build" in vars(cls) and not cls.is_network:
            cls.build = built_once(cls.build)
            # That of `Layer` itself makes none.
            cls.makes_weights = any("build" in vars(c) for c in cls.__mro__[1:])

    def prepare(self, x: Any, *more: Any, **keywords: Any) -> None:
        """Builds the layer at its first call."""
        if not self.built:
            if self.first_weights is None:
                self.first_weights = list(self.own_weights)
            self.own_weights = list(self.first_weights)  # drops those of a build that failed
            adopt_attributes(self)
            batch: Any = (None,) if self.is_plain else ()  # as in Keras
            parts = x if isinstance(x, (Value, dict)) else list(x)
            self.build_now(nested(lambda v: (*batch, *v.shape[1:]), parts))
            adopt_attributes(self)

    def build_now(self, *shapes: Any) -> None:
        """Calls `build` for shapes as it takes them."""
        self.building = True
        try:
            self.build(*shapes)
        finally:
            self.building = False
        self.built = True


def built_once(build: Callable[..., Any]) -> Callable[..., Any]:
    """A method `build` that users may call, as in Keras with the batch in the shape: it builds the
    layer, which its first call does otherwise."""

    @functools.wraps(build)
    def built(self: Any, *shapes: Any, **named: Any) -> Any:
        if self.building:
            return build(self, *shapes, **named)
        if not self.built:
            values = [nested_shapes(value_of, shape) for shape in (*shapes, *named.values())]
            self.prepare(*values)
            if not self.is_plain and not all(layer.built for layer in self.adopted):
                self(*values, context=Context(states=States(data=False)))  # builds those inside
        return None

    return built


def value_of(shape: Any) -> Value:
    """A tensor of a shape with the batch, of which any size may be None."""
    return leaf("input", "x", (1, *(n or 1 for n in shape[1:])), "float32")


def nested_shapes(change: Callable[[Any], Any], shapes: Any) -> Any:
    """Shapes, or lists and dicts of them, with a function applied to each shape."""
    if isinstance(shapes, dict):
        return {name: nested_shapes(change, part) for name, part in shapes.items()}
    if isinstance(shapes, (list, tuple)) and shapes and isinstance(shapes[0], (list, tuple)):
        return [nested_shapes(change, part) for part in shapes]
    return change(shapes)
