"""The functions of `keras.saving`, as `zt.saving`."""

from __future__ import annotations

import os
from typing import Any

from ztorch.interchange.keras_objects import (
    CustomObjectScope,
    custom_object_scope,
    deserialize_keras_object,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
    serialize_keras_object,
)
from ztorch.model.model import Model
from ztorch.names.keras_calls import as_in_keras
from ztorch.sources.load_model import load_model

__all__ = ["CustomObjectScope", "custom_object_scope", "deserialize_keras_object",
           "get_custom_objects", "get_registered_name", "get_registered_object", "load_model",
           "load_weights", "register_keras_serializable", "save_model", "save_weights",
           "serialize_keras_object"]


@as_in_keras("model filepath overwrite", ignored="overwrite zipped")
def save_model(model: Model, filepath: str | os.PathLike[str]) -> Any:
    """Saves a model: `model.save(filepath)`.

    Args:
        model: The model.
        filepath: The file, such as "model.keras" or "model.zt".
    """
    return model.save(filepath)


@as_in_keras("model filepath overwrite", ignored="overwrite max_shard_size")
def save_weights(model: Model, filepath: str | os.PathLike[str]) -> None:
    """Saves the weights of a model: `model.save_weights(filepath)`.

    Args:
        model: The model.
        filepath: The file, such as "model.weights.h5" or "model.safetensors".
    """
    model.save_weights(filepath)


def load_weights(model: Model, filepath: str | os.PathLike[str],
                 skip_mismatch: bool = False) -> None:
    """Loads the weights of a model: `model.load_weights(filepath)`.

    Args:
        model: The model.
        filepath: The file, such as "model.weights.h5" or "model.safetensors".
        skip_mismatch: Whether to skip layers whose weights do not fit. Default: `False`.
    """
    model.load_weights(filepath, skip_mismatch=skip_mismatch)


def __dir__() -> list[str]:
    return __all__
