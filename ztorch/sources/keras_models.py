"""The functions of `keras.models`: `zt.models`, until a model of the zoo is imported, and there
too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ztorch.errors import ConfigError
from ztorch.layers.core import Input
from ztorch.model.model import Model
from ztorch.model.sequential import Sequential
from ztorch.sources.load_model import load_model

__all__ = ["Model", "Sequential", "clone_model", "load_model"]


def clone_model(model: Model, input_tensors: Any = None,
                clone_function: Callable[[Any], Any] | None = None) -> Any:
    """A model of new layers like those of another one, with first weights.

    First weights depend on the seed and on names, so they are those that the other one began with.

    Args:
        model: A model that is not a class with a `call` of its own.
        input_tensors: The Inputs of a Sequential in place of its own: one, or a list of one.
            Default: `None`.
        clone_function: What makes the new layer of each layer. `None`: its config. Default:
            `None`.

    Returns:
        A model of the same class, which is not compiled.

    Raises:
        ConfigError: The model is a class, or a layer has no config.

    Examples:
        >>> import ztorch as zt
        >>> model = zt.Sequential([zt.Input((4,)), zt.layers.Dense(2, activation="relu")])
        >>> [layer.activation for layer in clone_model(model).layers]
        ['relu']
    """
    if model.own_call is not None:
        raise ConfigError(f"model {model.name!r} is a class with a call of its own; make another "
                          f"{type(model).__name__}, and set_weights(model.get_weights())")
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
        config["layers"] = [Input(tensor.shape, tensor.dtype), *(
            spec for spec in config["layers"]
            if not isinstance(spec, dict) or spec["class_name"] != "Input")]
    return type(model).from_config(config)
