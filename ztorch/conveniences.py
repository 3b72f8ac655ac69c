"""The functions of `keras.utils`, gathered from other rooms: users reach them as `zt.utils`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from ztorch.arrays.random import set_seed
from ztorch.data.directories import image_dataset_from_directory, text_dataset_from_directory
from ztorch.data.labels import normalize, to_categorical
from ztorch.data.picture_files import array_to_img, img_to_array, load_img, save_img
from ztorch.data.py_dataset import PyDataset
from ztorch.data.sequences import pad_sequences, timeseries_dataset_from_array
from ztorch.data.splitting import split_dataset
from ztorch.interchange.keras_objects import (
    CustomObjectScope,
    custom_object_scope,
    deserialize_keras_object,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
    serialize_keras_object,
)
from ztorch.layers.symbol import as_symbol
from ztorch.model.diagram import plot_model
from ztorch.model.own_steps import unpack_x_y_sample_weight

Sequence = PyDataset  # its older name
__all__ = ["CustomObjectScope", "PyDataset", "Sequence", "array_to_img", "clear_session",
           "custom_object_scope", "deserialize_keras_object", "get_registered_name",
           "get_registered_object", "image_dataset_from_directory", "img_to_array",
           "is_keras_tensor", "load_img", "normalize", "pack_x_y_sample_weight", "pad_sequences",
           "plot_model", "register_keras_serializable", "save_img", "serialize_keras_object",
           "set_random_seed", "split_dataset", "text_dataset_from_directory",
           "timeseries_dataset_from_array", "to_categorical", "unpack_x_y_sample_weight"]


def set_random_seed(seed: int) -> None:
    """Begins the random numbers of Python, NumPy and `zt.rand` and its kin anew.

    Those of models need no such call: they depend on the `seed` of the model alone, 0 unless given.

    Args:
        seed: An integer from 0 to below 2**32.

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


def clear_session(free_memory: bool = True) -> None:
    """Does nothing: there is no session. Programs are freed with the models that hold them.

    Args:
        free_memory: Has no effect. Default: `True`.

    Examples:
        >>> clear_session()
    """


def is_keras_tensor(x: Any) -> bool:
    """Whether x is a tensor of a model that is being declared.

    Args:
        x: Anything.

    Examples:
        >>> import ztorch as zt
        >>> is_keras_tensor(zt.layers.Input((3,))), is_keras_tensor(3.0)
        (True, False)
    """
    return as_symbol(x) is not None


def pack_x_y_sample_weight(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """The data of a batch, as an iterator gives it to `fit`.

    Args:
        x: The inputs.
        y: The targets. Default: `None`.
        sample_weight: The weight of each row. Default: `None`.

    Returns:
        x alone, (x, y) or (x, y, sample_weight); (x,) where x is a list or tuple.

    Examples:
        >>> pack_x_y_sample_weight(1, 2)
        (1, 2)
    """
    if sample_weight is not None:
        return x, y, sample_weight
    if y is not None:
        return x, y
    return (x,) if isinstance(x, (list, tuple)) else x


def __dir__() -> list[str]:
    return __all__
