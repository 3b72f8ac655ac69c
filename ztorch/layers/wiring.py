"""The wiring of a Model: the layer calls that lead from its inputs to its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, cast

from ztorch.config import described
from ztorch.errors import ConfigError
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.core import Input
from ztorch.layers.keras_order import layers_in_order
from ztorch.layers.layer import Layer
from ztorch.layers.symbol import LayerCall, SymbolicTensor, as_symbol, leaves, nested, symbols


@dataclass(frozen=True)
class Wiring:
    """The calls between inputs and outputs."""

    inputs: dict[str, Input]  # by name; the name of a single one is empty
    calls: list[LayerCall]  # in an order of dependency
    layers: list[Layer]  # in Keras' order: those farthest from the outputs first
    outputs: Any  # a symbolic tensor, or a list or dict of several
    inputs_are: str = "dict"  # how several inputs were declared: "dict" or "list"

    @cached_property
    def layers_and_inputs(self) -> list[Layer]:
        """The layers and the Inputs, in Keras' order."""
        return layers_in_order(self.calls, self.outputs, self.inputs.values())

    @property
    def outputs_are(self) -> str:
        """One of "one", "list" and "dict"."""
        return type(self.outputs).__name__ if isinstance(self.outputs, (list, dict)) else "one"

    @property
    def output_names(self) -> list[str]:
        """The keys of a dict, or the names of the layers of a list, numbered from the second output
        of a layer on; empty for a single output."""
        if not isinstance(self.outputs, list):
            return list(self.outputs) if isinstance(self.outputs, dict) else [""]
        makers = [s.layer.name for s in self.outputs]
        names: list[str] = []
        for name in makers:
            numbered = (f"{name}_{k}" for k in count(1))
            names.append(name if name not in names else next(
                n for n in numbered if n not in makers and n not in names))
        return names

    @property
    def names(self) -> set[str]:
        """The final names, which automatic names must avoid."""
        return {layer.name for layer in self.layers if layer.keeps_name}

    def run(self, values: dict[SymbolicTensor, Value], context: Context) -> Any:
        """The outputs for values of the inputs."""

        def valued(x: Any) -> Any:
            return nested(lambda v: values[v] if isinstance(v, SymbolicTensor) else v, x)

        for call in self.calls:
            y = call.layer(*valued(call.args), context=context, **valued(call.keywords))
            values.update(zip(leaves(call.result), leaves(y), strict=True))
        return valued(self.outputs)

    # -- description -------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The wiring as values for JSON. Tensors are numbered: inputs first, then results of
        calls."""
        number = {item.symbol: k for k, item in enumerate(self.inputs.values())}
        for call in self.calls:
            for symbol in leaves(call.result):
                number[symbol] = len(number)

        def numbered(x: Any) -> Any:
            return nested(lambda v: {"tensor": number[v]} if isinstance(v, SymbolicTensor) else
                          described(v, "an argument of a call"), x)

        return {"inputs": {name: described(item, item.name) for name, item in self.inputs.items()},
                "layers": [described(layer, layer.name) for layer in self.layers],
                "calls": [{"layer": call.layer.name, "args": numbered(list(call.args)),
                           "how": numbered(call.keywords)} for call in self.calls],
                "outputs": numbered(self.outputs),
                **({"inputs_are": "list"} if self.inputs_are == "list" and len(self.inputs) > 1
                   else {})}


def from_config(config: Mapping[str, Any]) -> tuple[Any, Any]:
    """(inputs, outputs) of the wiring that `get_config` described. Its layers are called again."""
    try:
        inputs = {name: Layer.get(spec) for name, spec in config["inputs"].items()}
        layers = {layer.name: layer for layer in map(Layer.get, config["layers"])}
        tensors = [as_symbol(declared) for declared in inputs.values()]

        def tensor(x: Any) -> Any:
            if isinstance(x, dict) and set(x) == {"tensor"}:
                k = x["tensor"]
                if type(k) is not int or not 0 <= k < len(tensors):
                    raise KeyError(f"tensor {k!r}")
                return tensors[k]
            if isinstance(x, dict):
                return {key: tensor(item) for key, item in x.items()}
            return [tensor(item) for item in x] if isinstance(x, list) else x

        for call in config["calls"]:
            result = layers[call["layer"]](*tensor(call["args"]), **tensor(call["how"]))
            tensors += leaves(result)
        return inputs.get("", inputs), tensor(config["outputs"])
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError("this config does not describe a Model: it needs inputs, layers, calls "
                          f"and outputs that fit together ({type(error).__name__}: {error})"
                          ) from None


# -- finding it --------------------------------------------------------------------------------


def find_wiring(inputs: Any, outputs: Any, model: str) -> Wiring:
    """The wiring between inputs and outputs.

    Args:
        inputs: An Input, or a list or dict of Inputs. Outputs of layers may be inputs as well: the
            model then starts there, with a new Input. Outputs may leave out some inputs.
        outputs: A symbolic tensor, or a list or dict of several.
        model: Name of the model, for errors.

    Returns:
        The wiring.

    Raises:
        ConfigError: An input or output is not a tensor of this model, or they are not connected.
    """
    begins: dict[SymbolicTensor, Input] = {}  # the tensors that are inputs
    named = _inputs(nested(lambda x: _as_input(x, begins), inputs), model)
    ends = nested(lambda x: x if as_symbol(x) is None else as_symbol(x), outputs)
    for end in leaves(ends) or [None]:
        if not isinstance(end, SymbolicTensor):
            description = ("nothing" if end is None else repr(end))
            if isinstance(end, Layer):
                description = f"the {type(end).__name__} {end.name!r}: call it on a tensor first"
            raise ConfigError(f"model {model!r}: outputs must be results of layers, such as "
                              f"Dense(10)(x), not {description}")
    calls = _calls(leaves(ends), begins, model)
    if not calls:
        raise ConfigError(f"model {model!r} has no layers between inputs and outputs; call one, "
                          "such as Dense(10)(x)")
    layers = layers_in_order(calls, ends)
    _need_names(layers, model)
    moved = {s: declared.symbol for s, declared in begins.items() if s is not declared.symbol}

    def begun(x: Any) -> Any:
        return nested(lambda v: moved.get(v, v) if isinstance(v, SymbolicTensor) else v, x)

    if moved:
        calls = [LayerCall(call.layer, begun(call.args), begun(call.keywords), call.result)
                 for call in calls]
    return Wiring(named, calls, layers, _outputs(begun(ends), model),
                  "dict" if isinstance(inputs, dict) else "list")


def _as_input(x: Any, begins: dict[SymbolicTensor, Input]) -> Any:
    """The Input of a symbolic tensor; a new one for a layer's output. Records it in `begins`."""
    symbol = as_symbol(x)
    if symbol is None:
        return x
    if symbol not in begins:
        begins[symbol] = cast("Input", symbol.layer) if symbol.call is None else Input(
            symbol.row_shape, None if symbol.dtype.is_float else symbol.dtype)
    return begins[symbol]


def _inputs(inputs: Any, model: str) -> dict[str, Input]:
    """Inputs by name; the name is empty if there is only one."""
    for declared in leaves(inputs) or [None]:
        symbol = as_symbol(declared)
        if symbol is None:
            description = "nothing" if declared is None else repr(declared)
            raise ConfigError(f"model {model!r}: inputs must be made by Input(shape), "
                              f"not {description}")
    flat: list[Any] = [s.layer for s in symbols(inputs)]
    if len(set(flat)) != len(flat):
        twice = next(declared for declared in flat if flat.count(declared) > 1)
        raise ConfigError(f"model {model!r} lists input {twice.name!r} twice; list it once")
    if len(flat) == 1:
        return {"": flat[0]}
    if isinstance(inputs, dict):
        for name in inputs:
            if not isinstance(name, str) or not name or "/" in name:
                raise ConfigError(f"model {model!r}: {name!r} cannot name an input; use a string "
                                  "without '/'")
        return dict(zip(inputs, flat, strict=True))
    names: dict[str, Input] = {}
    taken = {declared.name for declared in flat if declared.keeps_name}
    for declared in flat:
        name, k = declared.name, 0
        if declared.keeps_name and name in names:
            raise ConfigError(f"model {model!r} has two inputs named {name!r}; set "
                              "name= of one")
        while not declared.keeps_name and (name in names or name in taken):
            k += 1
            name = f"{declared.name}_{k}"
        names[name] = declared
    return names


def _outputs(ends: Any, model: str) -> Any:
    """One symbolic tensor, or a list or dict of tensors."""
    flat = leaves(ends)
    if len(flat) == 1:
        return flat[0]
    if isinstance(ends, dict):
        if flat != list(ends.values()) or any(
                not isinstance(n, str) or not n or "/" in n for n in ends):
            raise ConfigError(f"model {model!r}: outputs={list(ends)} must name single tensors, by "
                              "strings without '/'")
        return dict(ends)
    return flat


def _calls(ends: list[SymbolicTensor], inputs: Mapping[SymbolicTensor, Input],
           model: str) -> list[LayerCall]:
    """All calls that the outputs depend on, in an order of dependency."""
    ordered: dict[LayerCall, None] = {}
    visited: set[LayerCall] = set()
    for end in ends:
        stack = [(end, False)]
        while stack:
            symbol, ready = stack.pop()
            call = symbol.call
            if symbol in inputs:
                continue
            if call is None:
                raise ConfigError(f"model {model!r}: output of layer {end.layer.name!r} depends on "
                                  f"Input {symbol.layer.name!r} of shape {symbol.shape}, which is "
                                  "not among the inputs; add it to Model(inputs=...)")
            if ready:
                ordered[call] = None
            elif call not in visited:
                visited.add(call)
                stack.append((symbol, True))
                stack.extend((s, False) for s in reversed(call.inputs))
    return list(ordered)


def _need_names(layers: list[Layer], model: str) -> None:
    """Raises a ConfigError if two layers were given the same name."""
    taken: set[str] = set()
    for layer in layers:
        if layer.keeps_name:
            if layer.name in taken:
                raise ConfigError(f"model {model!r} has two layers named {layer.name!r}; set "
                                  "name= of one")
            taken.add(layer.name)
