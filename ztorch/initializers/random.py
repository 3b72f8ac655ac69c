"""Random initializers whose distribution does not depend on the shape, and Orthogonal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from ztorch.config import number
from ztorch.errors import ConfigError
from ztorch.initializers.initializer import Initializer, Shape

PART = 1 << 13  # numbers that are drawn at once, which fit in a cache
SEARCHED = 1 << 16  # numbers that are searched at once


class Drawn(Initializer, abstract=True):
    """Base class of initializers that draw one number after the other. A subclass implements
    `draw`. Numbers go to the array of a weight in parts: whole arrays of float64 would take twice
    the memory of the weight, and longer than the drawing."""

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        values = np.empty(shape)
        self.draw(values, random)
        return values

    def write(self, out: np.ndarray, random: np.random.Generator) -> None:
        own = type(self)
        if own.fill is Drawn.fill and own.__call__ is Initializer.__call__:
            self.draw(out, self.source(random))
        else:  # a user's subclass
            super().write(out, random)

    def draw(self, out: np.ndarray, random: np.random.Generator) -> None:
        """Writes values, drawn from `random`, to an array in C order."""
        raise NotImplementedError


class RandomNormal(Drawn, names=("random_normal", "normal")):
    """Normally distributed values.

    Args:
        mean: Mean of the distribution. Default: `0.0`.
        stddev: Standard deviation, 0 or more. Default: `0.05`.
        seed: Seed of the values. `None` uses the weight's own random stream. Default: `None`.

    Examples:
        >>> RandomNormal(seed=1)((2, 3)).shape
        (2, 3)
    """

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None):
        self.mean = number("RandomNormal(mean=...)", mean)
        self.stddev = number("RandomNormal(stddev=...)", stddev, least=0)
        self.seed = seed

    def draw(self, out: np.ndarray, random: np.random.Generator) -> None:
        draw_parts(out, lambda count: random.normal(self.mean, self.stddev, count))


class RandomUniform(Drawn, names=("random_uniform", "uniform")):
    """Uniformly distributed values.

    Args:
        minval: Lower end of the range. Default: `-0.05`.
        maxval: Upper end of the range. Default: `0.05`.
        seed: Seed of the values. `None` uses the weight's own random stream. Default: `None`.

    Examples:
        >>> RandomUniform(0.0, 1.0, seed=1)((2, 3)).shape
        (2, 3)
    """

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None):
        self.minval = number("RandomUniform(minval=...)", minval)
        self.maxval = number("RandomUniform(maxval=...)", maxval)
        self.seed = seed

    def draw(self, out: np.ndarray, random: np.random.Generator) -> None:
        draw_parts(out, lambda count: random.uniform(self.minval, self.maxval, count))


class TruncatedNormal(Drawn, names=("truncated_normal",)):
    """Normally distributed values within two standard deviations of the mean.

    Args:
        mean: Mean of the distribution before truncation. Default: `0.0`.
        stddev: Standard deviation of the distribution before truncation, 0 or more. Default:
            `0.05`.
        seed: Seed of the values. `None` uses the weight's own random stream. Default: `None`.

    Examples:
        >>> bool(abs(TruncatedNormal(stddev=1.0, seed=1)((1000,))).max() <= 2)
        True
    """

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None):
        self.mean = number("TruncatedNormal(mean=...)", mean)
        self.stddev = number("TruncatedNormal(stddev=...)", stddev, least=0)
        self.seed = seed

    def draw(self, out: np.ndarray, random: np.random.Generator) -> None:
        draw_truncated_normal(out, random, self.mean, self.stddev)


class Orthogonal(Initializer, names=("orthogonal",)):
    """A random matrix with orthonormal rows or columns, whichever are fewer, times `gain`.

    All axes but the last count as rows.

    Args:
        gain: Factor of the matrix. Default: `1.0`.
        seed: Seed of the values. `None` uses the weight's own random stream. Default: `None`.

    Examples:
        >>> q = Orthogonal(seed=1)((3, 2))
        >>> bool(np.allclose(q.T @ q, np.eye(2)))
        True
    """

    def __init__(self, gain: float = 1.0, seed: int | None = None):
        self.gain, self.seed = number("Orthogonal(gain=...)", gain), seed

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        if len(shape) < 2:
            raise ConfigError(f"initializer 'orthogonal' fills matrices, not shape {shape}")
        rows, columns = math.prod(shape[:-1]), shape[-1]
        q, r = np.linalg.qr(random.standard_normal((max(rows, columns), min(rows, columns))))
        q *= np.sign(np.diag(r))  # a unique factorization makes the draw uniform
        return self.gain * (q if rows >= columns else q.T).reshape(shape)


def draw_parts(out: np.ndarray, numbers: Callable[[int], np.ndarray]) -> None:
    """Fills an array in C order with what `numbers(count)` draws."""
    for part in _parts(out, PART):
        part[...] = numbers(part.size)


def draw_truncated_normal(out: np.ndarray, random: np.random.Generator, mean: float,
                          stddev: float) -> None:
    """Fills an array in C order with normal numbers. Those beyond two standard deviations are NaN
    until all others are drawn, then they are drawn again, and again."""

    def numbers(count: int) -> np.ndarray:
        x = random.standard_normal(count)
        x[np.abs(x) > 2] = np.nan
        x *= stddev
        x += mean
        return x

    def redrawn(part: np.ndarray, far: np.ndarray) -> np.ndarray:
        part[far] = numbers(far.size)
        return far[np.isnan(part[far])]

    draw_parts(out, numbers)
    flat, still = out.reshape(-1), [np.zeros(0, np.intp)]
    for k, part in enumerate(_parts(out, SEARCHED)):  # all at once would be a list of 5 %
        still.append(k * SEARCHED + redrawn(part, np.flatnonzero(np.isnan(part))))
    far = np.concatenate(still)
    while far.size:
        far = redrawn(flat, far)


def _parts(out: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """An array in C order, as parts of this size."""
    flat = out.reshape(-1)
    return (flat[k:k + size] for k in range(0, flat.size, size))
