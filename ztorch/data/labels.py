"""`to_categorical` and `normalize` of `keras.utils`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import positive
from ztorch.errors import DataError


@checked
def to_categorical(x: Any, num_classes: int | None = None) -> np.ndarray:
    """Class numbers as one-hot vectors.

    Args:
        x: Class numbers from 0, an array of any shape. A last axis of 1 is dropped.
        num_classes: Number of classes; None: as many as the largest number needs.
            Default: `None`.

    Returns:
        A float64 array with one more axis.

    Raises:
        DataError: A number is not an integer, or not one of the classes.

    Examples:
        >>> to_categorical([0, 2]).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    labels = np.asarray(x)
    numbers = labels.astype(np.int64) if labels.dtype.kind in "biuf" else None
    if numbers is None or not labels.size or (numbers != labels).any() or numbers.min() < 0:
        raise DataError("to_categorical takes class numbers, integers from 0; it got "
                        f"{labels.dtype} values of shape {labels.shape}")
    if numbers.ndim > 1 and numbers.shape[-1] == 1:
        numbers = numbers[..., 0]
    count = int(numbers.max()) + 1
    classes = count if num_classes is None else positive("to_categorical(num_classes=...)",
                                                         num_classes)
    if count > classes:
        raise DataError(f"to_categorical got class {count - 1}, but num_classes={classes} means "
                        f"classes 0..{classes - 1}")
    return np.eye(classes)[numbers]


@checked
def normalize(x: Any, axis: int = -1, order: int = 2) -> np.ndarray:
    """An array divided by its norms along an axis; vectors of zeros stay zero.

    Args:
        x: An array.
        axis: The axis of the vectors. Default: `-1`.
        order: The order of the norm. Default: `2`.

    Returns:
        An array of the same shape.

    Examples:
        >>> normalize([[3.0, 4.0], [0.0, 0.0]]).tolist()
        [[0.6, 0.8], [0.0, 0.0]]
    """
    array = np.asarray(x)
    norms = np.linalg.norm(array, order, axis, keepdims=True)
    return array / np.where(norms == 0, 1, norms)
