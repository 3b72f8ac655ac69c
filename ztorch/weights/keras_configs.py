"""Writes the configs of models in Keras' format, as in the config.json of a .keras file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ztorch.config import Named
from ztorch.errors import Unsupported, ZtorchError
from ztorch.graph.op import ALIASES
from ztorch.layers.attention import MultiHeadAttention
from ztorch.layers.axes import OpenSize
from ztorch.layers.core import Input
from ztorch.layers.encoded import Encoded
from ztorch.layers.layer import Layer
from ztorch.layers.network import Network
from ztorch.layers.operation import Operation
from ztorch.layers.score_attention import Attention
from ztorch.layers.symbol import LayerCall, SymbolicTensor, as_symbol, leaves, nested
from ztorch.names.own_functions import functions_by_name
from ztorch.weights.keras_branches import flat, is_plain_sequential
from ztorch.weights.keras_classes import is_user_defined, registered_name
from ztorch.weights.keras_op_arguments import BY_OP, op_arguments
from ztorch.weights.keras_ops import MODULES
from ztorch.weights.keras_texts import call_on_text, host_layer

# Layers that Keras lacks.
NOT_IN_KERAS = frozenset((
    "Checkpoint", "Kernel", "Lambda", "Parallel", "PositionEmbedding", "Residual",
    "RotaryEmbedding", "SinusoidalPosition", "TransformerDecoder", "TransformerEncoder"))
MODULES_OF_LAYERS = {  # of layers that are not in keras.layers
    "LayerScale": "keras.src.applications.convnext",
    "StochasticDepth": "keras.src.applications.convnext"}
# Arguments that Keras' layers lack: left out at this value, unsupported otherwise.
_OURS_ONLY: dict[str, Any] = {
    "rotary": False, "branches": [], "num_key_value_heads": None, "rotary_wavelength": 10000.0}
_LACKS = {("RandomContrast", "data_format"), ("RandomBrightness", "data_format"),
          *((f"SpatialDropout{n}D", "trainable") for n in (1, 2, 3))}
_MODULES = {"initializer": "keras.initializers", "learning-rate schedule":
            "keras.optimizers.schedules", "loss": "keras.losses", "metric": "keras.metrics",
            "optimizer": "keras.optimizers", "regularizer": "keras.regularizers",
            "constraint": "keras.constraints"}  # modules, by family


class KerasWriter:
    """Turns layers into Keras' configs, and collects everything that Keras lacks."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def model(self, network: Network) -> dict[str, Any]:
        """The config of a model.

        Raises:
            Unsupported: Keras lacks some of its layers; the message lists all of them.
        """
        with functions_by_name():
            spec = self.network(network)
        if self.problems:
            raise Unsupported(f"model {network.name!r} cannot be written for Keras:\n" + "\n".join(
                f"  {problem}" for problem in dict.fromkeys(self.problems))
                + "\nsave(\"model.zt\") writes all of it")
        return spec

    def network(self, network: Network) -> dict[str, Any]:
        """The config of a Sequential, or of a functional model."""
        network.build()
        kind = type(network).__name__
        common = {"name": network.name, "trainable": network.trainable}
        if is_plain_sequential(network):
            layers = [self.input(x, x.name) for x in network.inputs_by_name.values()]
            layers += [host_layer(x.encoder) for x in network.inputs_by_name.values()
                       if x.encoder is not None]
            layers += [self.layer(layer.stands_for) for layer in network.adopted]
            return _spec("keras", "Sequential", {**common, "layers": layers})
        if network.own_call is not None:
            return self.user_defined(network)
        if kind not in ("Sequential", "Model"):
            return {**self.user_defined(network), "config": {**common, **self.functional(network)}}
        return _spec("keras.src.models.functional", "Functional", {
            **common, **self.functional(network)})

    def layer(self, layer: Layer) -> dict[str, Any]:
        """The config of a layer."""
        if isinstance(layer, Network):
            return self.network(layer)
        kind = type(layer).__name__
        if isinstance(layer, Encoded):
            return host_layer(layer.layer, layer.name)
        if is_user_defined(layer):
            return self.user_defined(layer)
        if kind in NOT_IN_KERAS or not type(layer).__module__.startswith("ztorch.layers."):
            self.problems.append(f"{kind} {layer.name!r}: Keras has no such layer")
            return {}
        try:
            config = {key: self.value(getattr(layer, key, value), value, f"{kind} {layer.name!r}")
                      for key, value in self.arguments(layer).items()}
        except ZtorchError as error:  # such as a function as an activation
            self.problems.append(str(error))
            return {}
        return _spec(MODULES_OF_LAYERS.get(kind, "keras.layers"), kind,
                     {**config, **_policy(layer)})

    def user_defined(self, layer: Layer) -> dict[str, Any]:
        """The config of a user-defined layer or model, which Keras finds by its registered name or
        in custom_objects."""
        kind = type(layer)
        try:
            config = layer.get_config() if is_user_defined(layer) else {}
            json.dumps(config)
        except ZtorchError as error:
            self.problems.append(str(error))
            return {}
        except TypeError as error:  # a value of a get_config
            self.problems.append(f"{kind.__name__}.get_config() of {layer.name!r}: {error}; return "
                                 "numbers, strings, lists and dicts, and "
                                 "zt.saving.serialize_keras_object(x) for similar objects")
            return {}
        spec = {**_spec(None, kind.__name__, config), "registered_name": registered_name(kind)}
        if isinstance(layer, Network) and layer.own_call is not None:
            spec["build_config"] = {"input_shape": nested(
                lambda x: [None, *(None if isinstance(n, OpenSize) else n for n in x.row_shape)],
                layer.own_call.arguments(layer.inputs_by_name))}
        return spec

    def arguments(self, layer: Layer) -> dict[str, Any]:
        """The arguments of a layer that Keras' layer has too."""
        kind = type(layer).__name__
        config = layer.get_config()
        for key, neutral in _OURS_ONLY.items():
            if (kind, key) == ("GroupQueryAttention", "num_key_value_heads"):
                continue  # which Keras' layer has
            if config.pop(key, neutral) != neutral:
                self.problems.append(f"{kind} {layer.name!r} with {key}")
        if isinstance(layer, MultiHeadAttention):
            del config["use_causal_mask"]  # an argument of the call
            if layer.key_dim is None:
                config["key_dim"] = layer.projections["query"][0].shape[-1]
        if isinstance(config.get("padding"), (list, tuple)) and "kernel_size" in config:
            self.problems.append(f"{kind} {layer.name!r} with padding={config['padding']} in "
                                 "numbers; a ZeroPadding layer before it does the same")
        config.pop("dtype", None)  # see _policy
        if config.get("activation") == "sparsemax":
            self.problems.append(f"{kind} {layer.name!r} with activation=sparsemax, whose results "
                                 "in Keras do not sum to 1 as those of ours do")
        return {key: value for key, value in config.items() if (kind, key) not in _LACKS}

    def value(self, argument: Any, config: Any, label: str) -> Any:
        """An argument in Keras' format; `config` is its value in ours."""
        if isinstance(argument, Layer):
            return self.layer(argument)
        if isinstance(argument, (list, tuple)) and any(isinstance(x, Layer) for x in argument):
            return [self.layer(x) for x in argument]
        if callable(argument) and isinstance(config, str):  # a user's function
            return {"module": "builtins", "class_name": "function", "config": config,
                    "registered_name": config}
        return named(argument, label) if isinstance(argument, Named) else config

    # -- functional models -------------------------------------------------------------------------

    def input(self, x: Input, name: str) -> dict[str, Any]:
        """The config of an InputLayer."""
        row = x.text_shape if x.holds_text else x.row_shape
        shape = [x.batch_size, *(None if isinstance(n, OpenSize) else n for n in row)]
        return _spec("keras.layers", "InputLayer", {
            "batch_shape": shape, "dtype": "string" if x.holds_text else x.dtype or "float32",
            "sparse": False, "name": name})

    def functional(self, network: Network) -> dict[str, Any]:
        """The config of a functional model: layers with their calls, inputs and outputs."""
        inputs = {as_symbol(x): name or x.name for name, x in network.inputs_by_name.items()}
        wiring = flat(network)
        self.problems += [f"{type(layer).__name__} {layer.name!r} whose branches drop a mask that "
                          "it passes on" for layer in wiring.masks_differ]
        references: dict[Any, list[Any]] = {s: [name, 0, 0] for s, name in inputs.items()}
        specs = [{**self.input(x, name or x.name), "name": name or x.name, "inbound_nodes": []}
                 for name, x in network.inputs_by_name.items()]
        for symbol, x in zip(inputs, network.inputs_by_name.values(), strict=True):
            if x.encoder is not None:
                specs.append(call_on_text(x, inputs[symbol]))
                references[symbol] = [specs[-1]["name"], 0, 0]
        nodes: dict[Any, list[Any]] = {}
        for call in wiring.calls:
            layer: Any = call.layer
            name = wiring.names.get(layer, layer.name)
            if layer not in nodes:
                nodes[layer] = []
                spec = (self.operation(layer) if isinstance(layer, Operation) else
                        self.layer(layer.stands_for))
                if layer in wiring.names and spec:
                    spec["config"] = {**spec["config"], "name": name, **(
                        {"trainable": False} if layer in wiring.frozen else {})}
                specs.append({**spec, "name": name, "inbound_nodes": nodes[layer]})
            for k, symbol in enumerate(leaves(call.result)):
                references[symbol] = [name, len(nodes[layer]), k]
            nodes[layer].append(self.node(call, references))
        ends = nested(lambda s: references[s], wiring.outputs)
        names = [[name, 0, 0] for name in inputs.values()]
        keyed = [name for name in network.inputs_by_name if name]
        return {"layers": specs, "input_layers": names if len(names) > 1 else names[0],
                "output_layers": ends} if keyed or len(names) == 1 else {}

    def node(self, call: LayerCall, references: Mapping[Any, list[Any]]) -> dict[str, Any]:
        """The config of a call of a layer."""
        layer: Any = call.layer

        def tensor(x: Any) -> Any:
            return _tensor(x, references[x]) if isinstance(x, SymbolicTensor) else x

        if isinstance(layer, Operation):
            args = op_arguments(layer, [tensor(s) for s in leaves(call.args)])[0]
            return {"args": args, "kwargs": {}}
        args, keywords = list(call.args), dict(call.keywords)
        if isinstance(layer, MultiHeadAttention):
            if len(args) == 1 and "value" not in keywords:
                args *= 2
            keywords |= {"use_causal_mask": True} if layer.use_causal_mask else {}
        if isinstance(layer, Attention) and len(leaves(args)) == 1:
            args = [leaves(args) * 2]
        return {"args": [nested(tensor, x) for x in args], "kwargs": nested(tensor, keywords)}

    def operation(self, layer: Operation) -> dict[str, Any]:
        """The config of an op, as a class of Keras."""
        row = BY_OP.get(ALIASES.get(layer.op, layer.op))
        if row is None:
            self.problems.append(f"op {layer.op!r} of layer {layer.name!r}: Keras has no such op")
            return {}
        config = {"name": layer.name, **op_arguments(layer, [None] * 8)[1]}
        return {**_spec(f"{MODULES}{row.module}", row.name, config), "registered_name": row.name}


def named(member: Named, label: str) -> dict[str, Any]:
    """The config of an initializer, a loss, an optimizer or the like."""
    module, kind = _MODULES.get(member.family), type(member)
    if module is not None and not kind.__module__.startswith("ztorch."):
        return {**_spec(None, kind.__name__, member.get_config()),
                "registered_name": registered_name(kind)}
    if module is None:
        raise Unsupported(f"{label}: Keras has no {member.family} {type(member).__name__}")
    config = {key: named(inner, label) if isinstance(inner := getattr(member, key, None), Named)
              else value for key, value in member.get_config().items()}
    return _spec(module, type(member).__name__, config)


def _spec(module: str | None, kind: str, config: dict[str, Any]) -> dict[str, Any]:
    return {"module": module, "class_name": kind, "config": config, "registered_name": None}


def _policy(layer: Layer) -> dict[str, Any]:
    """The dtype policy of a layer, where it is not Keras' default."""
    name = layer.dtype_policy.name
    return {} if name == "float32" else {"dtype": {
        "module": "keras", "class_name": "DTypePolicy", "config": {"name": name},
        "registered_name": None}}


def _tensor(symbol: SymbolicTensor, history: list[Any]) -> dict[str, Any]:
    shape = [None, *(None if isinstance(n, OpenSize) else n for n in symbol.row_shape)]
    return {"class_name": "__keras_tensor__", "config": {
        "shape": shape, "dtype": symbol.dtype.long, "keras_history": history}}
