"""Converts layers with branches, such as `Add(Dense(4), Dense(4))` and `Residual(...)`, to Keras'
form: the branches are layers of the model, and a merge layer is called on their outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ztorch.errors import Unsupported
from ztorch.layers.attention import MultiHeadAttention
from ztorch.layers.containers import Parallel, Residual
from ztorch.layers.keras_order import layers_in_order
from ztorch.layers.merge import Add, Merge
from ztorch.layers.network import Network
from ztorch.layers.score_attention import Attention
from ztorch.layers.symbol import LayerCall, SymbolicTensor, leaves, nested
from ztorch.layers.wiring import Wiring


def has_branches(layer: Any) -> bool:
    """Whether a layer has branches inside it, which Keras has as separate layers."""
    layer = layer.stands_for
    return (isinstance(layer, Merge) and bool(layer.adopted)) or type(layer) in (Residual, Parallel)


def is_plain_sequential(network: Network) -> bool:
    """Whether a Sequential is one in Keras too, where layers take one tensor and have no branches.
    Others become functional models."""
    return type(network).__name__ == "Sequential" and not any(
        isinstance(layer, (MultiHeadAttention, Attention)) or has_branches(layer)
        for layer in network.adopted)


@dataclass
class FlatNetwork:
    """The calls of a network, with branches as separate layers."""

    calls: list[LayerCall] = field(default_factory=list)  # in the order of computation
    outputs: Any = None  # a symbolic tensor, or a list or dict of several
    names: dict[Any, str] = field(default_factory=dict)  # of branches and of merge layers
    frozen: set[Any] = field(default_factory=set)  # branches that do not train
    masks_differ: list[Any] = field(default_factory=list)  # layers whose mask differs in Keras

    @property
    def layers(self) -> list[Any]:
        """The layers in Keras' order."""
        return [layer.stands_for for layer in layers_in_order(self.calls, self.outputs)]


def flat(network: Network) -> FlatNetwork:
    """A network with branches as separate layers.

    Raises:
        Unsupported: The model is a class with its own call().
    """
    calls, outputs = _calls(network)
    if not any(has_branches(call.layer) for call in calls):
        return FlatNetwork(calls, outputs)
    flattening = _Flattening({call.layer.name for call in calls})
    for call in calls:
        flattening.add(call)
    flattening.network.outputs = flattening.replaced(outputs)
    return flattening.network


def _calls(network: Network) -> tuple[list[LayerCall], Any]:
    """The calls of layers that the outputs depend on, and the outputs."""
    if network.own_call is not None:
        raise Unsupported(f"model {network.name!r} is a class with its own call(), which a file "
                          "for Keras cannot store; save its weights, or write a .zt")
    wiring = getattr(network, "wiring", None)  # a Sequential has none
    if isinstance(wiring, Wiring):
        return wiring.calls, wiring.outputs
    outputs = network.output  # of a Sequential, which calls its layers on demand
    calls = [outputs.call]
    while (before := calls[0].inputs[0].call) is not None:
        calls.insert(0, before)
    return calls, outputs


class _Flattening:
    """Records the calls of a network again, with branches as separate calls."""

    def __init__(self, names_in_use: set[str]) -> None:
        self.network = FlatNetwork()
        self.names_in_use = names_in_use  # names of layers
        self.mergers: dict[Any, Merge] = {}  # of layers with branches
        self.new: dict[SymbolicTensor, SymbolicTensor] = {}  # tensors of the new calls

    def replaced(self, x: Any) -> Any:
        """Arguments, with the tensors of the new calls."""
        return nested(lambda s: self.new.get(s, s) if isinstance(s, SymbolicTensor) else s, x)

    def add(self, call: LayerCall) -> None:
        """Records a call of the network."""
        args, keywords = self.replaced(call.args), self.replaced(call.keywords)
        layer: Any = call.layer
        if has_branches(layer):
            result = self.merged(layer.stands_for, args[0], call.result)
        else:
            result = self.record(layer, args, keywords, call.result)
        self.new.update(zip(leaves(call.result), leaves(result), strict=True))

    def record(self, layer: Any, args: Any, keywords: Any, like: Any) -> Any:
        """The result of a new call, with the shapes of `like`."""
        call = LayerCall(layer, args, keywords)
        call.result = nested(
            lambda s: SymbolicTensor(s.value, layer, call, s.producers, s.mask, s.batch), like)
        self.network.calls.append(call)
        return call.result

    def merged(self, layer: Any, x: SymbolicTensor, like: SymbolicTensor) -> Any:
        """The result of a layer with branches."""
        if isinstance(layer, Residual):
            y = x
            for inner in layer.layers:
                y = self.branch(layer, inner, y)
            parts = [y, x if layer.shortcut is None else self.branch(layer, layer.shortcut, x)]
        else:
            parts = [self.branch(layer, inner, x) for inner in layer.adopted]
        if layer not in self.mergers:
            self.mergers[layer] = _merger(layer, self.network.names.get(layer, layer.name))
        merger = self.mergers[layer]
        if (_output_of(merger, parts).mask is None) != (like.mask is None):
            self.network.masks_differ.append(layer)
        return self.record(merger, (parts,), {}, like)

    def branch(self, outer: Any, layer: Any, x: Any) -> Any:
        """The result of a layer inside another one."""
        if layer not in self.network.names:
            name = base = f"{self.network.names.get(outer, outer.name)}_{layer.name}"
            k = 0
            while name in self.names_in_use:
                k += 1
                name = f"{base}_{k}"
            self.names_in_use.add(name)
            self.network.names[layer] = self.network.names[layer.stands_for] = name
        if not outer.trainable or outer in self.network.frozen:
            self.network.frozen |= {layer, layer.stands_for}
        like = _output_of(layer, x)
        return (self.merged(layer.stands_for, x, like) if has_branches(layer) else
                self.record(layer, (x,), {}, like))


def _output_of(layer: Any, x: Any) -> Any:
    """The output of a layer for symbolic tensors, without recording the call."""
    y = layer(x)
    layer.calls.pop()
    return y


def _merger(layer: Any, name: str) -> Merge:
    """The merge layer for the outputs of the branches of a layer."""
    rules = {"name": name, **layer.rules_config()}
    if isinstance(layer, Residual):
        return Add.from_config({"branches": [], **rules})
    merge = layer.merging if isinstance(layer, Parallel) else layer
    return type(merge).from_config({**merge.get_config(), "branches": [], **rules})
