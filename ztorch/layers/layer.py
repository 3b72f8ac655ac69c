"""What a layer is: arguments, weights made once the input shape is known, and a traced call."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np

from ztorch.config import RESERVED, Named
from ztorch.errors import ConfigError, WeightsError, unknown
from ztorch.graph.op import shape_error
from ztorch.graph.value import Value, layer_scope
from ztorch.initializers import Initializer, Shape, stream
from ztorch.layers.context import Context


class Weight:
    """An array that a layer owns on the host, drawn when first read."""

    def __init__(self, layer: Layer, name: str, shape: Shape, initializer: Initializer,
                 trainable: bool):
        self.layer = layer
        self.name = name
        self.shape = shape
        self.initializer = initializer
        self.trainable = trainable
        self._value: np.ndarray | None = None

    @property
    def path(self) -> str:
        """The name in weight files and programs: `dense/kernel`."""
        return f"{self.layer.name}/{self.name}"

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def trains(self) -> bool:
        """Whether an optimizer may change it."""
        return self.trainable and self.layer.trainable

    @property
    def value(self) -> np.ndarray:
        if self._value is None:
            drawn = self.initializer(self.shape, stream(self.layer.model_seed, self.path))
            self._value = drawn.astype(np.float32)
        return self._value

    @value.setter
    def value(self, array: Any) -> None:
        self._value = self.checked(array)

    def checked(self, array: Any) -> np.ndarray:
        """A copy of the array, if it can be this weight."""
        given = np.asarray(array)
        if given.shape != self.shape:
            raise WeightsError(f"weight {self.path!r} has shape {self.shape}, the given array "
                               f"{given.shape}; use weights of a model with the same layers")
        if given.dtype.kind not in "fiu":
            raise WeightsError(f"weight {self.path!r} takes numbers, not {given.dtype}")
        # float64 stays: a float64 program's weights must survive the way back and forth
        return given.astype(np.float64 if given.dtype == np.float64 else np.float32)

    def __repr__(self) -> str:
        return f"<weight {self.path} {self.shape}>"


class Layer(Named, family="layer"):
    """Base of all layers. Subclasses keep their arguments as attributes of the same names, make
    weights in `build` and compute with ops in `call`; registering is subclassing.

    Shapes never include the batch axis in `build`; tensors in `call` have it first.

    >>> from ztorch.layers import Layer
    >>> class Scale(Layer):
    ...     def build(self, input_shape):
    ...         self.factor = self.add_weight("factor", (), "ones")
    ...     def call(self, x, context):
    ...         return x * context.read(self.factor)
    >>> Scale(name="s").get_config()
    {'name': 's'}
    """

    def __init__(self, *, name: str | None = None, trainable: bool = True,
                 input_shape: Any = None, **wrong: Any):
        if wrong:
            known = [*inspect.signature(type(self).__init__).parameters, "name", "trainable",
                     "input_shape"]
            raise unknown(f"argument of {type(self).__name__}", next(iter(wrong)),
                          [k for k in known if k not in ("self", "common")])
        self.given_name = None if name is None else checked_name(name, type(self).__name__)
        self.name = self.given_name or snake_case(type(self).__name__)
        self.trainable = trainable
        self.input_shape = None if input_shape is None else checked_shape(
            f"{type(self).__name__}(input_shape=...)", input_shape)
        self.weights: list[Weight] = []
        self.built = False
        self.model_seed = 0  # once the layer belongs to a model, that model's

    def build(self, input_shape: Shape) -> None:
        """Makes the weights for inputs of this shape (without the batch)."""

    def call(self, x: Value, context: Context) -> Value:
        """The layer's output as a value of the graph."""
        raise NotImplementedError(f"{type(self).__name__}.call")

    def __call__(self, x: Value, context: Context | None = None) -> Value:
        """Builds the layer if needed and traces it; errors name the layer."""
        with layer_scope(self.name):
            if not self.built:
                self.weights = []  # of a build that failed halfway
                self.build(x.shape[1:])
                self.built = True
            return self.call(x, context if context is not None else Context())

    def add_weight(self, name: str, shape: Shape, initializer: Any = "glorot_uniform",
                   trainable: bool = True) -> Weight:
        """A weight of this layer, in Keras' order: the order of the calls."""
        if any(w.name == name for w in self.weights):
            raise ConfigError(f"layer {self.name!r} has two weights named {name!r}")
        weight = Weight(self, name, tuple(shape), Initializer.get(initializer), trainable)
        self.weights.append(weight)
        return weight

    def need_rank(self, shape: Shape, rank: int, what: str, fix: str) -> None:
        """A ShapeError unless inputs (without batch) have this many axes."""
        if len(shape) != rank:
            raise shape_error(f"{type(self).__name__} needs inputs of {rank} axes {what} besides "
                              "the batch, not", shape, fix=fix)

    def count_params(self) -> int:
        """How many numbers the layer's weights hold."""
        return sum(w.size for w in self.weights)

    def get_config(self) -> dict[str, Any]:
        own = {k: v for k, v in super().get_config().items()
               if k not in ("name", "trainable", "input_shape")}  # a model's Input has the shape
        return {"name": self.name, **own, **({} if self.trainable else {"trainable": False})}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def snake_case(name: str) -> str:
    """Keras' automatic layer names.

    >>> snake_case("LayerNormalization"), snake_case("ReLU"), snake_case("Conv2D")
    ('layer_normalization', 're_lu', 'conv2d')
    """
    split = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", split).lower()


def checked_name(name: Any, of: str) -> str:
    """The name, if it can serve in weight files, messages and artifacts."""
    fault = ("is not a string" if not isinstance(name, str) else
             "is empty" if not name else
             "contains a '/'" if "/" in name else
             "contains a control character" if not name.isprintable() else
             "is reserved" if name in RESERVED else "")
    if fault:
        raise ConfigError(f"the name {name!r} of a {of} {fault}; use printable characters "
                          f"without '/', such as {snake_case(of)!r}")
    return name


def checked_shape(what: str, shape: Any) -> Shape:
    """A fixed shape without the batch axis."""
    if isinstance(shape, (int, np.integer)):
        raise ConfigError(f"{what} is {shape!r}; a shape is a tuple: ({shape},)")
    try:
        dims = tuple(shape)
    except TypeError:
        raise ConfigError(f"{what} is {shape!r}; a shape is a tuple such as (28, 28, 1)") from None
    for n in dims:
        if isinstance(n, bool) or not hasattr(n, "__index__") or n.__index__() < 1:
            raise ConfigError(f"{what} is {dims}: every axis must be a positive whole number; "
                              "shapes are fixed when the model is compiled, and leave out the "
                              "batch")
    return tuple(n.__index__() for n in dims)
