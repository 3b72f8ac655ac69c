"""Random initializers whose distribution does not depend on the shape, and Orthogonal."""

from __future__ import annotations

import math

import numpy as np

from ztorch.config import number
from ztorch.errors import ConfigError
from ztorch.initializers.initializer import Initializer, Shape

PART = 1 << 16  # numbers that are searched at once, which fit in a cache


class RandomNormal(Initializer, names=("random_normal", "normal")):
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

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return random.normal(self.mean, self.stddev, shape)


class RandomUniform(Initializer, names=("random_uniform", "uniform")):
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

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return random.uniform(self.minval, self.maxval, shape)


class TruncatedNormal(Initializer, names=("truncated_normal",)):
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

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        x = truncated_normal(random, shape)
        x *= self.stddev
        x += self.mean
        return x


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


def truncated_normal(random: np.random.Generator, shape: Shape) -> np.ndarray:
    """Standard normal numbers; those beyond two standard deviations are drawn again."""
    x = random.standard_normal(shape)
    flat = x.reshape(-1)
    # In parts, since temporaries would take as much memory as the weight.
    far = np.concatenate([k + np.flatnonzero(np.abs(flat[k:k + PART]) > 2)
                          for k in range(0, max(flat.size, 1), PART)])
    while far.size:
        flat[far] = random.standard_normal(far.size)
        far = far[np.abs(flat[far]) > 2]
    return x
