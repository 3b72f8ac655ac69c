"""First values of weights, drawn by NumPy on the host.

Each weight has its own random stream, a function of the model's seed and the weight's name alone,
so adding a layer changes no other weight.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from ztorch.config import Named, number
from ztorch.errors import ConfigError

Shape = tuple[int, ...]


def stream(seed: int, name: str) -> np.random.Generator:
    """The random numbers that belong to one name under one seed.

    >>> float(stream(0, "dense/kernel").random()) == float(stream(0, "dense/kernel").random())
    True
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode("utf-8", "surrogatepass")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def fans(shape: Shape) -> tuple[int, int]:
    """How many numbers flow into and out of one unit, for Keras' kernel layouts.

    >>> fans((3, 3, 16, 32))
    (144, 288)
    """
    if len(shape) < 2:
        n = shape[0] if shape else 1
        return n, n
    field = math.prod(shape[:-2])
    return shape[-2] * field, shape[-1] * field


class Initializer(Named, family="initializer"):
    """Fills a shape. `seed` replaces the stream that the weight's name would give."""

    seed: int | None = None

    def __call__(self, shape: Shape, random: np.random.Generator | None = None) -> np.ndarray:
        """float64 values of the shape.

        >>> Initializer.get("ones")((2,))
        array([1., 1.])
        """
        if self.seed is not None or random is None:
            random = stream(self.seed or 0, type(self).__name__)
        return np.asarray(self.fill(tuple(shape), random), np.float64)

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        raise NotImplementedError


class Zeros(Initializer, names=("zeros", "zero")):
    """All zero."""

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return np.zeros(shape)


class Ones(Initializer, names=("ones", "one")):
    """All one."""

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return np.ones(shape)


class Constant(Initializer, names=("constant",)):
    """One number everywhere.

    >>> Constant(0.5)((2,))
    array([0.5, 0.5])
    """

    def __init__(self, value: float = 0.0):
        self.value = number("Constant(value=...)", value)

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return np.full(shape, self.value)


class Identity(Initializer, names=("identity",)):
    """The identity matrix, times `gain`."""

    def __init__(self, gain: float = 1.0):
        self.gain = number("Identity(gain=...)", gain)

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        if len(shape) != 2:
            raise ConfigError(f"initializer 'identity' fills matrices, not shape {shape}")
        return self.gain * np.eye(*shape)


class RandomNormal(Initializer, names=("random_normal", "normal")):
    """Normally distributed."""

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None):
        self.mean = number("RandomNormal(mean=...)", mean)
        self.stddev = number("RandomNormal(stddev=...)", stddev, least=0)
        self.seed = seed

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return random.normal(self.mean, self.stddev, shape)


class RandomUniform(Initializer, names=("random_uniform", "uniform")):
    """Evenly distributed from minval up to maxval."""

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None):
        self.minval = number("RandomUniform(minval=...)", minval)
        self.maxval = number("RandomUniform(maxval=...)", maxval)
        self.seed = seed

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return random.uniform(self.minval, self.maxval, shape)


def _truncated(random: np.random.Generator, shape: Shape) -> np.ndarray:
    """Standard normal numbers; what lies beyond two standard deviations is drawn again."""
    x = random.standard_normal(shape)
    while (far := np.abs(x) > 2).any():
        x = np.where(far, random.standard_normal(shape), x)
    return x


class TruncatedNormal(Initializer, names=("truncated_normal",)):
    """Normally distributed, nothing beyond two standard deviations."""

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None):
        self.mean = number("TruncatedNormal(mean=...)", mean)
        self.stddev = number("TruncatedNormal(stddev=...)", stddev, least=0)
        self.seed = seed

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return self.mean + self.stddev * _truncated(random, shape)


class Orthogonal(Initializer, names=("orthogonal",)):
    """Rows or columns, whichever are fewer, orthonormal; times `gain`."""

    def __init__(self, gain: float = 1.0, seed: int | None = None):
        self.gain, self.seed = number("Orthogonal(gain=...)", gain), seed

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        if len(shape) < 2:
            raise ConfigError(f"initializer 'orthogonal' fills matrices, not shape {shape}")
        rows, columns = math.prod(shape[:-1]), shape[-1]
        q, r = np.linalg.qr(random.standard_normal((max(rows, columns), min(rows, columns))))
        q *= np.sign(np.diag(r))  # makes the factorisation unique, hence the draw uniform
        return self.gain * (q if rows >= columns else q.T).reshape(shape)


class VarianceScaling(Initializer, names=("variance_scaling",)):
    """Variance `scale / fan`, so that signals keep their size through a layer."""

    def __init__(self, scale: float = 1.0, mode: str = "fan_in",
                 distribution: str = "truncated_normal", seed: int | None = None):
        if mode not in ("fan_in", "fan_out", "fan_avg"):
            raise ConfigError(f"initializer mode {mode!r}; use fan_in, fan_out or fan_avg")
        if distribution not in ("normal", "truncated_normal", "untruncated_normal", "uniform"):
            raise ConfigError(f"initializer distribution {distribution!r}; use truncated_normal, "
                              "untruncated_normal or uniform")
        self.scale = number("VarianceScaling(scale=...)", scale, above=0)
        self.mode, self.distribution, self.seed = mode, distribution, seed

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        into, out = fans(shape)
        n = {"fan_in": into, "fan_out": out, "fan_avg": (into + out) / 2}[self.mode]
        variance = self.scale / max(1.0, n)
        if self.distribution == "uniform":
            limit = math.sqrt(3 * variance)
            return random.uniform(-limit, limit, shape)
        if self.distribution == "untruncated_normal":
            return random.normal(0.0, math.sqrt(variance), shape)
        # Cutting the tails at 2 takes the deviation of a standard normal to 0.8796.
        return math.sqrt(variance) / 0.87962566103423978 * _truncated(random, shape)


class GlorotUniform(VarianceScaling, names=("glorot_uniform", "xavier_uniform")):
    """Uniform, variance 2 / (fan in + fan out). Keras' default for kernels."""

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_avg", "uniform", seed)


class GlorotNormal(VarianceScaling, names=("glorot_normal", "xavier_normal")):
    """Truncated normal, variance 2 / (fan in + fan out)."""

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_avg", "truncated_normal", seed)


class HeUniform(VarianceScaling, names=("he_uniform",)):
    """Uniform, variance 2 / fan in: for relu."""

    def __init__(self, seed: int | None = None):
        super().__init__(2.0, "fan_in", "uniform", seed)


class HeNormal(VarianceScaling, names=("he_normal",)):
    """Truncated normal, variance 2 / fan in: for relu."""

    def __init__(self, seed: int | None = None):
        super().__init__(2.0, "fan_in", "truncated_normal", seed)


class LecunUniform(VarianceScaling, names=("lecun_uniform",)):
    """Uniform, variance 1 / fan in: for selu."""

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_in", "uniform", seed)


class LecunNormal(VarianceScaling, names=("lecun_normal",)):
    """Truncated normal, variance 1 / fan in: for selu."""

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_in", "truncated_normal", seed)


get = Initializer.get
