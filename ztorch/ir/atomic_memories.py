"""Memories of floats that are updated atomically, on machines with atomics of integers only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ztorch.dtypes import DType, f32, f64, u32, u64
from ztorch.ir.atomic_rewritings import updated
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Operand
from ztorch.ir.opcodes import ATOMICS
from ztorch.ir.rewrite import rewrite

BITS: dict[DType, DType] = {f32: u32, f64: u64}  # integers that hold the bits of a float


def with_integer_memories(kernel: Kernel, supports: Callable[[Instr], bool]) -> Kernel:
    """The kernel with memories of integers in place of those of floats that have an atomic update
    that the target does not support.

    >>> b = Builder("total")
    >>> _ = b.memory("y", f32, 1, access="rw")
    >>> _ = b.atomic("add", "y", 0, b.const(1.0, f32))
    >>> new = with_integer_memories(b.kernel(), lambda i: i.dest.dtype != f32)
    >>> new.memories[0].dtype, sorted(new.opcodes() & {"atomic_add", "atomic_cas"})
    (u32, ['atomic_cas'])
    """
    dtypes = {m.name: m.dtype for m in kernel.memories}
    lacking = {i.attrs["mem"] for i in kernel.body if i.opcode in ATOMICS
               and i.dest.dtype in BITS and not supports(i)}
    if not lacking:
        return kernel
    kernel = replace(kernel, memories=tuple(
        replace(m, dtype=BITS[m.dtype]) if m.name in lacking else m for m in kernel.memories))

    def change(b: Builder, i: Instr) -> Operand | None:
        mem: str = i.attrs.get("mem", "")
        if mem not in lacking:
            return None
        stored, d = BITS[dtypes[mem]], dtypes[mem]
        if i.opcode == "load":
            x = b.raw("load", stored, i.dest.lanes, i.args, **i.attrs)
            return b.bitcast(x, dtype=d)
        if i.opcode == "store":
            at, x, *mask = i.args
            b.raw("store", i.dest.dtype, 1, (at, b.bitcast(x, dtype=stored), *mask), "token",
                  **i.attrs)
            return i.dest
        if i.opcode == "atomic_cas":
            at, *numbers = i.args
            bits = tuple(b.bitcast(x, dtype=stored) for x in numbers)
            return b.bitcast(b.raw(i.opcode, stored, 1, (at, *bits), **i.attrs), dtype=d)
        assert i.opcode in ATOMICS, f"{i.opcode} on a memory that is updated atomically"
        return updated(b, i.opcode, mem, i.args[0], i.attrs["off"], i.args[1], stored)

    return rewrite(kernel, change)


def lacking_updates(kernel: Kernel, supports: Callable[[Instr], bool]) -> Instr | None:
    """The first atomic update that a target can do neither natively nor by compare-and-swap."""
    for i in kernel.body:
        if i.opcode in ATOMICS and not supports(i):
            d = BITS.get(i.dest.dtype, i.dest.dtype)
            bits = replace(i.dest, dtype=d)
            if not supports(Instr("atomic_cas", bits, (i.args[0], bits, bits), i.attrs)):
                return i
    return None


def with_atomic_memories(kernel: Kernel) -> Kernel:
    """Declares the memories with atomic updates as atomic.

    >>> b = Builder("total")
    >>> _ = b.memory("y", u32, 1, access="rw")
    >>> _ = b.atomic("add", "y", 0, b.const(1, u32))
    >>> with_atomic_memories(b.kernel()).memories[0].atomic
    True
    """
    updated_memories = {i.attrs["mem"] for i in kernel.body if i.opcode in ATOMICS}
    return replace(kernel, memories=tuple(
        replace(m, atomic=m.name in updated_memories) for m in kernel.memories))
