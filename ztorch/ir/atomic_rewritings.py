"""Atomic updates by a compare-and-swap loop, for machines that lack the update itself.

Compare-and-swap compares bits, so it is needed on integers only: a memory of floats is declared as
one of integers of the same size (`ir/atomic_memories.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztorch.dtypes import DType, boolean

if TYPE_CHECKING:
    from ztorch.ir.kernel import Instr, Operand

TRIES_MAX = (1 << 31) - 1  # iterations of the loop; whenever one fails, another thread succeeded


def by_exchange(b: Any, instr: Instr) -> Operand | None:
    """The update by compare-and-swap, on the dtype of the memory."""
    [at, x], mem = instr.args, instr.attrs["mem"]
    return updated(b, instr.opcode, mem, at, instr.attrs["off"], x, b.memories[mem].dtype)


def updated(b: Any, opcode: str, mem: str, at: Operand, off: int, x: Operand, stored: DType
            ) -> Operand:
    """The old element, which has the dtype of x but is stored in another one.

    The first try assumes that it is zero: a plain load would race with other threads' updates."""
    def bits(y: Operand) -> Operand:
        return y if y.dtype == stored else b.bitcast(y, dtype=stored)

    old, going = b.var(stored, init=0), b.var(boolean, init=True)
    with b.loop(0, TRIES_MAX) as attempt:
        b.while_(attempt, b.get(going))
        before = b.get(old)
        y = before if stored == x.dtype else b.bitcast(before, dtype=x.dtype)
        new = x if opcode == "atomic_exchange" else b.emit(opcode.removeprefix("atomic_"), y, x)
        current = b.raw("atomic_cas", stored, 1, (at, before, bits(new)), mem=mem, off=off)
        b.set(going, b.ne(current, before))
        b.set(old, current)
    last = b.get(old)
    return last if stored == x.dtype else b.bitcast(last, dtype=x.dtype)
