"""Configs, copies and pickles of models."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.errors import ConfigError
from ztorch.layers import wiring
from ztorch.layers.layer import Layer
from ztorch.layers.naming import MOST_NESTED
from ztorch.layers.own_call import ClassModel, own_config
from ztorch.names.own_classes import classes_by_name, known_as

if TYPE_CHECKING:
    from typing_extensions import Self


class CopiedModel(ClassModel, Layer, abstract=True):
    """The part of a model that describes and copies it."""

    seed: Any
    _seed: int | None
    _traced: list[Any]
    wiring: Any

    def get_config(self) -> dict[str, Any]:
        """The arguments of the model and its layers, as values for JSON; without weights."""
        if self.own_call is not None:
            return own_config(self)
        return {**self._common_config(), **self.wiring.get_config()}

    def _common_config(self) -> dict[str, Any]:
        return {"name": self.name, "seed": self.seed if self.adopter is None else self._seed,
                **({} if self.trainable else {"trainable": False})}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """The model that `get_config` described, with initial weights. `custom_objects` holds
        further classes that the config names, by name or as a list."""
        with known_as(classes_by_name(custom_objects or {})):
            if cls.is_class:
                return super().from_config(config)
            inputs, outputs = wiring.from_config(config)
        kind: Any = cls
        model = kind(inputs, outputs, config.get("name"), config.get("seed"),
                     config.get("trainable", True))
        if config.get("inputs_are") == "list":  # Inputs of the same name are told apart by a dict
            model.wiring = replace(model.wiring, inputs_are="list")
        copy: Self = model
        return copy

    def to_json(self, **options: Any) -> str:
        """Describes the model and its layers as JSON, without weights.

        Args:
            **options: Passed to `json.dumps`, such as `indent=2`.

        Returns:
            Text for `from_json`.

        Raises:
            ConfigError: A layer cannot be described, such as a Lambda.

        Examples:
            >>> from ztorch import layers as L
            >>> from ztorch.model.sequential import Sequential
            >>> model = Sequential([L.Input((4,)), L.Dense(3)])
            >>> Sequential.from_json(model.to_json()).output_shape
            (None, 3)
        """
        described = {"class_name": type(self).config_name, "config": self.get_config()}
        try:
            return json.dumps(described, **options)
        except TypeError as error:  # of a user's get_config
            raise ConfigError(f"a get_config in model {self.name!r} returned a value that JSON "
                              f"cannot hold: {error}; return numbers, strings, lists and dicts, "
                              "and for layers zt.saving.serialize_keras_object(layer)") from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Creates the model that `to_json` described.

        Args:
            text: The result of `to_json`.

        Returns:
            A model with initial weights.

        Raises:
            ConfigError: The text does not describe a model of this class.

        Examples:
            >>> from ztorch import layers as L
            >>> from ztorch.model.sequential import Sequential
            >>> text = Sequential([L.Input((4,)), L.Dense(3)]).to_json()
            >>> Sequential.from_json(text).count_params()
            15
        """
        try:
            data = json.loads(text)
            model_class, config = Layer.known[data["class_name"]], data["config"]
        except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
            model_class, config = Layer, None
        if not issubclass(model_class, cls) or not isinstance(config, dict):
            raise ConfigError(f"this text does not describe a {cls.__name__}; pass the result of "
                              "to_json()")
        try:
            return model_class.from_config(config)
        except RecursionError:
            raise ConfigError(f"this text nests layers deeper than {MOST_NESTED} levels, "
                              "which no model does") from None

    def __reduce__(self) -> Any:
        """Pickles the config and the weights, without the trace."""
        if self.own_call is not None:
            left_out = ("_traced", "_traced_of", "_output", "_programs", "calls")
            state = {k: v for k, v in vars(self).items() if k not in left_out}
            return _blank, (type(self),), state
        weights_before = [(w.value, w.trainable) for w in self.weights] if self._traced else None
        return _again, (type(self), self.get_config(), weights_before)

    def __copy__(self) -> Self:  # layers belong to one model
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        duplicate = memo[id(self)] = type(self).__new__(type(self))  # keeps a Lambda's function
        vars(duplicate).update(copy.deepcopy(vars(self), memo))
        return duplicate


def _blank(kind: type[CopiedModel]) -> Any:
    """An empty model without a trace, to be filled when unpickling."""
    model: Any = kind.__new__(kind)
    vars(model).update(_traced=[], _traced_of=[], _output=None, calls=[])
    return model


def _again(kind: type[CopiedModel], config: dict[str, Any],
           values: list[tuple[np.ndarray, bool]] | None) -> Any:
    """Unpickles a model from its config and the values of its weights."""
    model: Any = kind.from_config(config)
    for w, (value, trainable) in zip(model.weights if values else (), values or (), strict=True):
        w.value, w.trainable = value, trainable
    return model
