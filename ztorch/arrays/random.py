"""Random tensors. The numbers are a function of a seed and a counter, so they have the same bits on
every device and for any number of threads.
"""

from __future__ import annotations

import operator
import secrets
from typing import Any

import numpy as np

from ztorch.arguments import explained
from ztorch.arrays.cells import Cell, is_tracing
from ztorch.arrays.device_dtypes import default_integer
from ztorch.arrays.elements import node_of_array
from ztorch.arrays.memory import memory
from ztorch.arrays.node import TensorNode
from ztorch.arrays.placement import default_device, memory_of
from ztorch.arrays.promotion import integer_range
from ztorch.arrays.ranges import placed
from ztorch.arrays.specs import sizes_of
from ztorch.arrays.tensor import Tensor, compute, tensor_of
from ztorch.dtypes import DType, u32
from ztorch.dtypes import dtype as dtype_named
from ztorch.errors import ConfigError
from ztorch.locks import new_lock


class Counter:
    """The seed of the random numbers in a memory, and the number of draws so far."""

    def __init__(self, seed: int, place: str):
        self.pool = memory(place)
        self.is_host = place == "cpu"
        self.seed = _seed_node(seed, place)
        self.step = Cell(_words(0, place))
        self.one = tensor_of(_words(1, place))

    def next(self) -> tuple[Tensor, Tensor]:
        """The seed and the step of the next random tensor. In the host's memory the step is known,
        so that draws of one shape have one structure, which a native function knows again."""
        step = tensor_of(self.step.get())
        one: Tensor | int = 1
        if self.is_host and not is_tracing():
            step.realize()
            one = self.one  # with a tensor, recording has nothing to check
        self.step.set(compute("add", (step, one), {}).node)
        return tensor_of(self.seed), step


def _seed_node(seed: int, place: str) -> TensorNode:
    return _words([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], place)


def _words(words: Any, place: str) -> TensorNode:
    return node_of_array(np.array(words, np.uint32), u32, place, copy=True)


_lock = new_lock()
_seed: int | None = None  # the seed of the process; None until it is used or set
_counters: dict[str, Counter] = {}  # by memory


@explained
def set_seed(seed: int) -> None:
    """Restarts the random numbers of all devices from a seed.

    Args:
        seed: An integer from 0 to below 2**64. The same seed gives the same numbers.

    Raises:
        ConfigError: `seed` is not such an integer.

    Examples:
        >>> import ztorch as zt
        >>> zt.set_seed(1)
        >>> first = zt.rand(3).tolist()
        >>> zt.set_seed(1)
        >>> zt.rand(3).tolist() == first
        True
    """
    global _seed
    with _lock:
        _seed = checked_seed(seed)
        _counters.clear()


def checked_seed(seed: Any) -> int:
    """A seed as an int; raises a ConfigError if it is out of range."""
    if not hasattr(seed, "__index__") or not 0 <= operator.index(seed) < 1 << 64:
        raise ConfigError(f"a seed is an integer from 0 to below 2**64, not {seed!r}")
    return operator.index(seed)


def random_seed() -> int:
    """A seed for an independent generator, drawn from the numbers of `set_seed`."""
    low, high = randint(0, (1 << 32) - 1, (2,)).tolist()
    return int(low | high << 32)


def next_draw(seed: int | None) -> tuple[Tensor, Tensor]:
    """The seed and the step of the next random tensor; with `seed=None`, in the sequence that
    `set_seed` starts."""
    global _seed
    place = memory_of(default_device())
    if seed is not None:
        return tensor_of(_seed_node(operator.index(seed), place)), tensor_of(_words(0, place))
    with _lock:
        if _seed is None:
            _seed = secrets.randbits(64)
        counter = _counters.get(place)
        if counter is None or counter.pool.closed:  # a reopened device restarts the sequence
            counter = _counters[place] = Counter(_seed, place)
        return counter.next()


@explained
def rand(*shape: Any, dtype: DType | str = "float32", device: str | None = None,
         seed: int | None = None) -> Tensor:
    """Draws uniformly from 0 (inclusive) to 1 (exclusive).

    Args:
        *shape: The size of each axis, as separate arguments or as a tuple.
        dtype: A float dtype. Default: `"float32"`.
        device: The device; `None` means the default one. Default: `None`.
        seed: An integer, which gives the same numbers each time; `None` continues the sequence of
            `set_seed`. Default: `None`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.rand(2, 3, seed=1).shape
        (2, 3)
    """
    return _drawn("random_uniform", shape, dtype, device, seed)


@explained
def randn(*shape: Any, dtype: DType | str = "float32", device: str | None = None,
          seed: int | None = None) -> Tensor:
    """Draws from the normal distribution with mean 0 and standard deviation 1.

    Absolute values are at most 6.34, in float64 9.16.

    Args:
        *shape: The size of each axis, as separate arguments or as a tuple.
        dtype: A float dtype. Default: `"float32"`.
        device: The device; `None` means the default one. Default: `None`.
        seed: An integer, which gives the same numbers each time; `None` continues the sequence of
            `set_seed`. Default: `None`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> abs(zt.randn(10_000, seed=1).mean().item()) < 0.1
        True
    """
    return _drawn("random_normal", shape, dtype, device, seed)


@explained
def randint(low: int, high: int, shape: Any = (), dtype: DType | str | None = None,
            device: str | None = None, seed: int | None = None) -> Tensor:
    """Draws integers uniformly: the relative error of their probabilities is below
    `(high - low) / 2**32`.

    Args:
        low: The lower bound.
        high: The exclusive upper bound; less than 2**32 above `low`.
        shape: The size of each axis. Default: `()`.
        dtype: An integer dtype that can hold the range; `None` means int64, or int32 on a device
            without int64. Default: `None`.
        device: The device; `None` means the default one. Default: `None`.
        seed: An integer, which gives the same numbers each time; `None` continues the sequence of
            `set_seed`. Default: `None`.

    Returns:
        The tensor.

    Raises:
        ConfigError: The range is empty or too large, also for the dtype.

    Examples:
        >>> import ztorch as zt
        >>> set(zt.randint(3, 5, (100,), seed=1).tolist()) == {3, 4}
        True
    """
    d = dtype_named(dtype or default_integer(device))
    low, high = checked_bounds(low, high, d)
    with placed(device):
        bits = compute("random_bits", (sizes_of(shape), *next_draw(seed)), {})
        scaled = compute("mulhi", (bits, high - low), {})
        result: Tensor = scaled.astype(d) + low
    return result


def checked_bounds(low: Any, high: Any, d: DType) -> tuple[int, int]:
    """The bounds of random integers as ints; raises a ConfigError if a dtype cannot hold the range.
    """
    if not (hasattr(low, "__index__") and hasattr(high, "__index__")):
        raise ConfigError("randint takes two integers and a shape, such as randint(0, 10, (3,)), "
                          f"not the bounds {low!r} and {high!r}")
    low, high = operator.index(low), operator.index(high)
    if not 0 < high - low < 1 << 32:
        raise ConfigError(f"randint takes a range of 1 to 2**32 - 1 integers, not {low} to {high}")
    if d.is_int:
        least, greatest = integer_range(d)
        if low < least or high - 1 > greatest:
            raise ConfigError(f"randint: {d} cannot hold all integers from {low} to {high - 1}; "
                              "use a wider dtype")
    return low, high


@explained
def permutation(n: int, device: str | None = None, seed: int | None = None,
                dtype: DType | str | None = None) -> Tensor:
    """The integers from 0 to n - 1 in a random order. `x[zt.permutation(len(x))]` shuffles the rows
    of x.

    Args:
        n: The number of integers.
        device: The device; `None` means the default one. Default: `None`.
        seed: An integer, which gives the same order each time; `None` continues the sequence of
            `set_seed`. Default: `None`.
        dtype: An integer dtype; `None` means int64, or int32 on a device without int64. Default:
            `None`.

    Returns:
        The tensor.

    Raises:
        ConfigError: `n` is not an integer.

    Examples:
        >>> import ztorch as zt
        >>> sorted(zt.permutation(5, seed=1).tolist())
        [0, 1, 2, 3, 4]
    """
    if not hasattr(n, "__index__") or len(getattr(n, "shape", ())):
        raise ConfigError(f"permutation takes a number of elements, not {type(n).__name__}; to "
                          "shuffle the rows of x, use x[zt.permutation(len(x))]")
    with placed(device):
        bits = compute("random_bits", (sizes_of(operator.index(n)), *next_draw(seed)), {})
        order: Tensor = compute("argsort", (bits,), {}).astype(
            dtype_named(dtype or default_integer(device)))
    return order


def _drawn(op: str, shape: tuple[Any, ...], dtype: DType | str, device: str | None,
           seed: int | None) -> Tensor:
    sizes = sizes_of(shape[0] if len(shape) == 1 else shape)
    with placed(device):
        result: Tensor = compute(op, (sizes, *next_draw(seed)), {"dtype": dtype_named(dtype)})
    return result
