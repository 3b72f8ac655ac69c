"""The words of threads: shared memory, barriers, atomic updates, values of neighbouring threads.

Compiled, a word means a statement of a thread. In a kernel that runs as plain Python
(`kernel.debug`) it does here what it says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch.dtypes import dtype as dtype_of
from ztorch.errors import KernelError
from ztorch.graph.thread_program import SUBGROUP
from ztorch.kernels.source import Source
from ztorch.kernels.thread_debug import turn_of


def threads(blocks: int, size: int) -> Iterator[tuple[int, int]]:
    """The threads of a grid of blocks, each with the number of its block and its own in the block.

    All threads run at the same time, in no order. Those of a block share memory (`shared`) and
    meet at a `barrier`. The loop stands at the top of a kernel; it runs nowhere else.

    Args:
        blocks: Number of blocks.
        size: Threads of a block.

    Examples:
        >>> import math, numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def double(x):
        ...     out = np.empty_like(x)
        ...     for block, thread in zt.threads(math.ceil(len(x) / 64), 64):
        ...         i = block * 64 + thread
        ...         if i < len(x):
        ...             out[i] = 2 * x[i]
        ...     return out
        >>> double(np.arange(3.0))
        array([0., 2., 4.])
    """
    raise KernelError("zt.threads runs in kernels only: @zt.kernel, or kernel.debug(...)")


def is_threads(source: Source, node: ast.expr) -> bool:
    """Whether an expression is a call of `zt.threads`, by whatever name."""
    if not isinstance(node, ast.Call):
        return False
    function, names = node.func, []
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return False
    try:
        known = source.lookup(function.id)
    except KeyError:
        return False
    for name in reversed(names):
        known = getattr(known, name, None)
    return known is threads


def shared(shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """An array that the threads of a block share. Nobody has written its elements yet.

    Args:
        shape: Shape of the array, known while compiling.
        dtype: Dtype of its elements. Default: `np.float64`, as in NumPy.
    """
    d = dtype_of(dtype)
    array: np.ndarray = turn_of("zt.shared").shared(shape, d.numpy)
    return array


def barrier() -> None:
    """Waits until all threads of the block are here. What they wrote before is seen after it."""
    turn_of("zt.barrier").meet(None)


def atomic_add(array: np.ndarray, index: Any, x: Any) -> Any:
    """Adds x to an element, with no other thread in between.

    Sums of floats depend on the order of threads in their last digits.

    Args:
        array: An array that the kernel makes, or a shared one, of 32 or 64 bits.
        index: Place of the element; a tuple where the array has several axes.
        x: Number to add.

    Returns:
        What the element was before.
    """
    return _updated(array, index, lambda old: old + x)


def atomic_min(array: np.ndarray, index: Any, x: Any) -> Any:
    """An element becomes the smaller of it and x, with no other thread in between.

    Args:
        array: An array that the kernel makes, or a shared one, of 32 or 64 bits.
        index: Place of the element; a tuple where the array has several axes.
        x: Number to compare with.

    Returns:
        What the element was before.
    """
    return _updated(array, index, lambda old: np.minimum(old, x))


def atomic_max(array: np.ndarray, index: Any, x: Any) -> Any:
    """An element becomes the larger of it and x, with no other thread in between.

    Args:
        array: An array that the kernel makes, or a shared one, of 32 or 64 bits.
        index: Place of the element; a tuple where the array has several axes.
        x: Number to compare with.

    Returns:
        What the element was before.
    """
    return _updated(array, index, lambda old: np.maximum(old, x))


def atomic_exchange(array: np.ndarray, index: Any, x: Any) -> Any:
    """An element becomes x, with no other thread in between.

    Args:
        array: An array that the kernel makes, or a shared one, of 32 or 64 bits.
        index: Place of the element; a tuple where the array has several axes.
        x: New element.

    Returns:
        What the element was before.
    """
    return _updated(array, index, lambda old: x)


def atomic_cas(array: np.ndarray, index: Any, expected: Any, x: Any) -> Any:
    """An element becomes x if it has the bits of `expected`, with no other thread in between.

    Args:
        array: An array that the kernel makes, or a shared one, of 32 or 64 bits.
        index: Place of the element; a tuple where the array has several axes.
        expected: What the element must be.
        x: New element.

    Returns:
        What the element was before: `expected` where it was changed.
    """
    def new(old: Any) -> Any:
        return x if old.tobytes() == np.asarray(expected, array.dtype).tobytes() else old

    return _updated(array, index, new)


def _updated(array: np.ndarray, index: Any, new: Any) -> Any:
    turn_of("an atomic update")
    plain = np.asarray(array)
    old = plain[index]
    plain[index] = new(old)
    return old


# -- subgroups -------------------------------------------------------------------------------------


def lane(thread: int) -> int:
    """The number of a thread in its subgroup: 32 neighbouring threads of a block.

    Args:
        thread: Number of the thread in its block.
    """
    return thread % SUBGROUP


def shuffle(x: Any, lane: Any) -> Any:
    """The value that another thread of the subgroup has. All threads of the block take part.

    Args:
        x: This thread's value.
        lane: Number of the other thread in the subgroup, from 0 to 31.
    """
    turn = turn_of("zt.shuffle")
    values = turn.meet(x)
    return values[turn.thread // SUBGROUP * SUBGROUP + int(lane) % SUBGROUP]


def shuffle_xor(x: Any, mask: int) -> Any:
    """The value of the thread whose number in the subgroup is this one's xor a mask. All threads
    of the block take part.

    Args:
        x: This thread's value.
        mask: A number from 1 to 31, known while compiling.
    """
    turn = turn_of("zt.shuffle_xor")
    return turn.meet(x)[turn.thread ^ mask]


def subgroup_sum(x: Any) -> Any:
    """The sum over the 32 threads of a subgroup, in each of them. All threads of the block take
    part. It is added in the same order everywhere.

    Args:
        x: This thread's value.
    """
    return _butterfly(x, lambda a, b: a + b)


def subgroup_max(x: Any) -> Any:
    """The largest value of the 32 threads of a subgroup, in each of them. All threads of the block
    take part.

    Args:
        x: This thread's value.
    """
    return _butterfly(x, np.maximum)


def subgroup_min(x: Any) -> Any:
    """The smallest value of the 32 threads of a subgroup, in each of them. All threads of the
    block take part.

    Args:
        x: This thread's value.
    """
    return _butterfly(x, np.minimum)


def _butterfly(x: Any, combined: Any) -> Any:
    mask = SUBGROUP // 2
    while mask:
        x = combined(x, shuffle_xor(x, mask))
        mask //= 2
    return x


# What only threads say.
THREAD_WORDS: tuple[Any, ...] = (
    shared, barrier, atomic_add, atomic_min, atomic_max, atomic_exchange, atomic_cas, lane, shuffle,
    shuffle_xor, subgroup_sum, subgroup_max, subgroup_min)
