"""Sequential: layers in a row, declared, described and compiled."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ztorch import weight_files
from ztorch.backends import host
from ztorch.config import described, whole_seed
from ztorch.errors import ConfigError, WeightsError
from ztorch.graph.op import leaf, shape_error
from ztorch.graph.value import Value, topological
from ztorch.initializers import Shape
from ztorch.layers.context import Context, States
from ztorch.layers.core import Input
from ztorch.layers.layer import Layer, Weight, checked_shape
from ztorch.summary import Traced, print_summary
from ztorch.tracing import Functions, trace

# What Keras users look for here, and find on the program that compile returns.
_OF_PROGRAMS = ("evaluate", "fit", "history", "plot", "predict", "predict_on_batch", "save",
                "test_on_batch", "train_on_batch")


class Sequential(Layer):
    """A model: each layer works on the output of the one before.

    Layers without a name get one from their class, counted within the model: dense, dense_1.
    First weights depend on the seed and each weight's name alone; the default seed is 0, or that
    of the model around it: a Sequential can also be a layer of another one.

    >>> from ztorch import layers as L
    >>> model = Sequential([L.Input((4,)), L.Dense(3, activation="softmax")])
    >>> model.output_shape, model.count_params()
    ((3,), 15)
    """

    def __init__(self, layers: Iterable[Layer] | None = None, name: str | None = None,
                 seed: int | None = None, trainable: bool = True):
        self._input: Input | None = None
        self._seed = None if seed is None else whole_seed(seed)
        self._traced: list[Traced] = []  # filled by build, for
        self._traced_of: list[Layer] = []  # these
        super().__init__(name=name, trainable=trainable)
        if isinstance(layers, Layer) or not isinstance(layers, Iterable | None):
            raise ConfigError(f"Sequential takes a list of layers, not {layers!r}; write "
                              "Sequential([Input(...), Dense(10)])")
        for layer in layers or ():
            self.add(layer)

    # -- layers ------------------------------------------------------------------------------------

    @property
    def layers(self) -> list[Layer]:
        """The layers, without the Input (as in Keras)."""
        return list(self.inner)

    def add(self, layer: Layer) -> None:
        """Appends a layer."""
        if isinstance(layer, Input):
            if self.inner or self._input is not None:
                raise ConfigError(f"model {self.name!r}: Input must be the first layer, once")
            self._input = layer
            return
        self.adopt(layer)
        if len(self.inner) == 1 and self._input is None:
            if isinstance(layer, Sequential):
                self._input = layer._input
            elif layer.input_shape is not None:
                self._input = Input(layer.input_shape)

    def pop(self) -> Layer:
        """Removes and returns the last layer."""
        if not self.inner:
            raise ConfigError(f"model {self.name!r} has no layers to pop")
        layer = self.inner.pop()
        if layer.outer is self:
            layer.outer = None
        return layer

    @property
    def path(self) -> str:
        """Empty unless the model is part of another: weights are named from the model on."""
        return super().path if self.outer is not None else ""

    @property
    def model_seed(self) -> int:
        """The seed of first weights: the model's own, or that of the model around it."""
        return super().model_seed if self._seed is None else self._seed

    @property
    def seed(self) -> int:
        """The seed of first weights, dropout and shuffling."""
        return self.model_seed

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """The layer of that name or at that index."""
        named = {layer.name: k for k, layer in enumerate(self.inner)}
        if index is not None or name in named:
            return self.inner[named[str(name)] if index is None else index]
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
        self._need_layers()
        if self._input is None:
            raise ConfigError(f"model {self.name!r} does not know the shape of its inputs; begin "
                              "with Input(shape), where shape leaves out the batch: "
                              "Sequential([Input((28, 28, 1)), ...])")
        layers = [layer for _, layer in self.walk()]
        if self._traced and self._traced_of == layers:
            return
        x = leaf("input", "x", (1, *self._input.shape), self._input.dtype or "float32")
        context = Context(states=States(data=False, root=self.path))
        nodes: dict[str, list[Value]] = {}
        for v in topological([self.call(x, context)]):
            nodes.setdefault(v.layer, []).append(v)
        self._traced = [Traced(depth, layer, context.results[layer].shape[1:],
                               nodes.get(layer.path, []))
                        for depth, layer in self.walk(-1) if layer in context.results]
        self._traced_of = layers
        self._need_distinct_names()

    def _need_layers(self) -> None:
        if not self.inner:
            raise ConfigError(f"model {self.name!r} has no layers; add one, such as Dense(10)")

    def _need_distinct_names(self) -> None:
        """Layers of several models may meet deep in this one, each named by where it was first."""
        taken: dict[str, Layer] = {}
        for row in self._traced:
            other = taken.setdefault(row.layer.path, row.layer)
            if other is not row.layer:
                raise ConfigError(f"model {self.name!r} has two layers named {other.path!r}; give "
                                  "one another name=")
            if sum(row.layer is r.layer for r in self._traced) > 1:
                raise ConfigError(f"layer {other.path!r} is in the model twice; make a second "
                                  "layer")

    def prepare(self, x: Value) -> None:
        """Called as a layer: the shape of inputs is known from here on."""
        self._need_layers()
        if self._input is None:
            self._input = Input(x.shape[1:], None if x.dtype.is_float else x.dtype)
        elif self._input.shape != x.shape[1:]:
            raise shape_error("it is declared for inputs of one shape and called with another:",
                              self._input.shape, x.shape[1:], fix="change its Input or the layers "
                              "before it")

    def call(self, x: Value, context: Context) -> Value:
        """The model's output for a batch, as a value of the graph."""
        for layer in self.inner:
            x = layer(x, context)
        return x

    def traced_layers(self) -> list[Traced]:
        """Each layer, those inside others as well, for one example."""
        self.build()
        return self._traced

    @property
    def input_shape(self) -> Shape:
        """The shape of one example."""
        self.build()
        assert self._input is not None
        return self._input.shape

    @input_shape.setter
    def input_shape(self, shape: Shape | None) -> None:
        """A model has an Input for this; its base class sets None."""

    @property
    def input_dtype(self) -> str | None:
        """The dtype of inputs, where it differs from the model's."""
        return self._input.dtype if self._input else None

    @property
    def output_shape(self) -> Shape:
        """The shape of one prediction."""
        self.build()
        return next(row.shape for row in reversed(self._traced) if row.depth == 0)

    @property
    def weights(self) -> list[Weight]:
        """All weights, in Keras' order."""
        self.build()
        return super().weights

    def named_weights(self) -> dict[str, Weight]:
        """All weights by their names in this model's files: `dense/kernel`."""
        states = States(root=self.path)
        return {states.name(w): w for w in self.weights}

    def summary(self, print_fn: Callable[[str], Any] = print) -> None:
        """Prints the layers with output shapes, parameters, FLOPs and bytes."""
        print_summary(self, print_fn)

    def need_memory(self, bytes_each: int) -> None:
        """An error where so many bytes for each parameter cannot be had."""
        n = self.count_params()
        host.need_memory(f"model {self.name!r} with {n:,} parameters", n * bytes_each,
                         "make layers smaller; summary() shows which are large")

    def get_weights(self) -> list[np.ndarray]:
        """Copies of all weights, in Keras' order."""
        self.need_memory(8)
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
        self.need_memory(8)
        weight_files.write(path, {n: w.value for n, w in self.named_weights().items()}, self.name)

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Reads weights that the same model, or a program made of it, wrote."""
        own = {n: w.shape for n, w in self.named_weights().items()}
        self.set_weights(list(weight_files.read(path, own, self.name).values()))

    # -- description -------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """All arguments of the model and its layers, ready for JSON; without weights."""
        layers = [*([self._input] if self._input else []), *self.inner]
        return {"name": self.name, "seed": self.seed if self.outer is None else self._seed,
                **({} if self.trainable else {"trainable": False}),
                "layers": [described(layer, layer.name) for layer in layers]}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Sequential:
        """The model that `get_config` described, with first weights."""
        if not isinstance(config.get("layers"), list):
            raise ConfigError(f"this config does not describe a {cls.__name__}: it has no list of "
                              "layers")
        return cls([Layer.get(spec) for spec in config["layers"]], config.get("name"),
                   config.get("seed"), config.get("trainable", True))

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

    def __getattr__(self, name: str) -> Any:
        if name in _OF_PROGRAMS:
            raise AttributeError(f"a model has no {name!r}, what compile returns has: program = "
                                 f"model.compile(...), then program.{name}")
        raise AttributeError(f"'Sequential' object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<Sequential {self.name!r} of {len(self.inner)} layers>"
