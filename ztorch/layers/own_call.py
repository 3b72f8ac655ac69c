"""The inputs and outputs of a model class with a custom `call`.

They are known once the model is built: by `build(input_shape)`, by its first call, or by the data
that it is first used with.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ztorch.config import Named
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.value import Value
from ztorch.layers.axes import declared_shape
from ztorch.layers.core import Input
from ztorch.layers.plain_calls import adopt_attributes
from ztorch.layers.symbol import leaves, nested


class OwnCall:
    """Takes the place of `Wiring` in such a model."""

    def __init__(self, model: str):
        self._model = model  # the model's name, for errors
        self._inputs: dict[str, Input] | None = None
        self._inputs_are = "one"  # or "list" or "dict"
        self.outputs_are = "one"
        self.output_names: list[str] = [""]
        self.rows: int | None = None  # of the first data, where their number is known

    @property
    def known(self) -> bool:
        """Whether the inputs are known."""
        return self._inputs is not None

    @property
    def inputs(self) -> dict[str, Input]:
        """The inputs by name; the name is empty if there is only one."""
        if self._inputs is None:
            raise ConfigError(f"model {self._model!r} does not know the shape of its inputs yet; "
                              f"call it, fit it, or write {self._model}.build((None, 4)), where "
                              "None is the batch")
        return self._inputs

    def declare(self, shapes: Any, dtype: str | None = None) -> None:
        """Sets the inputs.

        Args:
            shapes: The shape of an input including the batch, an `Input`, or a list or dict of
                several.
            dtype: Dtype of inputs that are given by their shape; None means that of the model.
                Default: `None`.
        """
        is_shape = isinstance(shapes, (list, tuple)) and not any(
            isinstance(n, (list, tuple, Input)) for n in shapes)
        if isinstance(shapes, Input) or is_shape:
            self._inputs_are, named = "one", {"": shapes}
        elif isinstance(shapes, Mapping):
            self._inputs_are, named = "dict", dict(shapes)
        elif isinstance(shapes, (list, tuple)):
            self._inputs_are = "list"
            named = {f"input_{k}": shape for k, shape in enumerate(shapes)}
        else:
            raise ConfigError(f"build takes the shape of the inputs including the batch, such as "
                              f"(None, 4), or a list or dict of shapes, not {shapes!r}")
        first = next(iter(named.values()), None)
        self.rows = first[0] if isinstance(first, (list, tuple)) and first else None
        self._inputs = {name: shape if isinstance(shape, Input) else Input(
            declared_shape("build(...), without the batch,", tuple(shape[1:])), dtype)
            for name, shape in named.items()}

    def traced_for(self, shapes: Any, trace: Callable[[], Any]) -> Any:
        """Traces with these inputs: as floats of the model, or as integers if its layers need
        them."""
        self.declare(shapes)
        try:
            with inputs_undeclared():
                return trace()
        except ShapeError as error:
            self.declare(shapes, "int32")
            try:
                return trace()
            except ShapeError:
                self._inputs = None
                raise error from None

    def declare_values(self, x: Any) -> None:
        """Sets the inputs to match these tensors, the arguments of a first call."""
        def like(v: Value) -> Input:
            return Input(v.shape[1:], None if v.dtype.is_float else v.dtype)

        if isinstance(x, Mapping):
            self.declare({name: like(v) for name, v in x.items()})
        else:
            self.declare(like(x) if isinstance(x, Value) else [like(v) for v in x])
        self.rows = leaves(x)[0].shape[0]

    def arguments(self, x: Mapping[str, Value]) -> Any:
        """The arguments of `call`, for inputs by name."""
        if self._inputs_are == "dict":
            return dict(x)
        return list(x.values()) if self._inputs_are == "list" else x[""]

    def named_outputs(self, outputs: Any) -> dict[str, Value]:
        """The outputs of a call by name."""
        if isinstance(outputs, dict):
            self.outputs_are, self.output_names = "dict", list(outputs)
        elif isinstance(outputs, (list, tuple)):
            self.outputs_are = "list"
            self.output_names = [f"output_{k}" for k in range(len(outputs))]
        else:
            self.outputs_are, self.output_names = "one", [""]
        values = leaves(outputs)
        if len(values) != len(self.output_names) or not values or not all(
                isinstance(v, Value) for v in values):
            raise ConfigError(f"the call of model {self._model!r} returned {outputs!r}; return a "
                              "tensor, or a list or dict of tensors")
        return dict(zip(self.output_names, values, strict=True))


class ClassModel:
    """The part of a model that is a class with layers as attributes and a custom `call`."""

    is_class = False  # whether it is such a class
    own_call: OwnCall | None = None
    making_weights = False  # whether its `build` is running
    built: bool

    @property
    def knows_inputs(self) -> bool:
        """Whether shapes of inputs are known; for a class with its own `call`, after `build`."""
        return self.own_call is None or self.own_call.known

    @property
    def has_steps_alone(self) -> bool:
        """Whether the model has no outputs: its class defines custom steps, and no `call`."""
        return self.own_call is not None and not self.is_class

    def need_call(self, verb: str) -> None:
        """Raises an error unless the model has outputs."""
        if self.has_steps_alone:
            raise ConfigError(f"{type(self).__name__} has no call(self, x, training=False), so it "
                              f"cannot be {verb}; define one, or use the networks in its "
                              "attributes, such as model.generator")

    def make_weights(self, input_shape: Any) -> None:
        """Calls the `build` that the class defines, with shapes including the batch."""

    def prepare_class(self, x: Any) -> None:
        """Prepares the model for tensors: its layers, its inputs and its own weights."""
        assert self.own_call is not None
        adopt_attributes(self)
        if not self.own_call.known:
            self.own_call.declare_values(x)
        if self.built:
            return
        self.making_weights = True
        try:
            self.make_weights(nested(lambda v: (None, *v.shape[1:]), x))
        finally:
            self.making_weights = False
        self.built = True
        adopt_attributes(self)


def own_config(model: Any) -> dict[str, Any]:
    """The arguments of a model's own `__init__`, stored as attributes of the same names, as values
    for JSON."""
    parameters = inspect.signature(type(model).__init__).parameters
    takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    config = Named.get_config(model)
    if takes_more and model.given_name is not None:
        config["name"] = model.name
    return config


_undeclared: ContextVar[bool] = ContextVar("_undeclared", default=False)


@contextmanager
def inputs_undeclared() -> Iterator[None]:
    """In this block, layers of ids reject floats: inputs were not declared as floats, so they
    become integers."""
    token = _undeclared.set(True)
    try:
        yield
    finally:
        _undeclared.reset(token)


def floats_hold_ids() -> bool:
    """Whether layers of ids accept floats."""
    return not _undeclared.get()
