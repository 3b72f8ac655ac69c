"""Sequential: layers in a row, declared, described and compiled."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ztorch import weight_files
from ztorch.config import described, whole_seed
from ztorch.errors import ConfigError, WeightsError
from ztorch.graph.op import leaf
from ztorch.graph.value import Value, topological
from ztorch.initializers import Shape
from ztorch.layers.context import Context, States
from ztorch.layers.core import Input
from ztorch.layers.layer import Layer, Weight, checked_name, checked_shape
from ztorch.summary import print_summary
from ztorch.tracing import Functions, trace


class Sequential:
    """A model: each layer works on the output of the one before.

    Layers without a name get one from their class, counted within the model: dense, dense_1.
    First weights depend on the seed and each weight's name alone; the default seed is 0.

    >>> from ztorch import layers as L
    >>> model = Sequential([L.Input((4,)), L.Dense(3, activation="softmax")])
    >>> model.output_shape, model.count_params()
    ((3,), 15)
    """

    def __init__(self, layers: Iterable[Layer] | None = None, name: str | None = None,
                 seed: int | None = None):
        self.name = "sequential" if name is None else checked_name(name, "Sequential")
        self.seed = whole_seed(seed)
        self._input: Input | None = None
        self._layers: list[Layer] = []
        self._traced: list[tuple[Layer, Shape, list[Value]]] = []  # filled by build
        for layer in layers or ():
            self.add(layer)

    # -- layers ------------------------------------------------------------------------------------

    @property
    def layers(self) -> list[Layer]:
        """The layers, without the Input (as in Keras)."""
        return list(self._layers)

    def add(self, layer: Layer) -> None:
        """Appends a layer."""
        if isinstance(layer, Sequential):
            raise ConfigError("a Sequential cannot be a layer; add its own: [*base.layers, ...]")
        if not isinstance(layer, Layer):
            what = f"the class {layer.__name__}" if isinstance(layer, type) else repr(layer)
            raise ConfigError(f"model {self.name!r} takes layers, not {what}; write Dense(10), "
                              "not Dense or 10")
        if isinstance(layer, Input):
            if self._layers or self._input is not None:
                raise ConfigError(f"model {self.name!r}: Input must be the first layer, once")
            self._input = layer
            return
        if not self._layers and self._input is None and layer.input_shape is not None:
            self._input = Input(layer.input_shape)
        self._name(layer)
        if not layer.built:
            layer.model_seed = self.seed
        self._layers.append(layer)
        self._traced = []

    def pop(self) -> Layer:
        """Removes and returns the last layer."""
        if not self._layers:
            raise ConfigError(f"model {self.name!r} has no layers to pop")
        self._traced = []
        return self._layers.pop()

    def _name(self, layer: Layer) -> None:
        taken = {other.name for other in self._layers}
        if layer in self._layers:
            raise ConfigError(f"layer {layer.name!r} is in the model twice; make a second layer")
        if layer.name in taken and (layer.given_name or layer.built):
            raise ConfigError(f"model {self.name!r} has two layers named {layer.name!r}; give one "
                              "another name=")
        base, k = layer.name, 0
        while layer.name in taken:
            k += 1
            layer.name = f"{base}_{k}"

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """The layer of that name or at that index."""
        named = {layer.name: k for k, layer in enumerate(self._layers)}
        if index is not None or name in named:
            return self._layers[named[str(name)] if index is None else index]
        raise ConfigError(f"model {self.name!r} has no layer {name!r}; it has "
                          f"{', '.join(named)}")

    # -- shapes and weights ------------------------------------------------------------------------

    def build(self, input_shape: Any = None) -> None:
        """Finds every shape and makes the weights; called for you where it is needed."""
        if input_shape is not None:
            given = checked_shape("Sequential.build(input_shape=...)", input_shape)
            if self._input is None:
                self._input = Input(given)
            elif self._input.shape != given:
                raise ConfigError(f"model {self.name!r} is declared for inputs of shape "
                                  f"{self._input.shape}, not {given}")
        if not self._layers:
            raise ConfigError(f"model {self.name!r} has no layers; add one, such as Dense(10)")
        if self._input is None:
            raise ConfigError(f"model {self.name!r} does not know the shape of its inputs; begin "
                              "with Input(shape), where shape leaves out the batch: "
                              "Sequential([Input((28, 28, 1)), ...])")
        if self._traced:
            return
        x = leaf("input", "x", (1, *self._input.shape), self._input.dtype or "float32")
        context = Context(states=States(data=False))
        seen, traced = {x}, []
        for layer in self._layers:
            x = layer(x, context)
            nodes = [v for v in topological([x]) if v not in seen]
            seen.update(nodes)
            traced.append((layer, x.shape[1:], nodes))
        self._traced = traced

    def call(self, x: Value, context: Context) -> Value:
        """The model's output for a batch, as a value of the graph."""
        for layer in self._layers:
            x = layer(x, context)
        return x

    def traced_layers(self) -> list[tuple[Layer, Shape, list[Value]]]:
        """Each layer with its output shape and its nodes of the graph, for one example."""
        self.build()
        return self._traced

    @property
    def input_shape(self) -> Shape:
        """The shape of one example."""
        self.build()
        assert self._input is not None
        return self._input.shape

    @property
    def input_dtype(self) -> str | None:
        """The dtype of inputs, where it differs from the model's."""
        return self._input.dtype if self._input else None

    @property
    def output_shape(self) -> Shape:
        """The shape of one prediction."""
        self.build()
        return self._traced[-1][1]

    @property
    def weights(self) -> list[Weight]:
        """All weights, in Keras' order."""
        self.build()
        return [w for layer in self._layers for w in layer.weights]

    def count_params(self) -> int:
        """How many numbers the weights hold."""
        return sum(w.size for w in self.weights)

    def summary(self, print_fn: Callable[[str], Any] = print) -> None:
        """Prints the layers with output shapes, parameters, FLOPs and bytes."""
        print_summary(self, print_fn)

    def get_weights(self) -> list[np.ndarray]:
        """Copies of all weights, in Keras' order."""
        return [w.value.copy() for w in self.weights]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Replaces all weights; takes what `get_weights` of a model or a program gives."""
        own = self.weights
        if len(weights) != len(own):
            raise WeightsError(f"model {self.name!r} has {len(own)} weights, {len(weights)} were "
                               "given; use the weights of a model with the same layers")
        checked = [w.checked(array) for w, array in zip(own, weights, strict=True)]
        for w, array in zip(own, checked, strict=True):  # only once all fit
            w.value = array

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Writes the weights as safetensors, named `layer/weight`; whole or not at all."""
        weight_files.write(path, {w.path: w.value for w in self.weights}, self.name)

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Reads weights that the same model, or a program made of it, wrote."""
        own = {w.path: w.shape for w in self.weights}
        self.set_weights(list(weight_files.read(path, own, self.name).values()))

    # -- description -------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """All arguments of the model and its layers, ready for JSON; without weights."""
        layers = [*([self._input] if self._input else []), *self._layers]
        return {"name": self.name, "seed": self.seed,
                "layers": [described(layer, layer.name) for layer in layers]}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Sequential:
        """The model that `get_config` described, with first weights."""
        return cls([Layer.get(spec) for spec in config["layers"]], config.get("name"),
                   config.get("seed"))

    def to_json(self, **options: Any) -> str:
        """The model's description as JSON; options go to json.dumps."""
        return json.dumps({"class_name": "Sequential", "config": self.get_config()}, **options)

    @classmethod
    def from_json(cls, text: str) -> Sequential:
        """The model that `to_json` described."""
        try:
            data = json.loads(text)
            config = data["config"] if data["class_name"] == "Sequential" else None
        except (json.JSONDecodeError, KeyError, TypeError):
            config = None
        if not isinstance(config, dict) or not isinstance(config.get("layers"), list):
            raise ConfigError("this text does not describe a Sequential; use that of to_json()")
        return cls.from_config(config)

    # -- programs ----------------------------------------------------------------------------------

    def trace(self, batch_size: int, optimizer: Any = None, loss: Any = None,
              metrics: Iterable[Any] = (), dtype: Any = "float32",
              seed: int | None = None) -> Functions:
        """The graphs of a program: predict, with a loss evaluate, with an optimizer train."""
        return trace(self, batch_size, optimizer, loss, metrics, dtype, seed)

    def compile(self, device: str = "auto", *, batch_size: int = 32, optimizer: Any = None,
                loss: Any = None, metrics: Iterable[Any] = (), dtype: Any = "float32",
                threads: int | None = None, seed: int | None = None) -> Any:
        """A program for one device and batch size: native code for the whole step.

        Without a loss it predicts; with a loss it also evaluates; with an optimizer it trains.
        `seed` changes the random numbers of training (dropout, shuffling), the model's otherwise.
        """
        from ztorch.compile import build  # the compiler is needed from here on, not before
        from ztorch.training.program import Program

        traced = self.trace(batch_size, optimizer, loss, metrics, dtype, seed)
        return Program(build(traced.functions, device, self.name, threads=threads),
                       traced.metadata)

    def __repr__(self) -> str:
        return f"<Sequential {self.name!r} of {len(self._layers)} layers>"
