"""Tensor maps as cuTensorMapEncodeTiled encodes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorMap:
    """A map encoded by cuTensorMapEncodeTiled, the innermost axis first."""

    base: int
    size: int  # bytes of an element
    extents: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes, without the innermost
    box: tuple[int, ...]
    swizzle: int = 3  # 3: of 128 bytes

    def problem(self) -> str:
        """Why the driver would refuse it; empty if it would not."""
        n = len(self.extents)
        if not (1 <= n <= 5 and len(self.strides) == n - 1 and len(self.box) == n):
            return "axes"
        if self.base % 16 or any(s % 16 or not 0 < s < 1 << 40 for s in self.strides):
            return "alignment"
        if any(not 0 < b <= 256 for b in self.box) or any(not 0 < e <= 1 << 32 for e in self.extents):
            return "sizes"
        line = self.box[0] * self.size
        return "swizzle" if line % 16 or (self.swizzle and line > 16 << self.swizzle) else ""
