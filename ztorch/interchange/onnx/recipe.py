"""How each value gets into a file: the registries of what can be written, and the choice."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ztorch.graph.op import REGISTRY, OpCall
from ztorch.graph.value import Value
from ztorch.interchange.onnx.writer import Writer
from ztorch.layers.context import Context, Producers
from ztorch.layers.layer import Layer
from ztorch.layers.weight import Weight

Write = Callable[..., None]
When = Callable[..., bool]


@dataclass(frozen=True)
class Recipe:
    """The values that must be written before, and what writes this one."""

    needs: tuple[Value, ...]
    write: Callable[[Writer], None]


@dataclass(frozen=True)
class Written:
    """How calls of an op, or a layer, are written, where a condition holds."""

    write: Write
    when: When
    onnx: str  # what becomes of it, for the documentation


PRIMITIVES: dict[str, Write] = {}
CALLS: dict[str, Written] = {}
LAYERS: dict[type[Layer], Written] = {}


def primitive(*names: str) -> Callable[[Write], Write]:
    """Registers what writes nodes of the graph of these ops: f(writer, value)."""

    def register(function: Write) -> Write:
        PRIMITIVES.update(dict.fromkeys(names, function))
        return function

    return register


def call(*names: str, onnx: str, when: When = lambda **_: True) -> Callable[[Write], Write]:
    """Registers what writes a call of an op as a whole: f(writer, result, **arguments)."""

    def register(function: Write) -> Write:
        CALLS.update(dict.fromkeys(names, Written(function, when, onnx)))
        return function

    return register


def layer(*kinds: type[Layer], onnx: str, when: When = lambda **_: True
          ) -> Callable[[Write], Write]:
    """Registers what writes a layer as a whole: f(writer, result, layer, x, weight), where
    weight(w) is an array."""

    def register(function: Write) -> Write:
        LAYERS.update(dict.fromkeys(kinds, Written(function, when, onnx)))
        return function

    return register


@dataclass(frozen=True)
class Choice:
    """What is known of a traced graph."""

    context: Context
    calls: Mapping[Value, list[OpCall]]
    uses: Counter[Value]

    @property
    def made(self) -> Producers:
        return self.context.producers

    def recipe(self, v: Value) -> Recipe | None:
        """The largest thing that v is the result of and that can be written, or None."""
        return (self._leaf(v) or self._layer(v) or self._biased(v) or self._call(v)
                or self._primitive(v))

    def _leaf(self, v: Value) -> Recipe | None:
        if v.op.kind != "leaf" or v.attrs["role"] == "input":
            return None
        label = v.attrs["name"] if v.attrs["role"] == "state" else ""
        return Recipe((), lambda w: w.know(v, v.attrs["data"], label))

    def _layer(self, v: Value) -> Recipe | None:
        made, inputs = self.made.get(v, (None, ()))
        if made is None or len(inputs) != 1 or type(made) not in LAYERS:
            return None
        how, x = LAYERS[type(made)], inputs[0]
        if not how.when(layer=made, x=x) or not self._alone(v, x, made):
            return None

        def weight(one: Weight) -> Any:
            return self.context.read(one).attrs["data"]

        return Recipe((x,), lambda w: how.write(w, v, made, x, weight))

    def _alone(self, v: Value, x: Value, made: Layer) -> bool:
        """Whether v depends on nothing but x and the layer's weights: not on a mask or a state."""
        own = {self.context.read(w) for w in made.weights}
        seen, stack = {x}, [v]
        while stack:
            one = stack.pop()
            if one in seen:
                continue
            seen.add(one)
            stack.extend(one.args)
            if one.op.kind == "leaf" and one.attrs["role"] != "constant" and one not in own:
                return False
        return True

    def _call(self, v: Value) -> Recipe | None:
        for made in reversed(self.calls.get(v, ())):  # the outermost first
            arguments = bound(made)
            if made.name in CALLS and CALLS[made.name].when(**arguments):
                return _called(v, made.name, arguments)
        return None

    def _biased(self, v: Value) -> Recipe | None:
        """A product or convolution and the bias that is added to it, as one."""
        if v.op.name != "add":
            return None
        for y, bias in (v.args, v.args[::-1]):
            if bias.op.name != "broadcast_to" or self.uses[y] != 1 or y not in self.calls:
                continue
            bias = bias.args[0]
            made = self.calls[y][-1]
            arguments = bound(made)
            takes = made.name in ("conv", "conv_transpose") or (made.name == "matmul"
                                                                and y.rank == 2)
            if takes and bias.shape == y.shape[-1:] and bias.op.kind == "leaf" and CALLS[
                    made.name].when(**arguments):
                arguments["bias"] = bias
                return _called(v, made.name, arguments)
        return None

    def _primitive(self, v: Value) -> Recipe | None:
        if v.op.name not in PRIMITIVES:
            return None
        return Recipe(v.args, lambda w: PRIMITIVES[v.op.name](w, v))


def bound(made: OpCall) -> dict[str, Any]:
    """The arguments of a call by name, defaults included."""
    found = inspect.signature(REGISTRY[made.name].call).bind(*made.args, **made.attrs)
    found.apply_defaults()
    return dict(found.arguments)


def _called(v: Value, name: str, arguments: Mapping[str, Any]) -> Recipe:
    return Recipe(tuple(a for a in arguments.values() if isinstance(a, Value)),
                  lambda w: CALLS[name].write(w, v, **arguments))


