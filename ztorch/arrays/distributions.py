"""The functions of `keras.random`, available as `zt.random`: those of `draws.py`, and the gamma,
beta and binomial distributions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch import ops
from ztorch.arguments import explained
from ztorch.arrays.draws import Seed, source_of
from ztorch.arrays.draws import SeedGenerator as SeedGenerator
from ztorch.arrays.draws import categorical as categorical
from ztorch.arrays.draws import dropout as dropout
from ztorch.arrays.draws import normal as normal
from ztorch.arrays.draws import randint as randint
from ztorch.arrays.draws import shuffle as shuffle
from ztorch.arrays.draws import truncated_normal as truncated_normal
from ztorch.arrays.draws import uniform as uniform
from ztorch.arrays.specs import sizes_of
from ztorch.arrays.tensor import Tensor
from ztorch.dtypes import DType, f32, f64
from ztorch.dtypes import dtype as dtype_named
from ztorch.errors import Unsupported
from ztorch.ops.normals import shares_below

__all__ = ["SeedGenerator", "beta", "binomial", "categorical", "dropout", "gamma", "normal",
           "randint", "shuffle", "truncated_normal", "uniform"]

OTHER_STREAM = 1 << 31  # bit of a stream that no other draw has
MOST_TRIALS = 4096  # limit of a binomial draw: each trial is drawn


@explained
def gamma(shape: Any, alpha: Any, dtype: DType | str | None = None, seed: Seed = None) -> Any:
    """Draws from a gamma distribution with scale 1.

    Args:
        shape: The size of each axis.
        alpha: The shape of the distribution: a number above 0, or a tensor that broadcasts.
        dtype: A float dtype; `None` means float32. Default: `None`.
        seed: As for `normal`. Default: `None`.

    Returns:
        A tensor.

    Examples:
        >>> import ztorch as zt
        >>> abs(zt.random.gamma((2000,), 3.0, seed=1).mean().item() - 3.0) < 0.2
        True
    """
    return _gamma(sizes_of(shape), alpha, dtype, seed)


@explained
def beta(shape: Any, alpha: Any, beta: Any, dtype: DType | str | None = None,
         seed: Seed = None) -> Any:
    """Draws from a beta distribution; numbers are between 0 and 1.

    Args:
        shape: The size of each axis.
        alpha: The first shape parameter: a number above 0, or a tensor that broadcasts. Larger
            values move the draws towards 1.
        beta: The second shape parameter, likewise. Larger values move the draws towards 0.
        dtype: A float dtype; `None` means float32. Default: `None`.
        seed: As for `normal`. Default: `None`.

    Returns:
        A tensor.

    Examples:
        >>> import ztorch as zt
        >>> abs(zt.random.beta((2000,), 2.0, 6.0, seed=1).mean().item() - 0.25) < 0.02
        True
    """
    sizes = sizes_of(shape)
    words, step, stream = source_of(seed)
    parameters = ops.stack([ops.broadcast_to(_tensor(x, dtype), sizes) for x in (alpha, beta)])
    drawn = ops.random_gamma(parameters, words, step, stream)
    total, d = drawn[0] + drawn[1], parameters.dtype
    lost = ops.equal(total, 0.0)  # of two numbers too small for d, one is far smaller
    uniform = ops.random_uniform(sizes, words, step, stream | OTHER_STREAM, d)
    end = ops.cast(uniform * (parameters[0] + parameters[1]) < parameters[0], d)
    return ops.where(lost, end, drawn[0] / ops.where(lost, 1.0, total))


@explained
def binomial(shape: Any, counts: Any, probabilities: Any, dtype: DType | str | None = None,
             seed: Seed = None) -> Any:
    """Draws from a binomial distribution: the number of trials that succeed.

    Args:
        shape: The size of each axis.
        counts: The number of trials: a number, or an array that broadcasts.
        probabilities: The probability of success: a number, or a tensor that broadcasts.
        dtype: A float dtype; `None` means float32. Default: `None`.
        seed: As for `normal`. Default: `None`.

    Returns:
        A tensor of whole numbers.

    Examples:
        >>> import ztorch as zt
        >>> abs(zt.random.binomial((2000,), 10, 0.3, seed=1).mean().item() - 3.0) < 0.2
        True
    """
    sizes, trials = sizes_of(shape), np.asarray(counts)
    most = int(trials.max(initial=0))
    if most > MOST_TRIALS:
        raise Unsupported(f"random.binomial draws each trial, at most {MOST_TRIALS}, not {most}")
    d = dtype_named(dtype or "float32")
    drawn = shares_below(ops, ops.random_bits((most, *sizes), *source_of(seed)),
                         d if d is f64 else f32)
    successes = drawn < _tensor(probabilities, d)
    if trials.min(initial=most) < most:
        number = np.arange(most).reshape(-1, *(1,) * len(sizes))
        successes = ops.logical_and(successes, Tensor(number < trials))
    return ops.cast(ops.sum(ops.cast(successes, "int32"), axis=0), d)


def _gamma(sizes: tuple[int, ...], alpha: Any, dtype: DType | str | None, seed: Seed) -> Any:
    return ops.random_gamma(ops.broadcast_to(_tensor(alpha, dtype), sizes), *source_of(seed))


def _tensor(x: Any, dtype: DType | str | None) -> Any:
    return ops.cast(x if isinstance(x, Tensor) else Tensor(x), dtype or "float32")


def __dir__() -> list[str]:
    return __all__
