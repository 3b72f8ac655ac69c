"""Deterministic initializers: constants and the identity."""

from __future__ import annotations

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
    """A constant value.

    Args:
        value: The value. Default: `0.0`.

    Examples:
        >>> Constant(0.5)((2,))
        array([0.5, 0.5])
    """

    def __init__(self, value: float = 0.0):
        self.value = number("Constant(value=...)", value)

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return np.full(shape, self.value)


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
