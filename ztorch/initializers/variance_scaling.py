"""Initializers whose variance depends on the shape: Glorot, He and LeCun."""

from __future__ import annotations

import math

import numpy as np

from ztorch.config import number
from ztorch.errors import ConfigError
from ztorch.initializers.initializer import Shape
from ztorch.initializers.random import Drawn, draw_parts, draw_truncated_normal


def fans(shape: Shape) -> tuple[int, int]:
    """The number of inputs and outputs of a unit, for a kernel in Keras' layout.

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


class VarianceScaling(Drawn, names=("variance_scaling",)):
    """Values of variance `scale / n`, so that signals keep their size through a layer.

    Args:
        scale: Factor of the variance. A positive number. Default: `1.0`.
        mode: The meaning of `n`: `"fan_in"`, `"fan_out"`, or their mean with `"fan_avg"`. Default:
            `"fan_in"`.
        distribution: `"truncated_normal"` (or `"normal"`), `"untruncated_normal"` or `"uniform"`.
            Default: `"truncated_normal"`.
        seed: Seed of the values. `None` uses the weight's own random stream. Default: `None`.

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

    def draw(self, out: np.ndarray, random: np.random.Generator) -> None:
        into, outward = fans(out.shape)
        n = {"fan_in": into, "fan_out": outward, "fan_avg": (into + outward) / 2}[self.mode]
        variance = self.scale / max(1.0, n)
        if self.distribution == "uniform":
            limit = math.sqrt(3 * variance)
            draw_parts(out, lambda count: random.uniform(-limit, limit, count))
        elif self.distribution == "untruncated_normal":
            draw_parts(out, lambda count: random.normal(0.0, math.sqrt(variance), count))
        else:  # .8796 is the standard deviation of a standard normal distribution truncated at 2
            draw_truncated_normal(out, random, 0.0, math.sqrt(variance) / 0.87962566103423978)


class GlorotUniform(VarianceScaling, names=("glorot_uniform", "xavier_uniform")):
    """Uniform values of variance `2 / (fan_in + fan_out)`: Keras' default for kernels.

    Args:
        seed: Seed of the values. `None` uses the weight's own random stream. Default: `None`.

    Examples:
        >>> GlorotUniform(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_avg", "uniform", seed)


class GlorotNormal(VarianceScaling, names=("glorot_normal", "xavier_normal")):
    """Truncated normal values of variance `2 / (fan_in + fan_out)`.

    Args:
        seed: Seed of the values. `None` uses the weight's own random stream. Default: `None`.

    Examples:
        >>> GlorotNormal(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_avg", "truncated_normal", seed)


class HeUniform(VarianceScaling, names=("he_uniform",)):
    """Uniform values of variance `2 / fan_in`, for relu.

    Args:
        seed: Seed of the values. `None` uses the weight's own random stream. Default: `None`.

    Examples:
        >>> HeUniform(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(2.0, "fan_in", "uniform", seed)


class HeNormal(VarianceScaling, names=("he_normal",)):
    """Truncated normal values of variance `2 / fan_in`, for relu.

    Args:
        seed: Seed of the values. `None` uses the weight's own random stream. Default: `None`.

    Examples:
        >>> HeNormal(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(2.0, "fan_in", "truncated_normal", seed)


class LecunUniform(VarianceScaling, names=("lecun_uniform",)):
    """Uniform values of variance `1 / fan_in`, for selu.

    Args:
        seed: Seed of the values. `None` uses the weight's own random stream. Default: `None`.

    Examples:
        >>> LecunUniform(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_in", "uniform", seed)


class LecunNormal(VarianceScaling, names=("lecun_normal",)):
    """Truncated normal values of variance `1 / fan_in`, for selu.

    Args:
        seed: Seed of the values. `None` uses the weight's own random stream. Default: `None`.

    Examples:
        >>> LecunNormal(seed=1)((4, 2)).shape
        (4, 2)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(1.0, "fan_in", "truncated_normal", seed)
