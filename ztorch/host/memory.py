"""Allocates memory that is aligned for compiled code."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

from ztorch.abi import align_up, alignment

HUGE_PAGE = 1 << 21  # bytes
# With these flags, a forked child copies the pages instead of sharing them.
_PRIVATE = ({"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE")
            else {})


def aligned(nbytes: int) -> np.ndarray:
    """Zeroed bytes, aligned for compiled code. Large blocks use huge pages if the system has them,
    which reduces TLB misses.

    >>> aligned(100).ctypes.data % 64
    0
    """
    if nbytes < HUGE_PAGE // 2:
        align = alignment(nbytes)
        block = np.zeros(nbytes + align, np.uint8)
    else:
        align, block = HUGE_PAGE, _huge_pages(align_up(nbytes, HUGE_PAGE) + HUGE_PAGE)
    address = block.__array_interface__["data"][0]  # block.ctypes takes ten times as long
    start = -address % align
    return block[start:start + nbytes]


def _huge_pages(nbytes: int) -> np.ndarray:
    """Zeroed memory for which the system is asked to use huge pages."""
    pages = mmap.mmap(-1, nbytes, **_PRIVATE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # the kernel does not support huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)
