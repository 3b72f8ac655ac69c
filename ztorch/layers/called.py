"""The symbolic tensors of layers and models: the inputs and outputs of their calls.

A new model may start and end at any of them, and uses the layers between them with their weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztorch.errors import ConfigError
from ztorch.graph.op import leaf
from ztorch.graph.value import current_layer
from ztorch.layers.building import nested_shapes
from ztorch.layers.context import Context, States
from ztorch.layers.symbol import LayerCall, as_symbol, leaves, nested

OF_FIRST_CALL = ("input", "output", "inputs", "outputs")  # of a layer or model that was called once


class NeverCalled(ConfigError, AttributeError):
    """A layer was not called on symbolic tensors, so it has no input and no output."""


class OfFirstCall:
    """An attribute that is read from the first call of a layer. An attribute of the layer with the
    same name hides it."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, layer: Any, owner: type) -> Any:
        if layer is None:
            return self
        return getattr(layer, f"_{self._name}_of_first_call")()


class CalledLayer:
    """The part of a layer that records its calls on symbolic tensors."""

    calls: list[LayerCall]  # in order, including those of other models
    input: Any = OfFirstCall("input")
    output: Any = OfFirstCall("output")

    def declare_layers(self) -> None:
        """Calls the inner layers on symbolic tensors, if the model does so only on request."""

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the output for inputs of a shape, both including the batch, as in Keras.

        Args:
            input_shape: The shape, or a list or dict of shapes.

        Examples:
            >>> from ztorch.layers import Dense
            >>> Dense(4).compute_output_shape((None, 3))
            (None, 4)
        """
        layer: Any = self
        y = layer(nested_shapes(lambda shape: leaf("input", "x", (1, *shape[1:]), "float32"),
                                input_shape), context=Context(states=States(data=False)))
        return nested(lambda v: (None, *v.shape[1:]), y)

    def _input_of_first_call(self) -> Any:
        return nested(as_symbol, _alone(self._first_call("input").args))

    def _output_of_first_call(self) -> Any:
        return self._first_call("output").result

    def _first_call(self, attribute: str) -> LayerCall:
        adopter = getattr(self, "adopter", None)
        if not self.calls and adopter is not None:
            adopter.declare_layers()
        if not self.calls:
            raise AttributeError(attribute)  # Layer.__getattr__ turns it into the message
        return self.calls[0]


def never_called(layer: Any, attribute: str) -> NeverCalled:
    """The error for a layer without an input or output."""
    return NeverCalled(
        f"layer {layer.name!r} was never called on a symbolic tensor, so it has no {attribute}; "
        f"call it on an Input or on another layer's output, or start the Sequential around it "
        "with an Input")


def made_with_model(layer: Any) -> bool:
    """Builds the model around a layer that has no weights yet, if its inputs are known: as in
    Keras, `model.layers[0].kernel` then exists at once. Returns whether it did."""
    if current_layer() or vars(layer).get("built", True):
        return False
    model = layer
    while (outer := vars(model).get("adopter")) is not None:
        model = outer
    if model is layer or not getattr(model, "knows_inputs", False):
        return False
    model.build()
    return bool(layer.built)


def _alone(x: Any) -> Any:
    """The only item of a tuple or list with one item."""
    return x[0] if isinstance(x, (list, tuple)) and len(x) == 1 else x


class ModelTensors(CalledLayer):
    """The part of a model that returns its inputs and outputs as symbolic tensors."""

    name: str
    own_call: Any
    wiring: Any
    rows_together: int | None = None  # rows of a batch without which the model cannot be traced

    if TYPE_CHECKING:
        @property
        def knows_inputs(self) -> bool: ...

        def output_rows(self) -> dict[str, Any]: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {len(vars(self)['adopted'])} layers>"

    @property
    def inputs_by_name(self) -> dict[str, Any]:
        """The Inputs by name; the name is empty if there is only one."""
        raise NotImplementedError

    @property
    def inputs(self) -> list[Any]:
        """The symbolic tensors of the inputs, as in Keras: a new model may start at them.

        >>> from ztorch import Model, Sequential
        >>> from ztorch.layers import Dense, Input
        >>> base = Sequential([Input((4,)), Dense(8), Dense(3)])
        >>> Model(base.inputs, Dense(2)(base.layers[0].output)).output_shape
        (None, 2)
        """
        return leaves(self.input)

    @property
    def outputs(self) -> list[Any]:
        """The symbolic tensors of the outputs, as in Keras."""
        return leaves(self.output)

    def _input_of_first_call(self) -> Any:
        if self.own_call is not None:
            return super()._input_of_first_call()
        symbols = {name: x.symbol for name, x in self.inputs_by_name.items()}
        if not symbols:
            raise AttributeError("input")
        return symbols.get("", list(symbols.values()))

    def _output_of_first_call(self) -> Any:
        return super()._output_of_first_call() if self.own_call is not None else (
            self.wiring.outputs)

    _built = False  # a class, by its first call or its `build`

    @property
    def built(self) -> bool:
        """Whether the model has weights: as in Keras, it does once its inputs are known."""
        return self._built if self.own_call is not None else bool(self.knows_inputs)

    @built.setter
    def built(self, built: bool) -> None:
        self._built = built

    @property
    def input_dtype(self) -> Any:
        """The dtype of the input, if it is not the model's; a dict by name for several."""
        return (d := {name: x.dtype for name, x in self.inputs_by_name.items()}).get("", d)

    @property
    def output_shape(self) -> Any:
        """The shape of the output including the batch; a dict by name for several."""
        shapes = {n: (self.declared_batch_size, *row) for n, row in self.output_rows().items()}
        return shapes.get("", shapes)

    @property
    def declared_batch_size(self) -> int | None:
        """The batch size that Inputs declare; None: they leave it open."""
        if not self.knows_inputs:
            return None
        declared = {name: x.batch_size for name, x in self.inputs_by_name.items() if x.batch_size}
        if len({*declared.values()}) > 1:
            raise ConfigError(f"the Inputs of model {self.name!r} declare different batch sizes: "
                              f"{declared}; declare the same size in all of them")
        return next(iter(declared.values()), None)
