"""Random draws with the names of `keras.random`, available as `zt.random`.

Called directly, a function returns a tensor. In the `call` of a layer or in a `train_step`, it
draws new numbers at each step of the program.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ztorch import ops
from ztorch.arguments import explained
from ztorch.arrays.creation import tensor
from ztorch.arrays.placement import default_device, memory_of
from ztorch.arrays.random import (
    Counter,
    checked_bounds,
    checked_seed,
    next_draw,
    random_seed,
)
from ztorch.arrays.specs import sizes_of
from ztorch.arrays.tensor import Tensor
from ztorch.config import fraction
from ztorch.dtypes import DType
from ztorch.dtypes import dtype as dtype_named
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.op import constant, normal_axes
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.weight import tracing

__all__ = ["SeedGenerator", "categorical", "dropout", "normal", "randint", "shuffle",
           "truncated_normal", "uniform"]

Seed = Any  # an integer, a SeedGenerator or None


class SeedGenerator:
    """A seed that produces new random numbers at each use.

    Args:
        seed: An integer from 0 to below 2**64; `None` draws a seed. Default: `None`.
        name: Has no effect. Default: `None`.

    Examples:
        >>> import ztorch as zt
        >>> seed = zt.random.SeedGenerator(1)
        >>> first, second = (zt.random.normal((3,), seed=seed).tolist() for _ in range(2))
        >>> first == second
        False
    """

    def __init__(self, seed: int | None = None, name: str | None = None):
        self.seed = random_seed() if seed is None else checked_seed(seed)
        self.counter = Counter(self.seed, memory_of(default_device()))

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {"seed": self.seed}


def source_of(seed: Seed) -> tuple[Any, Any, int]:
    """The seed, step and stream of the next draw."""
    context = cast("Context | None", tracing.get())
    if context is None:
        return (*(seed.counter.next() if isinstance(seed, SeedGenerator) else next_draw(seed)), 0)
    if seed is None or isinstance(seed, SeedGenerator):
        return context.random(None if seed is None else seed.seed)
    checked_seed(seed)
    words = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)
    step = constant(np.array(0, np.uint32))  # each step draws the same, as in Keras
    return constant(words), step, 0


def _checked(shape: Any, last: Any) -> tuple[int, ...]:
    """A shape as a tuple of sizes. `last` is the last numeric argument and must be a number:
    NumPy's functions of the same names take the shape in its position."""
    if isinstance(last, (tuple, list)):
        raise ConfigError(f"the shape comes first in zt.random, as in keras.random; {last!r} is in "
                          "the place of a number")
    return sizes_of(shape)


@explained
def normal(shape: Any, mean: float = 0.0, stddev: float = 1.0, dtype: DType | str | None = None,
           seed: Seed = None) -> Any:
    """Draws from a normal distribution.

    Args:
        shape: The size of each axis.
        mean: The mean. Default: `0.0`.
        stddev: The standard deviation. Default: `1.0`.
        dtype: A float dtype; `None` means float32. Default: `None`.
        seed: An integer, which gives the same numbers each time; a `SeedGenerator`; or `None` for
            new numbers. Default: `None`.

    Returns:
        A tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.random.normal((2, 3), mean=5.0, seed=1).shape
        (2, 3)
    """
    drawn = ops.random_normal(_checked(shape, stddev), *source_of(seed), dtype=dtype or "float32")
    return drawn * stddev + mean


@explained
def truncated_normal(shape: Any, mean: float = 0.0, stddev: float = 1.0,
                     dtype: DType | str | None = None, seed: Seed = None) -> Any:
    """Draws from a normal distribution truncated at two standard deviations from the mean.

    Args:
        shape: The size of each axis.
        mean: The mean. Default: `0.0`.
        stddev: The standard deviation before truncation. Default: `1.0`.
        dtype: A float dtype; `None` means float32. Default: `None`.
        seed: As for `normal`. Default: `None`.

    Returns:
        A tensor.

    Examples:
        >>> import ztorch as zt
        >>> abs(zt.random.truncated_normal((1000,), seed=1)).max().item() <= 2.0
        True
    """
    drawn = ops.random_truncated_normal(_checked(shape, stddev), *source_of(seed),
                                        dtype=dtype or "float32")
    return drawn * stddev + mean


@explained
def uniform(shape: Any, minval: float = 0.0, maxval: float = 1.0,
            dtype: DType | str | None = None, seed: Seed = None) -> Any:
    """Draws uniformly from `minval` (inclusive) to `maxval` (exclusive).

    Args:
        shape: The size of each axis.
        minval: The lower bound. Default: `0.0`.
        maxval: The exclusive upper bound. Default: `1.0`.
        dtype: A dtype; `None` means float32. Default: `None`.
        seed: As for `normal`. Default: `None`.

    Returns:
        A tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.random.uniform((2, 3), 1.0, 2.0, seed=1).min().item() >= 1.0
        True
    """
    if dtype is not None and dtype_named(dtype).is_int:
        return randint(shape, int(minval), int(maxval), dtype, seed)
    d = dtype_named(dtype or "float32")
    drawn = ops.random_uniform(_checked(shape, maxval), *source_of(seed), dtype=d)
    numbers = drawn * (maxval - minval) + minval
    of_numbers = all(isinstance(x, (int, float, np.number)) for x in (minval, maxval))
    bounded = of_numbers and minval < maxval  # not by tensors
    return ops.minimum(numbers, _below(minval, maxval, d)) if bounded else numbers


def _below(minval: float, maxval: float, d: DType) -> float:
    """A number of a float dtype between two others, next to the larger: sums may round up to it."""
    step = 2.0 ** -d.significand
    if maxval > 0:
        return max(minval, maxval * (1.0 - step))
    return max(minval, maxval * (1.0 + 2.0 * step)) if maxval else minval * step


@explained
def randint(shape: Any, minval: int, maxval: int, dtype: DType | str = "int32",
            seed: Seed = None) -> Any:
    """Draws integers uniformly from `minval` (inclusive) to `maxval` (exclusive).

    Args:
        shape: The size of each axis.
        minval: The lower bound.
        maxval: The exclusive upper bound; less than 2**32 above `minval`.
        dtype: An integer dtype. Default: `"int32"`.
        seed: As for `normal`. Default: `None`.

    Returns:
        A tensor.

    Raises:
        ConfigError: The range is empty or too large, also for the dtype.

    Examples:
        >>> import ztorch as zt
        >>> set(zt.random.randint((100,), 3, 5, seed=1).tolist()) == {3, 4}
        True
    """
    minval, maxval = checked_bounds(minval, maxval, dtype_named(dtype))
    bits = ops.random_bits(sizes_of(shape), *source_of(seed))
    return ops.cast(ops.mulhi(bits, maxval - minval), dtype) + minval


@explained
def categorical(logits: Any, num_samples: int, dtype: DType | str = "int32",
                seed: Seed = None) -> Any:
    """Draws class indices according to their probabilities.

    Args:
        logits: Unnormalized log-probabilities: `(batch, classes)`.
        num_samples: The number of draws for each row.
        dtype: An integer dtype. Default: `"int32"`.
        seed: As for `normal`. Default: `None`.

    Returns:
        A tensor of shape `(batch, num_samples)`.

    Examples:
        >>> import ztorch as zt
        >>> zt.random.categorical(zt.tensor([[0.0, -1e9, -1e9]]), 4, seed=1).tolist()
        [[0, 0, 0, 0]]
    """
    logits = _tensor(logits)
    if len(logits.shape) != 2:
        raise ShapeError("zt.random.categorical takes logits of shape (batch, classes), not "
                         f"{logits.shape}; x[None] adds the axis of a batch")
    rows, classes = logits.shape
    drawn = ops.random_uniform((rows, num_samples, classes), *source_of(seed))
    noise = -ops.log(-ops.log(ops.maximum(drawn, 1e-30)))  # Gumbel noise
    return ops.cast(ops.argmax(ops.expand_dims(logits, 1) + noise, axis=-1), dtype)


@explained
def dropout(inputs: Any, rate: float, noise_shape: Any = None, seed: Seed = None) -> Any:
    """The inputs with random elements set to zero and the others scaled up to keep the mean.

    Args:
        inputs: A tensor or an array of floats.
        rate: The fraction of elements to set to zero.
        noise_shape: The shape of the mask, which broadcasts to the shape of the inputs; `None`
            means the shape of the inputs. Default: `None`.
        seed: As for `normal`. Default: `None`.

    Returns:
        A tensor.

    Examples:
        >>> import ztorch as zt
        >>> sorted(set(zt.random.dropout(zt.ones(1000), 0.5, seed=1).tolist()))
        [0.0, 2.0]
    """
    return ops.dropout(_tensor(inputs), fraction("dropout(rate=...)", rate), *source_of(seed),
                       noise_shape=None if noise_shape is None else sizes_of(noise_shape))


@explained
def shuffle(x: Any, axis: int = 0, seed: Seed = None) -> Any:
    """Shuffles the slices of x along an axis.

    Args:
        x: A tensor or an array.
        axis: The axis. Default: `0`.
        seed: As for `normal`. Default: `None`.

    Returns:
        A tensor.

    Examples:
        >>> import ztorch as zt
        >>> sorted(zt.random.shuffle([3, 1, 2], seed=1).tolist())
        [1, 2, 3]
    """
    x = _tensor(x)
    [axis] = normal_axes(axis, len(x.shape))
    order = ops.argsort(ops.random_bits((x.shape[axis],), *source_of(seed)))
    return x.apply_op("take", x, order, axis=axis)  # as it is: no position counts from the end


def _tensor(x: Any) -> Any:
    """An argument of a draw as a tensor, if it is an array; values of a graph are returned
    unchanged."""
    return x if isinstance(x, (Value, Tensor)) else tensor(x)
