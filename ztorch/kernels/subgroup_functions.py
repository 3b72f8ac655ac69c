"""Functions of subgroups: 32 neighboring threads of a block that exchange values.

In a compiled kernel, calls of these functions become statements of a thread. In plain Python, the
functions themselves run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.errors import KernelError
from ztorch.graph.thread_program import SUBGROUP
from ztorch.kernels.thread_debug import current_thread


def lane(thread: int) -> int:
    """The number of a thread in its subgroup: 32 neighboring threads of a block.

    Args:
        thread: Number of the thread in its block.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def k(x):
        ...     out = np.zeros(32, x.dtype)
        ...     for block, thread in zt.threads(1, 32):
        ...         out[thread] = zt.lane(thread + 30)
        ...     return out
        >>> k.debug(np.arange(32))[:4]
        array([30, 31,  0,  1])
    """
    if not isinstance(thread, (int, np.integer)):
        raise KernelError(f"zt.lane takes the number of a thread, not {thread!r}")
    return int(thread) % SUBGROUP


def shuffle(x: Any, lane: Any) -> Any:
    """The value that another thread of the subgroup has. All threads of the block take part.

    Args:
        x: This thread's value.
        lane: Number of the other thread in the subgroup, from 0 to 31.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def k(x):
        ...     out = np.zeros(32, x.dtype)
        ...     for block, thread in zt.threads(1, 32):
        ...         out[thread] = zt.shuffle(x[thread], thread + 2)
        ...     return out
        >>> k.debug(np.arange(32))[:4]
        array([2, 3, 4, 5])
    """
    current = current_thread("zt.shuffle")
    values = current.meet(x)
    return values[current.thread // SUBGROUP * SUBGROUP + int(lane) % SUBGROUP]


def shuffle_xor(x: Any, mask: int) -> Any:
    """The value of the thread whose number in the subgroup is this one's xor a mask. All threads
    of the block take part.

    Args:
        x: This thread's value.
        mask: A number from 1 to 31, known while compiling.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def k(x):
        ...     out = np.zeros(32, x.dtype)
        ...     for block, thread in zt.threads(1, 32):
        ...         out[thread] = zt.shuffle_xor(x[thread], 1)
        ...     return out
        >>> k.debug(np.arange(32))[:4]
        array([1, 0, 3, 2])
    """
    current = current_thread("zt.shuffle_xor")
    return current.meet(x)[current.thread ^ mask]


def subgroup_sum(x: Any) -> Any:
    """The sum over the 32 threads of a subgroup, in each of them. All threads of the block take
    part. It is added in the same order everywhere.

    Args:
        x: This thread's value.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def k(x):
        ...     out = np.zeros(32, x.dtype)
        ...     for block, thread in zt.threads(1, 32):
        ...         out[thread] = zt.subgroup_sum(x[thread])
        ...     return out
        >>> k.debug(np.arange(32))[:4]
        array([496, 496, 496, 496])
    """
    return _butterfly(x, lambda a, b: a + b)


def subgroup_max(x: Any) -> Any:
    """The largest value of the 32 threads of a subgroup, in each of them. All threads of the block
    take part.

    Args:
        x: This thread's value.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def k(x):
        ...     out = np.zeros(32, x.dtype)
        ...     for block, thread in zt.threads(1, 32):
        ...         out[thread] = zt.subgroup_max(x[thread])
        ...     return out
        >>> k.debug(np.arange(32))[:4]
        array([31, 31, 31, 31])
    """
    return _butterfly(x, np.maximum)


def subgroup_min(x: Any) -> Any:
    """The smallest value of the 32 threads of a subgroup, in each of them. All threads of the
    block take part.

    Args:
        x: This thread's value.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel
        ... def k(x):
        ...     out = np.zeros(32, x.dtype)
        ...     for block, thread in zt.threads(1, 32):
        ...         out[thread] = zt.subgroup_min(x[thread])
        ...     return out
        >>> k.debug(np.arange(32))[:4]
        array([0, 0, 0, 0])
    """
    return _butterfly(x, np.minimum)


def _butterfly(x: Any, combine: Any) -> Any:
    """Combines the values of a subgroup in 5 steps, in each thread."""
    mask = SUBGROUP // 2
    while mask:
        x = combine(x, shuffle_xor(x, mask))
        mask //= 2
    return x
