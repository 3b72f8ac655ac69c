"""Turns the configs of Keras models into models of ours."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from ztorch.constraints import Constraint
from ztorch.errors import ConfigError, Unsupported, ZtorchError
from ztorch.initializers import Initializer
from ztorch.interchange import keras_ops
from ztorch.interchange.keras_arguments import accepted_arguments, may_be_left_out, short
from ztorch.interchange.keras_graph import ARRAYS, arguments, histories, unwrapped, without_masks
from ztorch.interchange.keras_policies import common_policy, own_dtype
from ztorch.layers.attention import MultiHeadAttention
from ztorch.layers.core import Input
from ztorch.layers.encoded import Encoded, config_of, reader_of_text
from ztorch.layers.layer import Layer
from ztorch.layers.merge import Merge
from ztorch.model.model import Model
from ztorch.model.sequential import Sequential
from ztorch.names.own_functions import own_function
from ztorch.regularizers import Regularizer
from ztorch.weights.keras_classes import user_class
from ztorch.weights.keras_ops import MODULES

_INSIDE = ("layer", "backward_layer", "cell")  # arguments that are layers
_MODULES = ("keras", "keras.layers", "keras.models", "keras.src.models.functional",
            "keras.src.models.sequential", "keras.src.applications.convnext")


class KerasReader:
    """Turns configs into layers, and collects everything that ztorch lacks."""

    def __init__(self, source: str, input_shape: Sequence[int] | None, ignore: frozenset[str]):
        self.source, self.ignore = source, ignore
        self.input_shape = None if input_shape is None else tuple(input_shape)
        self.problems: list[str] = []
        self.policy = "float32"  # of layers without their own

    def model(self, spec: dict[str, Any]) -> Model:
        """The model of a config. Raises one Unsupported that lists all problems."""
        self.policy = common_policy(spec)
        model = self.layer(spec)
        if self.problems:
            raise Unsupported(f"{self.source} uses features that ztorch lacks:\n" + "\n".join(
                f"  {problem}" for problem in dict.fromkeys(self.problems)))
        if not isinstance(model, Model):
            raise Unsupported(f"{self.source} is a {spec['class_name']}, which is not a model")
        model.policy = self.policy
        return model

    def layer(self, spec: dict[str, Any]) -> Layer | None:
        """The layer of a config, or None and a problem."""
        kind, config = spec["class_name"], spec["config"]
        label = f"{kind} {config.get('name', '')!r}"
        if kind in ("Functional", "Model"):
            return self.functional(config)
        layer_class = Layer.known.get(kind)
        if layer_class is not None and spec.get("module") in _MODULES:
            layer_class = Layer.known.ours(kind)  # not a user's of the same name
        if layer_class is None and kind in Encoded.kinds and spec.get("module") in _MODULES:
            return self.encoded(kind, config, label)
        if spec.get("module", "keras.layers") not in _MODULES:
            return self.user_defined(spec, label)
        if layer_class is None:
            self.report(label)
            return None
        if kind == "Sequential":
            return self.sequential(config, spec)
        return self.make_layer(label, layer_class, self.options(layer_class, spec, label))

    def options(self, layer_class: type[Layer], spec: dict[str, Any],
                label: str) -> dict[str, Any]:
        """The arguments of our layer for the config of Keras' layer."""
        accepted = accepted_arguments(layer_class)
        options: dict[str, Any] = ({layer_class.layers_are: []}
                                   if issubclass(layer_class, Merge) else {})
        for key, value in spec["config"].items():
            if key == "dtype":
                options |= own_dtype(value, self.policy)
            elif key in self.ignore:
                continue
            elif value == "sparsemax" and key == "activation":
                self.report(f"{label} with activation=sparsemax, whose results in Keras do not sum "
                            "to 1 as those of ours do")
            elif key in accepted:
                options[key] = self.value(key, value, label)
            elif not may_be_left_out(key, value):
                self.report(f"{label} with {key}={short(value)}")
        calls = spec.get("inbound_nodes", ())
        if "use_causal_mask" in accepted and calls and all(
                node.get("kwargs", {}).get("use_causal_mask") for node in calls):
            options["use_causal_mask"] = True
        return options

    def user_defined(self, spec: dict[str, Any], label: str) -> Layer | None:
        """A user-defined layer or model, or None and a problem."""
        kind, config = user_class(Layer, spec), dict(spec["config"])
        module, name = spec.get("module"), spec["class_name"]
        if kind is None:
            self.report(f"{module}.{name}" if str(module).startswith("keras") else
                        f"{label}, a class that neither Keras nor ztorch has: define it, and pass "
                        f"it: zt.load_model(path, custom_objects=[{name}])")
            return None
        config |= own_dtype(config.pop("dtype", None), self.policy)
        if issubclass(kind, Model) and not kind.is_class:
            return self.functional(config, kind)
        return self.make_layer(label, kind, config)

    def reader(self, spec: dict[str, Any]) -> Any:
        """A layer that reads an input of strings on the host, or None and a problem."""
        try:
            return reader_of_text(spec["class_name"], spec["config"])
        except ZtorchError as error:
            return self.report(f"{spec['class_name']} of strings: {error}")

    def encoded(self, kind: str, config: dict[str, Any], label: str) -> Layer | None:
        """A preprocessing layer that the model computes, or None and a problem."""
        try:
            return Encoded(config_of(Encoded.kinds[kind], config), name=config.get("name"))
        except ZtorchError as error:
            self.report(f"{label}: {error}")
            return None

    def make_layer(self, label: str, layer_class: type[Layer],
                   options: dict[str, Any]) -> Layer | None:
        """A layer with these arguments, or None and a problem."""
        if None in (options.get("layer", self), options.get("cell", self),
                    *options.get("cells", ())):
            return None  # the problem with the layer inside is listed already
        try:
            return layer_class.from_config(options)
        except ZtorchError as error:
            self.report(f"{label}: {error}")
            return None

    def report(self, problem: str) -> None:
        """Adds a problem; `model` raises all of them together."""
        self.problems.append(problem)

    def value(self, key: str, value: Any, label: str) -> Any:
        """An argument of Keras' layer, as ours takes it; None and a problem where it takes none."""
        if isinstance(value, dict) and (key in _INSIDE or (
                key.endswith("activation") and value.get("class_name") in Layer.known)):
            return self.layer(value)
        if key == "cells":
            return [self.layer(cell) for cell in value]
        if not isinstance(value, dict):
            return value
        kind, config = value.get("class_name"), value.get("config")
        if kind == "function" and (registered := own_function(str(config))) is not None:
            return registered
        if kind in ARRAYS:
            return arguments(value, {})
        if key.endswith("initializer") and kind in Initializer.known and isinstance(config, dict):
            parameters = inspect.signature(Initializer.known[str(kind)].__init__).parameters
            return {"class_name": kind, "config": {k: v for k, v in config.items()
                                                   if v is not None or k in parameters}
                    if all(k in parameters for k, v in config.items() if v is not None) else {}}
        rules = (Regularizer if key.endswith("_regularizer") else
                 Constraint if key.endswith("_constraint") else None)
        if rules is not None and kind in rules.known:
            return {"class_name": kind, "config": config}
        self.report(f"{label} with {key}={short(value)}")
        return None

    # -- models ------------------------------------------------------------------------------------

    def input(self, config: dict[str, Any], ids: bool = False) -> Input | None:
        """The Input for an InputLayer; `ids`: an Embedding reads it as integers."""
        shape = config.get("batch_shape") or config.get("batch_input_shape")
        d = config.get("dtype") or "float32"
        d = d["config"]["name"] if isinstance(d, dict) else d
        d = "int32" if ids and d.startswith("float") else d
        return self.shaped(shape, None if d.startswith("float") else d, config.get("name"))

    def shaped(self, batch_shape: Any, d: str | None, name: str | None) -> Input | None:
        """An Input, with `input_shape` of load_keras where Keras left an axis open."""
        shape = list(batch_shape[1:]) if batch_shape else None
        requested = self.input_shape
        if requested and (shape is None or (len(shape) == len(requested) and all(
                n in (None, m) for n, m in zip(shape, requested, strict=True)))):
            shape = list(requested)
        if shape is None:
            self.report("inputs of unknown shape; give it, without the batch: "
                        "load_keras(path, input_shape=(...))")
            return None
        return Input(shape, d, name=name, batch_size=batch_shape[0] if batch_shape else None)

    def sequential(self, config: dict[str, Any], spec: dict[str, Any]) -> Layer | None:
        """A Sequential model, or None and a problem."""
        specs = config["layers"]
        layers: list[Any] = []
        reads_ids = next((s["class_name"] == "Embedding" for s in specs
                          if s["class_name"] != "InputLayer"), False)
        if specs and specs[0]["class_name"] == "InputLayer":
            layers.append(self.input(specs[0]["config"], reads_ids))
            specs = specs[1:]
        else:
            shape = (config.get("build_input_shape") or (spec.get("build_config") or {}).get(
                "input_shape") or (specs[0]["config"].get("batch_shape") if specs else None))
            layers.append(self.shaped(shape, "int32" if reads_ids else None, None))
        if layers and layers[0] is not None and layers[0].holds_text and specs:
            layers.append(self.reader(specs[0]))
            specs = specs[1:]
        layers += [self.layer(s) for s in specs]
        if self.problems or None in layers:
            return None
        return self.built(lambda: Sequential(
            [layer for layer in layers if layer], config.get("name"),
            trainable=config.get("trainable", True)))

    def functional(self, config: dict[str, Any], kind: type[Model] = Model) -> Layer | None:
        """A functional model, also of a user-defined class: calls the layers as Keras did."""
        specs = without_masks({spec["name"]: spec for spec in config["layers"]})
        layers: dict[str, Any] = {}  # by name; ops are functions
        strings = {name for name, spec in specs.items() if spec["class_name"] == "InputLayer"
                   and spec["config"].get("dtype") == "string"}
        for name, spec in specs.items():
            if spec["class_name"] == "InputLayer":
                readers = [s for s in specs.values() if s["class_name"] == "Embedding" and any(
                    history[0] == name for node in s["inbound_nodes"]
                    for history in histories(node))]
                layers[name] = self.input(spec["config"], bool(readers))
            elif any(h[0] in strings for node in spec["inbound_nodes"] for h in histories(node)):
                layers[name] = self.reader(spec)
            elif (str(spec.get("module")).startswith(MODULES)
                  or (spec.get("module"), spec["class_name"]) == keras_ops.SCALED_SUM):
                layers[name] = self.op(spec)
            else:
                layers[name] = self.layer(spec)
        if self.problems:
            return None
        return self.built(lambda: kind(*self._ends(config, specs, layers), config.get("name"),
                                       trainable=config.get("trainable", True)))

    def op(self, spec: dict[str, Any]) -> Any:
        """The function for an op of Keras, or None and a problem."""
        try:
            return keras_ops.op_of(spec)
        except Unsupported as error:
            self.report(str(error))
            return None

    def built(self, make: Any) -> Layer | None:
        """The model that a function makes, or None and a problem."""
        try:
            model = make()
            model.build()
            return model
        except ZtorchError as error:
            self.report(str(error))
            return None

    def _ends(self, config: dict[str, Any], specs: dict[str, Any],
              layers: dict[str, Any]) -> tuple[Any, Any]:
        """The inputs and outputs of a model. Calls each layer as soon as its arguments exist."""
        tensors = {(name, 0, 0): layer for name, layer in layers.items()
                   if isinstance(layer, Input)}
        waiting = [(name, k, node) for name, spec in specs.items()
                   for k, node in enumerate(spec["inbound_nodes"])]
        while waiting:
            ready = [(name, k, node) for name, k, node in waiting
                     if all(h in tensors for h in histories(node))]
            if not ready:
                raise ConfigError(f"{self.source}: layer {waiting[0][0]!r} is called on a tensor "
                                  "that no layer returns")
            for name, k, node in ready:
                result = self._call_layer(layers[name], node, tensors)
                results = result if isinstance(result, list | tuple) else [result]
                tensors |= {(name, k, i): tensor for i, tensor in enumerate(results)}
            waiting = [w for w in waiting if (w[0], w[1], 0) not in tensors]

        def tensors_of(reference: Any) -> Any:
            if isinstance(reference, dict):
                return {key: tensors_of(item) for key, item in reference.items()}
            if len(reference) == 3 and isinstance(reference[0], str):
                return tensors[tuple(reference)]
            return [tensors_of(item) for item in reference]

        inputs, outputs = (tensors_of(config[f"{end}_layers"]) for end in ("input", "output"))
        return unwrapped(inputs), unwrapped(outputs)

    def _call_layer(self, layer: Any, node: dict[str, Any], tensors: dict[Any, Any]) -> Any:
        args = [arguments(a, tensors) for a in node["args"]]
        options = {key: arguments(v, tensors) for key, v in node["kwargs"].items()
                   if v is not None and key != "training"}
        if getattr(layer, "use_causal_mask", None) or not options.get("use_causal_mask"):
            options.pop("use_causal_mask", None)  # the layer has it, as all its calls do
        if isinstance(layer, MultiHeadAttention) and all(
                a is args[0] for a in (*args, *options.values()) if a is not True):
            options = {key: a for key, a in options.items() if a is True}
            return layer(args[0], **options)
        return layer(*args, **options)
