"""Sequential: a chain of layers, declared, described and compiled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ztorch.arguments import checked
from ztorch.config import described
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.op import shape_error
from ztorch.graph.value import Value
from ztorch.layers.axes import checked_shape
from ztorch.layers.context import Context
from ztorch.layers.core import Input
from ztorch.layers.layer import Layer
from ztorch.layers.own_call import inputs_undeclared
from ztorch.layers.symbol import leaves
from ztorch.model.model import Model
from ztorch.names.own_classes import classes_by_name, known_as
from ztorch.tabular.host_layer import HostLayer

if TYPE_CHECKING:
    from typing_extensions import Self


class Sequential(Model):
    """A model in which each layer takes the output of the one before.

    Layers without a name are named after their class and numbered within the model: dense, dense_1.
    A Sequential can be a layer of another model.

    Args:
        layers: The layers in order. The first is an Input or has an `input_shape`; otherwise the
            shape is known when the model is built or called. Default: `None`.
        name: The name of the model; None: derived from the class. Default: `None`.
        seed: The seed of initial weights, dropout and shuffling. The initial value of a weight
            depends only on it and on the weight's name. None: 0, or the seed of the enclosing
            model. Default: `None`.
        trainable: Whether training changes the weights. Default: `True`.

    Raises:
        ConfigError: `layers` contains something else, or an Input that is not the first.

    Examples:
        >>> from ztorch import layers as L
        >>> model = Sequential([L.Input((4,)), L.Dense(3, activation="softmax")])
        >>> model.output_shape, model.count_params()
        ((None, 3), 15)
    """

    @checked
    def __init__(self, layers: Iterable[Layer] | None = None, name: str | None = None,
                 seed: int | None = None, trainable: bool = True):
        if isinstance(layers, Layer) or not isinstance(layers, Iterable | None):
            raise ConfigError(f"Sequential takes a list of layers, not {layers!r}; write "
                              "Sequential([Input(...), Dense(10)])")
        self._input: Input | None = None
        self._input_is_given = True  # not learned from a call
        self._declared: list[tuple[Layer, Any]] = []  # layers and their symbolic tensors
        self._begin(name, seed, trainable)
        for layer in layers or ():
            self.add(layer)

    # -- layers ------------------------------------------------------------------------------------

    def add(self, layer: Layer) -> None:
        """Appends a layer.

        Args:
            layer: A layer; an Input can only be the first.

        Raises:
            ConfigError: The layer is an Input after other layers, or belongs to another model.

        Examples:
            >>> from ztorch import layers as L
            >>> model = Sequential([L.Input((4,))])
            >>> model.add(L.Dense(10))
            >>> model.output_shape
            (None, 10)
        """
        if isinstance(layer, Input):
            if self.adopted or self._input is not None:
                last = self.adopted[-1].name if self.adopted else ""
                before = (f"layer {last!r} comes before this one" if last else
                          f"it has Input({self._input.row_shape} already)")  # type: ignore[union-attr]
                raise ConfigError(f"model {self.name!r}: Input must be the first layer, once; "
                                  f"{before}: omit it")
            self._input = layer
            return
        if isinstance(layer, HostLayer) and self._reads(layer):
            return
        self.adopt(layer)
        if len(self.adopted) == 1 and self._input is None:
            if isinstance(layer, Model):
                self._input = layer.inputs_by_name.get("")
            elif layer.input_shape is not None:
                self._input = Input(layer.input_shape)

    def _reads(self, layer: HostLayer) -> bool:
        """Whether a host layer encodes texts before the first layer of the model."""
        if self._input is None and layer.begins_models and not self.adopted:
            self._input = Input((), "string")
        if self._input is None or not self._input.holds_text or self._input.encoder or self.adopted:
            return False
        self._input.read_by(layer)
        return True

    def pop(self) -> Layer:
        """Removes the last layer.

        Returns:
            The layer.

        Raises:
            ConfigError: The model has no layers.

        Examples:
            >>> from ztorch import layers as L
            >>> model = Sequential([L.Input((4,)), L.Dense(8), L.Dense(3)])
            >>> model.pop().name
            'dense_1'
        """
        if not self.adopted:
            raise ConfigError(f"model {self.name!r} has no layers to pop; add() comes first")
        layer = self.adopted.pop()
        if layer.adopter is self:
            layer.adopter = None
        return layer

    # -- inputs and outputs ------------------------------------------------------------------------

    def declare_layers(self) -> None:
        """Calls the layers on symbolic tensors, in order, unless already done."""
        if self._input is None:
            return
        same = 0
        for (layer, _), now in zip(self._declared, self.adopted, strict=False):
            if layer is not now:
                break
            same += 1
        del self._declared[same:]
        x = self._declared[-1][1] if self._declared else self._input.symbol
        for layer in self.adopted[same:]:
            x = layer(x)
            self._declared.append((layer, x))

    def _output_of_first_call(self) -> Any:
        self.declare_layers()
        if not self._declared:
            raise AttributeError("output")
        return self._declared[-1][1]

    @property
    def inputs_by_name(self) -> dict[str, Input]:
        """The only Input, under an empty name."""
        return {} if self._input is None else {"": self._input}

    @property
    def output_names(self) -> list[str]:
        """An empty name, that of the only output."""
        return [""]

    @property
    def outputs_are(self) -> str:
        """The number of results of calling the model: "one" tensor."""
        return "one"

    def named_outputs(self, outputs: Any) -> dict[str, Value]:
        """The only output under an empty name, or a ShapeError if the last layer returns
        several."""
        if not isinstance(outputs, Value):
            last = self.adopted[-1].name
            raise shape_error(f"model {self.name!r} ends with layer {last!r}, which "
                              f"returns {len(leaves(outputs))} tensors, but a Sequential has one "
                              "output", fix="use a Model, which may have several outputs")
        return super().named_outputs(outputs)

    def build(self, input_shape: Any = None) -> None:
        """Computes all shapes and creates the weights. It is called automatically when needed.

        Args:
            input_shape: The shape of an input row, or with a leading None for the batch, as in
                Keras; None: that of the Input. Default: `None`.

        Raises:
            ConfigError: The shape is unknown, or differs from the Input's.
            ShapeError: A layer does not fit its input.

        Examples:
            >>> from ztorch import layers as L
            >>> model = Sequential([L.Dense(3)])
            >>> model.build((4,))
            >>> model.count_params()
            15
        """
        if input_shape is not None:
            has_batch = isinstance(input_shape, (list, tuple)) and input_shape[:1] in ((None,),
                                                                                       [None])
            shape = checked_shape("Sequential.build(input_shape=...)",
                                  input_shape[1:] if has_batch else input_shape)
            if self._input is None:
                self._build_for(shape)
            elif self._input.row_shape != shape:
                raise ConfigError(f"model {self.name!r} is declared for inputs of shape "
                                  f"{self._input.row_shape}, not {shape}; change its Input, or "
                                  "omit input_shape")
        self._need_layers()
        if self._input is None:
            raise ConfigError(f"model {self.name!r} does not know the shape of its inputs; start "
                              "with Input(shape), without the batch: "
                              "Sequential([Input((28, 28, 1)), ...])")
        super().build()

    def _build_for(self, shape: tuple[int, ...]) -> None:
        """Builds for floats of the model, or for integers if the layers need them."""
        self._need_layers()
        self._input = Input(shape)
        try:
            with inputs_undeclared():
                super().build()
        except ShapeError as error:
            self._input = Input(shape, "int32")
            try:
                super().build()
            except ShapeError:
                self._input = None
                raise error from None

    @property
    def knows_inputs(self) -> bool:
        """Whether the shape of the input is known: from an Input, or after `build`."""
        return self._input is not None

    def _need_layers(self) -> None:
        if not self.adopted:
            raise ConfigError(f"model {self.name!r} has no layers; add one, such as Dense(10)")

    def prepare(self, x: Any, *more: Any, **options: Any) -> None:
        """Called when the model is called as a layer: the shape of its inputs is then known."""
        self._need_layers()
        if not isinstance(x, Value):
            raise shape_error(f"a Sequential takes one tensor, not {len(x)}", fix="declare a part "
                              "with several inputs as Model(inputs, outputs)")
        if self._input is None:
            self._input = Input(x.shape[1:], None if x.dtype.is_float else x.dtype)
            self._input_is_given = False
        if self._input_is_given or x.shape[-1:] != self._input.row_shape[-1:]:
            super().prepare(x)  # otherwise rows may have other lengths than the first ones

    def call(self, x: Any, context: Context) -> Any:
        """The output for a batch, in a graph. Layers and tracing call it.

        Args:
            x: The input, a graph value of shape (batch, *input_shape).
            context: The context of the traced function.

        Returns:
            The output of the last layer.
        """
        for layer in self.adopted:
            x = layer(x, context)
        return x

    # -- description -------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Describes the model and its layers, without weights.

        Returns:
            A dict that is ready for JSON; `from_config` reads it.
        """
        layers = [*([self._input] if self._input else []), *self.adopted]
        return {**self._common_config(),
                "layers": [described(layer, layer.name) for layer in layers]}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """Makes the model that `get_config` described.

        Args:
            config: The result of `get_config`.
            custom_objects: Further classes that the config names, by name or as a list. Default:
                `None`.

        Returns:
            A model with initial weights.

        Raises:
            ConfigError: `config` does not describe such a model.
        """
        if not isinstance(config, dict) or not isinstance(config.get("layers"), list):
            raise ConfigError(f"this config does not describe a {cls.__name__}: it has no list of "
                              "layers")
        with known_as(classes_by_name(custom_objects or {})):
            layers = [Layer.get(spec) for spec in config["layers"]]
        return cls(layers, config.get("name"), config.get("seed"), config.get("trainable", True))
