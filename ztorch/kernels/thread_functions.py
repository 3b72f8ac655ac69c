"""Functions of threads: shared memory, barriers, atomic updates.

In a compiled kernel, calls of these functions become statements of a thread. In a kernel that runs
as plain Python (`kernel.debug`), the functions themselves run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch.dtypes import dtype as dtype_of
from ztorch.errors import KernelError
from ztorch.kernels.source import Source
from ztorch.kernels.subgroup_functions import (
    lane,
    shuffle,
    shuffle_xor,
    subgroup_max,
    subgroup_min,
    subgroup_sum,
)
from ztorch.kernels.thread_debug import current_thread


def threads(blocks: int | tuple[int, ...], size: int | tuple[int, ...]
            ) -> Iterator[tuple[Any, Any]]:
    """The threads of a grid of blocks, each with the number of its block and its own in the block.

    All threads run at the same time, in any order. Those of a block share memory (`shared`) and
    meet at a `barrier`. The loop must be at the top level of a kernel.

    Args:
        blocks: Number of blocks; a tuple of numbers where they have several axes.
        size: Threads of a block; likewise. Along the last axis threads are neighbors.

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
        >>> @zt.kernel
        ... def turned(x):
        ...     out = np.empty((4, 4), x.dtype)
        ...     for (top, left), (i, j) in zt.threads((2, 2), (2, 2)):
        ...         out[left * 2 + j, top * 2 + i] = x[top * 2 + i, left * 2 + j]
        ...     return out
        >>> turned(np.arange(16).reshape(4, 4))[0]
        array([ 0,  4,  8, 12])
    """
    raise KernelError("zt.threads runs in kernels only: @zt.kernel, or kernel.debug(...)")


def is_threads(source: Source, node: ast.expr) -> bool:
    """Whether an expression calls `zt.threads`, under any name."""
    if not isinstance(node, ast.Call):
        return False
    function, names = node.func, []
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return False
    try:
        target = source.lookup(function.id)
    except KeyError:
        return False
    for name in reversed(names):
        target = getattr(target, name, None)
    return target is threads


def shared(shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """An array that the threads of a block share. Nothing has written its elements yet.

    Args:
        shape: Shape of the array, known while compiling.
        dtype: Dtype of its elements. Default: `np.float64`, as in NumPy.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def reversed_parts(x):
        ...     out = np.empty_like(x)
        ...     for block, thread in zt.threads(len(x) // 4, 4):
        ...         part = zt.shared(4, x.dtype)
        ...         part[thread] = x[block * 4 + thread]
        ...         zt.barrier()
        ...         out[block * 4 + thread] = part[3 - thread]
        ...     return out
        >>> reversed_parts(np.arange(4.0))
        array([3., 2., 1., 0.])
    """
    d = dtype_of(dtype)
    array: np.ndarray = current_thread("zt.shared").shared(shape, d.numpy)
    return array


def barrier() -> None:
    """Waits until all threads of the block are here. Their writes before it are seen after it.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def neighbors(x):
        ...     out = np.empty_like(x)
        ...     for block, thread in zt.threads(1, 4):
        ...         row = zt.shared(4, x.dtype)
        ...         row[thread] = x[thread]
        ...         zt.barrier()
        ...         out[thread] = row[(thread + 1) % 4]
        ...     return out
        >>> neighbors.debug(np.arange(4.0))
        array([1., 2., 3., 0.])
    """
    current_thread("zt.barrier").meet(None)


def atomic_add(array: np.ndarray, index: Any, x: Any) -> Any:
    """Adds x to an element, with no other thread in between.

    Sums of floats depend on the order of threads in their last digits.

    Args:
        array: An array that the kernel makes, or a shared one, of 32 or 64 bits.
        index: Place of the element; a tuple where the array has several axes.
        x: Number to add.

    Returns:
        The old value of the element.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def count(labels):
        ...     counts = np.zeros(3, np.int32)
        ...     for block, thread in zt.threads(1, len(labels)):
        ...         zt.atomic_add(counts, labels[thread], 1)
        ...     return counts
        >>> count(np.array([0, 2, 2, 1]))
        array([1, 1, 2], dtype=int32)
    """
    return _updated(array, index, lambda old: old + x)


def atomic_min(array: np.ndarray, index: Any, x: Any) -> Any:
    """An element becomes the smaller of it and x, with no other thread in between.

    Args:
        array: An array that the kernel makes, or a shared one, of 32 or 64 bits.
        index: Place of the element; a tuple where the array has several axes.
        x: Number to compare with.

    Returns:
        The old value of the element.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def extreme(x):
        ...     out = np.full(1, np.inf, x.dtype)
        ...     for block, thread in zt.threads(1, len(x)):
        ...         zt.atomic_min(out, 0, x[thread])
        ...     return out
        >>> extreme.debug(np.array([1.0, 3.0, -2.0]))
        array([-2.])
    """
    return _updated(array, index, lambda old: np.minimum(old, x))


def atomic_max(array: np.ndarray, index: Any, x: Any) -> Any:
    """An element becomes the larger of it and x, with no other thread in between.

    Args:
        array: An array that the kernel makes, or a shared one, of 32 or 64 bits.
        index: Place of the element; a tuple where the array has several axes.
        x: Number to compare with.

    Returns:
        The old value of the element.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def extreme(x):
        ...     out = np.full(1, -np.inf, x.dtype)
        ...     for block, thread in zt.threads(1, len(x)):
        ...         zt.atomic_max(out, 0, x[thread])
        ...     return out
        >>> extreme.debug(np.array([1.0, 3.0, -2.0]))
        array([3.])
    """
    return _updated(array, index, lambda old: np.maximum(old, x))


def atomic_exchange(array: np.ndarray, index: Any, x: Any) -> Any:
    """An element becomes x, with no other thread in between.

    Args:
        array: An array that the kernel makes, or a shared one, of 32 or 64 bits.
        index: Place of the element; a tuple where the array has several axes.
        x: New element.

    Returns:
        The old value of the element.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def replaced(x):
        ...     out, old = np.full(4, 9, np.int32), np.zeros(4, np.int32)
        ...     for block, thread in zt.threads(1, 4):
        ...         old[thread] = zt.atomic_exchange(out, thread, x[thread])
        ...     return out, old
        >>> replaced.debug(np.arange(4))
        (array([0, 1, 2, 3], dtype=int32), array([9, 9, 9, 9], dtype=int32))
    """
    return _updated(array, index, lambda old: x)


def atomic_cas(array: np.ndarray, index: Any, expected: Any, x: Any) -> Any:
    """An element becomes x if it has the bits of `expected`, with no other thread in between.

    Args:
        array: An array that the kernel makes, or a shared one, of 32 or 64 bits.
        index: Place of the element; a tuple where the array has several axes.
        expected: The value that the element must have.
        x: New element.

    Returns:
        The old value of the element: `expected` where it was changed.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def first_come(x):
        ...     taken, winners = np.zeros(1, np.int32), np.zeros(1, np.int32)
        ...     for block, thread in zt.threads(1, len(x)):
        ...         if zt.atomic_cas(taken, 0, 0, 1) == 0:
        ...             zt.atomic_add(winners, 0, 1)
        ...     return winners
        >>> first_come.debug(np.arange(4))
        array([1], dtype=int32)
    """
    def new(old: Any) -> Any:
        return x if old.tobytes() == np.asarray(expected, array.dtype).tobytes() else old

    return _updated(array, index, new)


def _updated(array: np.ndarray, index: Any, new: Any) -> Any:
    current_thread("an atomic update")
    plain = np.asarray(array)
    old = plain[index]
    plain[index] = new(old)
    return old


# Functions that only threads may call.
THREAD_FUNCTIONS: tuple[Any, ...] = (
    shared, barrier, atomic_add, atomic_min, atomic_max, atomic_exchange, atomic_cas, lane, shuffle,
    shuffle_xor, subgroup_sum, subgroup_max, subgroup_min)
