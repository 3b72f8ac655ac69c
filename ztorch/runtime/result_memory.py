"""The memory of large results, kept for later ones.

C's malloc maps new pages for each large block and unmaps them when it is freed. To fault in and
clear new pages takes longer than to write results to them.

    y = empty(...)    y is dropped: its block is kept    empty(...) of as many bytes takes the block
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ztorch.host.memory import aligned

MAPPED_BYTES = 1 << 25  # blocks from which malloc maps new pages, at most
KEPT_BYTES = 1 << 28  # limit on the blocks that are kept

_free_blocks: dict[int, list[np.ndarray]] = {}  # blocks that nothing refers to, by their bytes


def empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """A new array with unspecified contents. A large one takes the memory of an array of as many
    bytes to which nothing refers any more.

    >>> empty((2, 3), np.dtype("f4")).shape
    (2, 3)
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < MAPPED_BYTES:
        return np.empty(shape, dtype)
    try:
        memory = _free_blocks[nbytes].pop()
    except (KeyError, IndexError):
        memory = aligned(nbytes)
    return np.asarray(_ResultMemory(memory)).view(dtype).reshape(shape)


class _ResultMemory:
    """The memory of an array and all of its views, which keep this object alive."""

    def __init__(self, memory: np.ndarray, pool: dict[int, list[np.ndarray]] = _free_blocks):
        self._memory, self._pool = memory, pool  # globals may be gone when the process ends
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        """Keeps the memory; above the limit, releases all kept blocks. This may run at any time in
        any thread: each step is atomic, so it needs no lock."""
        pool, nbytes = self._pool, self._memory.nbytes
        if nbytes + sum(size * len(blocks) for size, blocks in list(pool.items())) > KEPT_BYTES:
            pool.clear()
        if nbytes <= KEPT_BYTES:
            pool.setdefault(nbytes, []).append(self._memory)
