"""The base class of initializers, and the stream of random numbers of each weight."""

from __future__ import annotations

import hashlib

import numpy as np

from ztorch.config import Named

Shape = tuple[int, ...]


def stream(seed: int, name: str) -> np.random.Generator:
    """The random numbers that belong to a name under a seed.

    Args:
        seed: Seed of the model.
        name: Name of the weight.

    Returns:
        A generator: equal arguments give equal numbers.

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
            random: Source of random numbers, used unless the initializer has a seed of its own.
                `None` uses a fixed one. Default: `None`.

        Returns:
            A float64 array.

        Examples:
            >>> Initializer.get("ones")((2,))
            array([1., 1.])
        """
        if self.seed is not None or random is None:
            random = stream(self.seed or 0, type(self).__name__)
        return np.asarray(self.fill(tuple(shape), random), np.float64)

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        """Values of this shape, drawn from `random`."""
        raise NotImplementedError
