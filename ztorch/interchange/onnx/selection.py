"""Registries of writers, and the choice of a writer for each value of a graph."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ztorch.graph.op import REGISTRY, first_value
from ztorch.graph.op_calls import OpCall
from ztorch.graph.value import Value
from ztorch.interchange.onnx.writer import Writer
from ztorch.layers.context import Context, Producers
from ztorch.layers.layer import Layer
from ztorch.layers.weight import Weight

Write = Callable[..., None]
When = Callable[..., bool]


@dataclass(frozen=True)
class PendingWrite:
    """How one value will be written."""

    needs: tuple[Value, ...]  # values that must be written before it
    write: Callable[[Writer], None]


@dataclass(frozen=True)
class WriteRule:
    """How calls of an op, or layers of a class, are written as a whole."""

    write: Write
    when: When  # the rule applies only where this returns True
    onnx: str  # the ops of ONNX that it writes, for the documentation


PRIMITIVES: dict[str, Write] = {}
CALLS: dict[str, WriteRule] = {}
LAYERS: dict[type[Layer], WriteRule] = {}


def primitive(*names: str) -> Callable[[Write], Write]:
    """Registers a function that writes nodes of these primitive ops: f(writer, value)."""

    def register(function: Write) -> Write:
        PRIMITIVES.update(dict.fromkeys(names, function))
        return function

    return register


def call(*names: str, onnx: str, when: When = lambda **_: True) -> Callable[[Write], Write]:
    """Registers a function that writes a call of an op as a whole: f(writer, result,
    **arguments)."""

    def register(function: Write) -> Write:
        CALLS.update(dict.fromkeys(names, WriteRule(function, when, onnx)))
        return function

    return register


def layer(*kinds: type[Layer], onnx: str, when: When = lambda **_: True
          ) -> Callable[[Write], Write]:
    """Registers a function that writes a layer as a whole: f(writer, result, layer, x, weight),
    where weight(w) is an array."""

    def register(function: Write) -> Write:
        LAYERS.update(dict.fromkeys(kinds, WriteRule(function, when, onnx)))
        return function

    return register


@dataclass(frozen=True)
class WriteSelector:
    """Selects for each value of a graph the largest unit that can be written as a whole: a layer, a
    call of an op, or a primitive op."""

    context: Context  # of the trace: knows the results of layers
    calls: Mapping[Value, list[OpCall]]  # the calls of ops that made each value
    uses: Counter[Value]  # how many nodes read each value

    @property
    def layer_results(self) -> Producers:
        """The layer and its inputs, for each value that is the result of one."""
        return self.context.producers

    def pending(self, v: Value) -> PendingWrite | None:
        """How v will be written; None if ONNX has no op for it."""
        return (self._leaf(v) or self._layer(v) or self._biased(v) or self._call(v)
                or self._primitive(v))

    def _leaf(self, v: Value) -> PendingWrite | None:
        if v.op.kind != "leaf" or v.attrs["role"] == "input":
            return None
        label = v.attrs["name"] if v.attrs["role"] == "state" else ""
        return PendingWrite((), lambda w: w.set_numbers(v, first_value(v), label))

    def _layer(self, v: Value) -> PendingWrite | None:
        layer, inputs = self.layer_results.get(v, (None, ()))
        if not isinstance(layer, Layer) or len(inputs) != 1 or type(layer) not in LAYERS:
            return None
        rule, x = LAYERS[type(layer)], inputs[0]
        if not rule.when(layer=layer, x=x) or not self._depends_only_on(v, x, layer):
            return None

        def weight(w: Weight) -> Any:
            return first_value(self.context.read(w))

        return PendingWrite((x,), lambda w: rule.write(w, v, layer, x, weight))

    def _depends_only_on(self, v: Value, x: Value, layer: Layer) -> bool:
        """Whether v depends only on x and the layer's weights, not on a mask or a state."""
        weights = {self.context.read(w) for w in layer.weights}
        visited, stack = {x}, [v]
        while stack:
            value = stack.pop()
            if value in visited:
                continue
            visited.add(value)
            stack.extend(value.args)
            is_variable = value.op.kind == "leaf" and value.attrs["role"] != "constant"
            if is_variable and value not in weights:
                return False
        return True

    def _call(self, v: Value) -> PendingWrite | None:
        for call_record in reversed(self.calls.get(v, ())):  # the outermost first
            arguments = bound(call_record)
            if call_record.name in CALLS and CALLS[call_record.name].when(**arguments):
                return _pending_call(v, call_record.name, arguments)
        return None

    def _biased(self, v: Value) -> PendingWrite | None:
        """A product or convolution together with the bias that is added to it."""
        if v.op.name != "add":
            return None
        for y, bias in (v.args, v.args[::-1]):
            if bias.op.name != "broadcast_to" or self.uses[y] != 1 or y not in self.calls:
                continue
            bias = bias.args[0]
            call_record = self.calls[y][-1]
            arguments = bound(call_record)
            takes = call_record.name in ("conv", "conv_transpose") or (call_record.name == "matmul"
                                                                       and y.rank == 2)
            if takes and bias.shape == y.shape[-1:] and bias.op.kind == "leaf" and CALLS[
                    call_record.name].when(**arguments):
                arguments["bias"] = bias
                return _pending_call(v, call_record.name, arguments)
        return None

    def _primitive(self, v: Value) -> PendingWrite | None:
        if v.op.others is not None:
            same = v.op.others(*v.args, **v.attrs)
            return PendingWrite((same,), lambda w: w.tensors.update({v: w.tensors[same]}))
        if v.op.name not in PRIMITIVES:
            return None
        return PendingWrite(v.args, lambda w: PRIMITIVES[v.op.name](w, v))


def bound(call_record: OpCall) -> dict[str, Any]:
    """The arguments of a call by name, defaults included."""
    signature = inspect.signature(REGISTRY[call_record.name].call)
    bound_arguments = signature.bind(*call_record.args, **call_record.attrs)
    bound_arguments.apply_defaults()
    return dict(bound_arguments.arguments)


def _pending_call(v: Value, name: str, arguments: Mapping[str, Any]) -> PendingWrite:
    return PendingWrite(tuple(a for a in arguments.values() if isinstance(a, Value)),
                        lambda w: CALLS[name].write(w, v, **arguments))
