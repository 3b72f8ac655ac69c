"""Kernels that load and store neighbors at once."""

from __future__ import annotations

from ztorch.dtypes import DType, i32
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import GridLimits
from ztorch.lower.grid.workgroups import threads, workgroups


def loads(d: DType, lanes: int) -> Kernel:
    """Aligned vectors of a memory that is also read element by element, and others anywhere."""
    b = Builder("several", i32)
    b.memory("x", d, 32)
    b.memory("shifted", d, 33)
    b.memory("y", d, 8 * 2 * lanes, access="w")
    b.memory("z", d, 8, access="w")
    with workgroups(b, 1, GridLimits()) as _, threads(b, 8) as t:
        whole = b.load("x", b.mul(t, 4), lanes=lanes, align=lanes * d.bytes)
        parts = b.load("shifted", b.mul(t, 3), off=1, lanes=lanes)
        for k in range(lanes):
            b.store("y", b.mul(t, 2 * lanes), b.extract(whole, k), off=k)
            b.store("y", b.mul(t, 2 * lanes), b.extract(parts, k), off=lanes + k)
        b.store("z", t, b.load("x", b.mul(t, 2), off=3, mask=b.lt(t, 6)))
    return b.kernel()


def stores(d: DType, aligned: bool) -> Kernel:
    """Vectors of numbers that were computed one by one, and element by element beside them."""
    b = Builder("whole", i32)
    b.memory("x", d, 32)
    b.memory("y", d, 36, access="w")
    with workgroups(b, 1, GridLimits()) as _, threads(b, 8) as t:
        at, off = b.mul(t, 4), 0 if aligned else 1
        xs = [b.load("x", t, off=8 * k) for k in range(4)]
        b.store("y", at, b.join(*xs[::-1]), off=off, align=4 * d.bytes if aligned else 0)
        with b.if_(b.lt(t, 1)):
            b.store("y", t, xs[0], off=34)
    return b.kernel()
