"""Sizes of tensors, as Keras spells them: fixed numbers, not tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def shape(x: Any) -> tuple[Any, ...]:
    """The shape of a tensor, an array or a list.

    Args:
        x: Tensor of any dtype.

    Returns:
        A tuple with the size of each axis.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.shape(zt.ones((2, 3)))
        (2, 3)
    """
    return tuple(x.shape) if hasattr(x, "shape") else np.shape(x)


def ndim(x: Any) -> int:
    """The number of axes of a tensor, an array or a list.

    Args:
        x: Tensor of any dtype.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.ndim([[1.0, 2.0]])
        2
    """
    return len(shape(x))


def size(x: Any) -> int:
    """The number of elements of a tensor, an array or a list.

    Args:
        x: Tensor of any dtype.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.size(zt.ones((2, 3)))
        6
    """
    return math.prod(shape(x))
