"""The memory of a pretended GPU: allocations far apart, and every access held to their bounds."""

from __future__ import annotations

import numpy as np

from tests.machines.ptx.parse import PtxError

FIRST, APART = 1 << 32, 1 << 16


class Allocation:
    def __init__(self, base: int, nbytes: int):
        self.base, self.nbytes = base, nbytes
        self.data = np.full(-(-nbytes // 8) * 8, 0xA5, np.uint8)  # as if something had been there


class GlobalMemory:
    """Allocations at addresses of 64 bits."""

    def __init__(self) -> None:
        self.allocations: dict[int, Allocation] = {}
        self._next = FIRST

    def alloc(self, nbytes: int) -> int:
        base = self._next
        self.allocations[base] = Allocation(base, nbytes)
        self._next += -(-nbytes // APART) * APART + APART
        return base

    def free(self, base: int) -> None:
        del self.allocations[base]

    def holding(self, address: int, nbytes: int) -> Allocation | None:
        """The allocation that a range is in, if any."""
        for a in self.allocations.values():
            if a.base <= address and address + nbytes <= a.base + a.nbytes:
                return a
        return None

    def reach(self, addresses: np.ndarray, size: int) -> tuple[Allocation, np.ndarray]:
        """The allocation that these addresses are in, all in one, and the elements they mean."""
        low, high = int(addresses.min()), int(addresses.max())
        held = self.holding(low, size)
        if held is None or high + size > held.base + held.nbytes:
            raise PtxError(f"addresses 0x{low:x} to 0x{high + size:x} are in no one allocation")
        offsets = (addresses - np.uint64(held.base)).astype(np.int64)
        if (offsets % size).any():
            raise PtxError(f"an access of {size} bytes is not aligned")
        return held, offsets // size
