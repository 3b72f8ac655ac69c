"""The base class of initializers, and the random stream of each weight."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.config import Named
from ztorch.errors import ConfigError
from ztorch.names.own_functions import own_function

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

    @classmethod
    def get(cls, spec: Any) -> Any:
        """The initializer for a name, a config, a class, an instance or a function.

        Args:
            spec: As in other families; or a function of `(shape, dtype=None)` that returns the
                values, as in Keras, or the name of one.

        Returns:
            The initializer.

        Examples:
            >>> Initializer.get(lambda shape, dtype=None: np.full(shape, 0.5))((2,))
            array([0.5, 0.5])
        """
        own = own_function(spec) if isinstance(spec, str) else spec
        if callable(own) and not isinstance(own, (Initializer, type)):
            return _FunctionInitializer(own)
        return super().get(spec)

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
        return np.asarray(self.fill(tuple(shape), self.source(random)), np.float64)

    def source(self, random: np.random.Generator | None) -> np.random.Generator:
        """The generator that the values are drawn from: with an own seed, a generator of that."""
        if self.seed is None and random is not None:
            return random
        return stream(self.seed or 0, type(self).__name__)

    @property
    def is_independent(self) -> bool:
        """Whether the stream alone decides the values, so that they may be drawn at any time and
        beside others. An initializer of a user may share its numbers with others.

        Examples:
            >>> Initializer.get("glorot_uniform").is_independent
            True
        """
        return type(self).__module__.startswith("ztorch.initializers.")

    def write(self, out: np.ndarray, random: np.random.Generator) -> None:
        """Writes the initial values of a weight in a model. A subclass may implement Keras'
        `__call__(self, shape, dtype=None)` instead of `fill`.

        Args:
            out: The array of the weight, in C order.
            random: Source of random numbers.
        """
        if type(self).__call__ is Initializer.__call__:
            out[...] = self(out.shape, random)
            return
        parameters = inspect.signature(self.__call__).parameters
        options = {"dtype": "float32"} if "dtype" in parameters else (
            {"random": random} if "random" in parameters else {})
        values = np.asarray(self(out.shape, **options), np.float64)
        if values.shape != out.shape:
            raise ConfigError(f"initializer {type(self).__name__} made values of shape "
                              f"{values.shape} for a weight of shape {out.shape}")
        out[...] = values

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        """Values of this shape, drawn from `random`."""
        raise NotImplementedError


class _FunctionInitializer(Initializer, abstract=True):
    """A user's function of a shape as an initializer."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, shape: Shape, random: np.random.Generator | None = None) -> np.ndarray:
        parameters = inspect.signature(self.function).parameters
        options = {"dtype": "float32"} if "dtype" in parameters else {}
        return np.asarray(self.function(tuple(shape), **options), np.float64)

    @property
    def is_independent(self) -> bool:
        return False
