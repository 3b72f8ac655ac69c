"""The functions of `keras.models`, as `zt.models`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ztorch.errors import ConfigError
from ztorch.interchange.keras_objects import custom_object_scope, deserialize_keras_object
from ztorch.layers.core import Input
from ztorch.model.model import Model
from ztorch.model.sequential import Sequential
from ztorch.names.own_functions import configs_in_memory
from ztorch.sources.load_model import load_model
from ztorch.sources.saving import save_model

__all__ = ["Model", "Sequential", "clone_model", "load_model", "model_from_json", "save_model"]


def model_from_json(json_string: str, custom_objects: Any = None) -> Model:
    """The model in the JSON of `model.to_json()`, ours or Keras', with initial weights.

    Args:
        json_string: The JSON.
        custom_objects: Classes and functions of your own that it names, by name or as a list.
            Default: `None`.

    Raises:
        ConfigError: The JSON is not that of a model.
        Unsupported: The model uses features that ztorch lacks; the message lists them all.

    Examples:
        >>> import ztorch as zt
        >>> model = zt.Sequential([zt.Input((4,)), zt.layers.Dense(2)])
        >>> model_from_json(model.to_json()).count_params()
        10
    """
    try:
        config = json.loads(json_string)
        of_keras = config.get("module") is not None
    except (json.JSONDecodeError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"this is not the JSON of a model: {error}; use that of model.to_json()"
                          ) from None
    with custom_object_scope(custom_objects or {}):
        model = (deserialize_keras_object(config) if of_keras else
                 Model.from_json(json_string))
    if not isinstance(model, Model):
        raise ConfigError(f"this is the JSON of a {type(model).__name__}, not of a model")
    return model


def clone_model(model: Model, input_tensors: Any = None,
                clone_function: Callable[[Any], Any] | None = None) -> Any:
    """A model with the same layers as another one, with initial weights.

    Initial weights depend only on the seed and on names, so both models have the same ones.

    Args:
        model: A model that is not a class with a custom `call`.
        input_tensors: The Inputs of a Sequential in place of its own: one, or a list of one.
            Default: `None`.
        clone_function: Creates the new layer of each layer. `None` uses its config. Default:
            `None`.

    Returns:
        A model of the same class, which is not compiled.

    Raises:
        ConfigError: The model has its own call(), or a layer has no config.

    Examples:
        >>> import ztorch as zt
        >>> model = zt.Sequential([zt.Input((4,)), zt.layers.Dense(2, activation="relu")])
        >>> [layer.activation for layer in clone_model(model).layers]
        ['relu']
    """
    if model.own_call is not None:
        raise ConfigError(f"model {model.name!r} is a class with its own call(); make another "
                          f"{type(model).__name__}, and set_weights(model.get_weights())")
    with configs_in_memory():
        config = model.get_config()
    if clone_function is not None:
        layers = iter(model.adopted)
        config["layers"] = [spec if spec["class_name"] == "Input" else clone_function(next(layers))
                            for spec in config["layers"]]
    if input_tensors is not None:
        tensor = input_tensors[0] if isinstance(input_tensors, (list, tuple)) else input_tensors
        if not isinstance(model, Sequential):
            raise ConfigError("clone_model(input_tensors=...) is for a Sequential; call the clone "
                              "of another model on the tensors")
        config["layers"] = [Input(tensor.row_shape, tensor.dtype), *(
            spec for spec in config["layers"]
            if not isinstance(spec, dict) or spec["class_name"] != "Input")]
    return type(model).from_config(config)
