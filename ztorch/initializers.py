"""Initial values of weights, drawn by NumPy on the host.

Each weight has its own random stream, which depends only on the model's seed and the weight's
name. So adding a layer changes no other weight.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from ztorch.config import Named, number
from ztorch.errors import ConfigError

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


def fans(shape: Shape) -> tuple[int, int]:
    """The numbers of inputs and outputs of one unit, for a kernel in Keras' layout.

    Args:
        shape: Shape of the kernel.

    Returns:
        `(fan_in, fan_out)`.

    Examples:
        >>> fans((3, 3, 16, 32))
        (144, 288)
    """
    if len(shape) < 2:
        n = shape[0] if shape else 1
        return n, n
    field = math.prod(shape[:-2])
    return shape[-2] * field, shape[-1] * field


class Initializer(Named, family="initializer"):
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


class Zeros(Initializer, names=("zeros", "zero")):
    """Zeros everywhere.

    Examples:
        >>> Zeros()((2,))
        array([0., 0.])
    """

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return np.zeros(shape)


class Ones(Initializer, names=("ones", "one")):
    """Ones everywhere.

    Examples:
        >>> Ones()((2,))
        array([1., 1.])
    """

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return np.ones(shape)


class Constant(Initializer, names=("constant",)):
    """One number everywhere.

    Args:
        value: The number. Default: `0.0`.

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


class RandomNormal(Initializer, names=("random_normal", "normal")):
    """Normally distributed values.

    Args:
        mean: Mean of the distribution. Default: `0.0`.
        stddev: Standard deviation, 0 or more. Default: `0.05`.
        seed: Seed of the values. `None` uses the stream of the weight's name under the model's
            seed. Default: `None`.

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
        seed: Seed of the values. `None` uses the stream of the weight's name under the model's
            seed. Default: `None`.

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


def _truncated(random: np.random.Generator, shape: Shape) -> np.ndarray:
    """Standard normal numbers; those beyond two standard deviations are drawn again."""
    x = random.standard_normal(shape)
    while (far := np.abs(x) > 2).any():
        x = np.where(far, random.standard_normal(shape), x)
    return x


class TruncatedNormal(Initializer, names=("truncated_normal",)):
    """Normally distributed values within two standard deviations of the mean.

    Args:
        mean: Mean of the distribution before it is truncated. Default: `0.0`.
        stddev: Standard deviation of the distribution before it is truncated, 0 or more. Default:
            `0.05`.
        seed: Seed of the values. `None` uses the stream of the weight's name under the model's
            seed. Default: `None`.

    Examples:
        >>> bool(abs(TruncatedNormal(stddev=1.0, seed=1)((1000,))).max() <= 2)
        True
    """

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None):
        self.mean = number("TruncatedNormal(mean=...)", mean)
        self.stddev = number("TruncatedNormal(stddev=...)", stddev, least=0)
        self.seed = seed

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return self.mean + self.stddev * _truncated(random, shape)


class Orthogonal(Initializer, names=("orthogonal",)):
    """A random matrix with orthonormal rows or columns, whichever are fewer, times `gain`.

    All axes but the last count as rows.

    Args:
        gain: Factor of the matrix. Default: `1.0`.
        seed: Seed of the values. `None` uses the stream of the weight's name under the model's
            seed. Default: `None`.

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


class VarianceScaling(Initializer, names=("variance_scaling",)):
    """Values of variance `scale / n`, so that signals keep their size through a layer.

    Args:
        scale: Factor of the variance. A positive number. Default: `1.0`.
        mode: What `n` is: `"fan_in"`, `"fan_out"`, or their mean with `"fan_avg"`. Default:
            `"fan_in"`.
        distribution: `"truncated_normal"` (or `"normal"`), `"untruncated_normal"` or `"uniform"`.
            Default: `"truncated_normal"`.
        seed: Seed of the values. `None` uses the stream of the weight's name under the model's
            seed. Default: `None`.

    Examples:
        >>> VarianceScaling(2.0, "fan_in", "uniform", seed=1)((4, 2)).shape
        (4, 2)
    """

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
        # 0.8796 is the deviation of a standard normal distribution truncated at 2.
        return math.sqrt(variance) / 0.87962566103423978 * _truncated(random, shape)


class GlorotUniform(VarianceScaling, names=("glorot_uniform", "xavier_uniform")):
    """Uniform values of variance `2 / (fan_in + fan_out)`: Keras' default for kernels.

    Args:
        seed: Seed of the values. `None` uses the stream of the weight's name under the model's
            seed. Default: `None`.

    Examples:
        >>> GlorotUniform(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_avg", "uniform", seed)


class GlorotNormal(VarianceScaling, names=("glorot_normal", "xavier_normal")):
    """Truncated normal values of variance `2 / (fan_in + fan_out)`.

    Args:
        seed: Seed of the values. `None` uses the stream of the weight's name under the model's
            seed. Default: `None`.

    Examples:
        >>> GlorotNormal(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_avg", "truncated_normal", seed)


class HeUniform(VarianceScaling, names=("he_uniform",)):
    """Uniform values of variance `2 / fan_in`, for relu.

    Args:
        seed: Seed of the values. `None` uses the stream of the weight's name under the model's
            seed. Default: `None`.

    Examples:
        >>> HeUniform(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(2.0, "fan_in", "uniform", seed)


class HeNormal(VarianceScaling, names=("he_normal",)):
    """Truncated normal values of variance `2 / fan_in`, for relu.

    Args:
        seed: Seed of the values. `None` uses the stream of the weight's name under the model's
            seed. Default: `None`.

    Examples:
        >>> HeNormal(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(2.0, "fan_in", "truncated_normal", seed)


class LecunUniform(VarianceScaling, names=("lecun_uniform",)):
    """Uniform values of variance `1 / fan_in`, for selu.

    Args:
        seed: Seed of the values. `None` uses the stream of the weight's name under the model's
            seed. Default: `None`.

    Examples:
        >>> LecunUniform(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_in", "uniform", seed)


class LecunNormal(VarianceScaling, names=("lecun_normal",)):
    """Truncated normal values of variance `1 / fan_in`, for selu.

    Args:
        seed: Seed of the values. `None` uses the stream of the weight's name under the model's
            seed. Default: `None`.

    Examples:
        >>> LecunNormal(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_in", "truncated_normal", seed)


get = Initializer.get
