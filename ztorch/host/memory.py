"""Memory for compiled code: allocated with its alignment, and the addresses of arrays."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import struct

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


def _where_arrays_hold_addresses() -> int | None:
    """The offset, in an array object, of the address of its elements; None if it is not there."""
    array = np.empty(1)
    words = ctypes.string_at(id(array), np.ndarray.__basicsize__ // 8 * 8)
    address = array.__array_interface__["data"][0]
    values = struct.unpack(f"{len(words) // 8}q", words)
    return values.index(address) * 8 if address in values else None


_ADDRESS_AT = _where_arrays_hold_addresses()
_word_at = ctypes.c_size_t.from_address


def address_of_array(array: np.ndarray) -> int:
    """The address of an array's elements. A call asks for several, and NumPy's own answers take
    seven times as long.

    >>> x = np.zeros(3)
    >>> address_of_array(x[1:]) == x.ctypes.data + 8
    True
    """
    if _ADDRESS_AT is None:
        address: int = array.__array_interface__["data"][0]
        return address
    return _word_at(id(array) + _ADDRESS_AT).value
