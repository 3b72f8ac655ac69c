"""What `keras.utils` has, gathered from other rooms: users reach it as `zt.utils`."""

from __future__ import annotations

import random

import numpy as np

from ztorch.arrays.random import set_seed
from ztorch.data.directories import image_dataset_from_directory, text_dataset_from_directory
from ztorch.data.labels import normalize, to_categorical
from ztorch.data.sequences import pad_sequences, timeseries_dataset_from_array
from ztorch.data.splitting import split_dataset
from ztorch.model.diagram import plot_model
from ztorch.model.own_steps import unpack_x_y_sample_weight

__all__ = ["image_dataset_from_directory", "normalize", "pad_sequences", "plot_model",
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


def __dir__() -> list[str]:
    return __all__
