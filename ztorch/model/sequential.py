"""Sequential: layers in a row, declared, described and compiled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ztorch.arguments import checked
from ztorch.config import described
from ztorch.errors import ConfigError
from ztorch.graph.op import shape_error
from ztorch.graph.value import Value
from ztorch.layers.axes import checked_shape
from ztorch.layers.context import Context
from ztorch.layers.core import Input
from ztorch.layers.layer import Layer
from ztorch.model.model import Model

if TYPE_CHECKING:
    from typing_extensions import Self


class Sequential(Model):
    """A model: each layer works on the output of the one before.

    Layers without a name get one from their class, counted within the model: dense, dense_1.
    First weights depend on the seed and each weight's name alone; the default seed is 0, or that
    of the model around it: a Sequential can also be a layer of another one.

    >>> from ztorch import layers as L
    >>> model = Sequential([L.Input((4,)), L.Dense(3, activation="softmax")])
    >>> model.output_shape, model.count_params()
    ((3,), 15)
    """

    @checked
    def __init__(self, layers: Iterable[Layer] | None = None, name: str | None = None,
                 seed: int | None = None, trainable: bool = True):
        self._input: Input | None = None
        self._begin(name, seed, trainable)
        if isinstance(layers, Layer) or not isinstance(layers, Iterable | None):
            raise ConfigError(f"Sequential takes a list of layers, not {layers!r}; write "
                              "Sequential([Input(...), Dense(10)])")
        for layer in layers or ():
            self.add(layer)

    # -- layers ------------------------------------------------------------------------------------

    def add(self, layer: Layer) -> None:
        """Appends a layer."""
        if isinstance(layer, Input):
            if self.inner or self._input is not None:
                before = (f"layer {self.inner[-1].name!r} comes before this one" if self.inner else
                          f"Input({self._input.shape}) is there already")  # type: ignore[union-attr]
                raise ConfigError(f"model {self.name!r}: Input must be the first layer, once; "
                                  f"{before}: leave it out")
            self._input = layer
            return
        self.adopt(layer)
        if len(self.inner) == 1 and self._input is None:
            if isinstance(layer, Model):
                self._input = layer.inputs.get("")
            elif layer.input_shape is not None:
                self._input = Input(layer.input_shape)

    def pop(self) -> Layer:
        """Removes and returns the last layer."""
        if not self.inner:
            raise ConfigError(f"model {self.name!r} has no layers to pop; add() comes first")
        layer = self.inner.pop()
        if layer.outer is self:
            layer.outer = None
        return layer

    # -- inputs and outputs ------------------------------------------------------------------------

    @property
    def inputs(self) -> dict[str, Input]:
        """The Input under an empty name, as the only one."""
        return {} if self._input is None else {"": self._input}

    @property
    def output_names(self) -> list[str]:
        """An empty name, for the only output."""
        return [""]

    @property
    def outputs_are(self) -> str:
        """What calling the model gives: "one" tensor."""
        return "one"

    def build(self, input_shape: Any = None) -> None:
        """Finds every shape and makes the weights; called for you where it is needed."""
        if input_shape is not None:
            given = checked_shape("Sequential.build(input_shape=...)", input_shape)
            if self._input is None:
                self._input = Input(given)
            elif self._input.shape != given:
                raise ConfigError(f"model {self.name!r} is declared for inputs of shape "
                                  f"{self._input.shape}, not {given}; change its Input, or leave "
                                  "input_shape out")
        self._need_layers()
        if self._input is None:
            raise ConfigError(f"model {self.name!r} does not know the shape of its inputs; begin "
                              "with Input(shape), where shape leaves out the batch: "
                              "Sequential([Input((28, 28, 1)), ...])")
        super().build()

    def _need_layers(self) -> None:
        if not self.inner:
            raise ConfigError(f"model {self.name!r} has no layers; add one, such as Dense(10)")

    def prepare(self, x: Any, *more: Any, **how: Any) -> None:
        """Called as a layer: the shape of inputs is known from here on."""
        self._need_layers()
        if not isinstance(x, Value):
            raise shape_error(f"a Sequential takes one tensor, not {len(x)}", fix="declare a part "
                              "with several inputs as Model(inputs, outputs)")
        if self._input is None:
            self._input = Input(x.shape[1:], None if x.dtype.is_float else x.dtype)
        super().prepare(x)

    def call(self, x: Any, context: Context) -> Any:
        """The model's output for a batch, as a value of the graph."""
        for layer in self.inner:
            x = layer(x, context)
        return x

    # -- description -------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """All arguments of the model and its layers, ready for JSON; without weights."""
        layers = [*([self._input] if self._input else []), *self.inner]
        return {**self._common_config(),
                "layers": [described(layer, layer.name) for layer in layers]}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The model that `get_config` described, with first weights."""
        if not isinstance(config, dict) or not isinstance(config.get("layers"), list):
            raise ConfigError(f"this config does not describe a {cls.__name__}: it has no list of "
                              "layers")
        return cls([Layer.get(spec) for spec in config["layers"]], config.get("name"),
                   config.get("seed"), config.get("trainable", True))
