"""What lowering needs to know of a machine: plain numbers, no names of machines."""

from __future__ import annotations

from dataclasses import dataclass

from ztorch.dtypes import DType


@dataclass(frozen=True)
class Limits:
    """vector_bits is 0 for a scalar machine; registers counts the vector registers."""

    vector_bits: int
    registers: int
    fma: bool
    l1: int = 32 * 1024
    l2: int = 1024 * 1024

    def lanes(self, d: DType) -> int:
        """How many elements of a dtype one register holds."""
        return max(1, self.vector_bits // max(d.bits, 8))
