"""Deterministic initializers: constants and the identity."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.config import number
from ztorch.errors import ConfigError
from ztorch.initializers.initializer import Initializer, Shape


class Zeros(Initializer, names=("zeros", "zero")):
    """All zeros.

    Examples:
        >>> Zeros()((2,))
        array([0., 0.])
    """

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return np.zeros(shape)


class Ones(Initializer, names=("ones", "one")):
    """All ones.

    Examples:
        >>> Ones()((2,))
        array([1., 1.])
    """

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return np.ones(shape)


class Constant(Initializer, names=("constant",)):
    """A constant value, or the numbers of an array.

    Args:
        value: The value; or an array or list that broadcasts to the shape of the weight. Default:
            `0.0`.

    Examples:
        >>> Constant(0.5)((2,)), Constant(np.array([1.0, 2.0]))((2,))
        (array([0.5, 0.5]), array([1., 2.]))
    """

    def __init__(self, value: Any = 0.0):
        label = "Constant(value=...)"
        array = np.asarray(value) if hasattr(value, "__array__") or isinstance(value, list) else (
            np.zeros(()))
        if array.ndim and (array.dtype.kind not in "biuf" or not np.isfinite(array).all()):
            raise ConfigError(f"{label} must hold finite numbers, not {value!r}")
        self.value = array.tolist() if array.ndim else number(label, value)

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        array = np.asarray(self.value, np.float64)
        if array.ndim > len(shape) or np.broadcast_shapes(array.shape, shape) != shape:
            raise ConfigError(f"Constant(value=...) has shape {array.shape}, which does not "
                              f"broadcast to a weight of shape {shape}")
        return np.broadcast_to(array, shape)


class Identity(Initializer, names=("identity",)):
    """The identity matrix times `gain`, for matrices only.

    Args:
        gain: Value of the diagonal. Default: `1.0`.

    Examples:
        >>> Identity(2.0)((2, 2)).tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """

    def __init__(self, gain: float = 1.0):
        self.gain = number("Identity(gain=...)", gain)

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        if len(shape) != 2:
            raise ConfigError(f"initializer 'identity' fills matrices, not shape {shape}")
        return self.gain * np.eye(*shape)
