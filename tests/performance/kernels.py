"""Small kernels for the performance model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ztorch.dtypes import DType, f32, i32
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel, Operand

THREADS = 256


def kernel(body: Callable[[Builder, Operand, Operand], Any], size: int = 1 << 20, shared: int = 0,
           d: DType = f32) -> Kernel:
    """x is read and y written by the statements that the body emits for a workgroup and a thread."""
    b = Builder("k", i32)
    b.memory("x", d, size)
    b.memory("y", d, size, access="w")
    if shared:
        b.memory("near", d, shared, "shared", "rw")
    b.workgroup = (THREADS, 1, 1)
    body(b, b.identity("grid_id"), b.identity("block_id"))
    return b.kernel()
