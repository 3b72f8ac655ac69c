"""The functions of `keras.utils`, collected from other rooms. Users access them as `zt.utils`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from ztorch.arrays.random import set_seed
from ztorch.data.directories import (
    audio_dataset_from_directory,
    image_dataset_from_directory,
    text_dataset_from_directory,
)
from ztorch.data.labels import normalize, to_categorical
from ztorch.data.picture_files import array_to_img, img_to_array, load_img, save_img
from ztorch.data.py_dataset import PyDataset
from ztorch.data.sequences import pad_sequences, timeseries_dataset_from_array
from ztorch.data.splitting import split_dataset
from ztorch.dtypes import dtype as as_dtype
from ztorch.errors import ConfigError, nearest
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
from ztorch.layers.defaults import clear_session, floatx, is_keras_tensor
from ztorch.layers.feature_space import FeatureSpace
from ztorch.layers.symbol import as_symbol, upstream
from ztorch.model.diagram import model_to_dot, plot_model
from ztorch.model.own_steps import unpack_x_y_sample_weight
from ztorch.script_settings import ScriptSettings as Config
from ztorch.terminal.progress_bar import Progbar

Sequence = PyDataset  # its older name
__all__ = ["Config", "CustomObjectScope", "FeatureSpace", "Progbar", "PyDataset", "Sequence",
           "array_to_img", "audio_dataset_from_directory", "clear_session", "custom_object_scope",
           "deserialize_keras_object", "get_custom_objects", "get_registered_name",
           "get_registered_object", "get_source_inputs", "image_dataset_from_directory",
           "img_to_array", "is_keras_tensor", "load_img", "model_to_dot", "normalize",
           "pack_x_y_sample_weight", "pad_sequences", "plot_model", "register_keras_serializable",
           "save_img", "serialize_keras_object", "set_random_seed", "split_dataset",
           "standardize_dtype", "text_dataset_from_directory", "timeseries_dataset_from_array",
           "to_categorical", "unpack_x_y_sample_weight"]


def set_random_seed(seed: int) -> None:
    """Seeds the random numbers of Python, NumPy and functions such as `zt.rand`.

    Models need no such call: their random numbers depend only on their `seed`, which is 0 by
    default.

    Args:
        seed: An integer from 0 to 2**32 - 1.

    Examples:
        >>> import ztorch as zt
        >>> zt.utils.set_random_seed(1)
        >>> first = zt.rand(2).tolist(), np.random.rand()
        >>> zt.utils.set_random_seed(1)
        >>> (zt.rand(2).tolist(), np.random.rand()) == first
        True
    """
    set_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def pack_x_y_sample_weight(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """The data of a batch, in the form in which an iterator passes it to `fit`.

    Args:
        x: The inputs.
        y: The targets. Default: `None`.
        sample_weight: The weight of each row. Default: `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)`; `(x,)` if only x is given and is a list or tuple.

    Examples:
        >>> pack_x_y_sample_weight(1, 2)
        (1, 2)
    """
    if sample_weight is not None:
        return x, y, sample_weight
    if y is not None:
        return x, y
    return (x,) if isinstance(x, (list, tuple)) else x


def get_source_inputs(tensor: Any) -> list[Any]:
    """The Inputs that a symbolic tensor depends on.

    Args:
        tensor: A symbolic tensor.

    Examples:
        >>> import ztorch as zt
        >>> x = zt.Input((3,), name="x")
        >>> [source.layer.name for source in get_source_inputs(zt.layers.Dense(2)(x))]
        ['x']
    """
    symbol = as_symbol(tensor)
    if symbol is None:
        raise ConfigError(f"get_source_inputs takes a symbolic tensor, not {tensor!r}")
    return list(upstream([symbol])[0])


def standardize_dtype(dtype: Any) -> str:
    """The name of a dtype.

    Args:
        dtype: A name, or a dtype of any library; `None` means the default dtype of models.

    Examples:
        >>> standardize_dtype(np.float32), standardize_dtype(None)
        ('float32', 'float32')
    """
    return floatx() if dtype is None else as_dtype(dtype).long


def __getattr__(name: str) -> Any:
    from ztorch.names.names_elsewhere import OF_UTILS

    hint = f"; here it is {OF_UTILS[name]}" if name in OF_UTILS else nearest(name, __all__, 0.7)
    raise AttributeError(f"module 'ztorch.utils' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return __all__
