"""The base class of initializers, and the random stream of each weight."""

from __future__ import annotations

import hashlib
import inspect

import numpy as np

from ztorch.config import Named
from ztorch.errors import ConfigError

Shape = tuple[int, ...]


def stream(seed: int, name: str) -> np.random.Generator:
    """The random stream of a name under a seed.

    Args:
        seed: Seed of the model.
        name: Name of the weight.

    Returns:
        A generator. Equal arguments return equal numbers.

    Examples:
        >>> float(stream(0, "dense/kernel").random()) == float(stream(0, "dense/kernel").random())
        True
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode("utf-8", "surrogatepass")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


class Initializer(Named, family="initializer", such_as="zeros"):
    """Base class of initializers. A subclass implements `fill`.

    Examples:
        >>> Initializer.get("ones")((2,))
        array([1., 1.])
    """

    seed: int | None = None

    def __call__(self, shape: Shape, random: np.random.Generator | None = None) -> np.ndarray:
        """The initial values of a weight.

        Args:
            shape: Shape of the weight.
            random: Source of random numbers, unless the initializer has its own seed. `None` uses a
                fixed one. Default: `None`.

        Returns:
            A float64 array.

        Examples:
            >>> Initializer.get("ones")((2,))
            array([1., 1.])
        """
        if self.seed is not None or random is None:
            random = stream(self.seed or 0, type(self).__name__)
        return np.asarray(self.fill(tuple(shape), random), np.float64)

    def first_values(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        """The initial values of a weight in a model. A subclass may implement Keras'
        `__call__(self, shape, dtype=None)` instead of `fill`.

        Args:
            shape: Shape of the weight.
            random: Source of random numbers.

        Returns:
            A float64 array.
        """
        if type(self).__call__ is Initializer.__call__:
            return self(shape, random)
        parameters = inspect.signature(self.__call__).parameters
        options = {"dtype": "float32"} if "dtype" in parameters else (
            {"random": random} if "random" in parameters else {})
        values = np.asarray(self(shape, **options), np.float64)
        if values.shape != tuple(shape):
            raise ConfigError(f"initializer {type(self).__name__} made values of shape "
                              f"{values.shape} for a weight of shape {tuple(shape)}")
        return values

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        """Values of this shape, drawn from `random`."""
        raise NotImplementedError
