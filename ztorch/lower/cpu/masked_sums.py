"""Sums with bools, by instructions under a mask.

Where comparisons write a mask register, a bool that becomes a number takes an instruction, and a
vector register until it is added. To add one under the mask takes neither.
"""

from __future__ import annotations

from ztorch.dtypes import boolean
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Operand
from ztorch.ir.rewrite import rewrite


def masked_sums(kernel: Kernel) -> Kernel:
    """The kernel with bools that are added to vectors of integers, or subtracted from them, as
    masks.

    >>> from ztorch.dtypes import i32
    >>> b = Builder("count")
    >>> _ = b.memory("x", i32, 16), b.memory("y", i32, 16, access="w")
    >>> x = b.load("x", 0, lanes=16)
    >>> b.store("y", 0, b.add(x, b.cast(b.lt(x, 5), dtype=i32)))
    >>> [i.opcode for i in masked_sums(b.kernel()).body if i.opcode != "load"]
    ['lt', 'cast', 'add', 'select', 'store']
    """
    masks: dict[int, Operand] = {}  # by the id of the number that one becomes

    def change(b: Builder, i: Instr) -> Operand | None:
        if i.opcode == "cast" and i.args[0].dtype is boolean and i.args[0].lanes > 1:
            masks[i.dest.id] = i.args[0]
        if i.opcode not in ("add", "sub") or not i.dest.dtype.is_int:
            return None
        x, number = i.args
        if i.opcode == "add" and _mask(number, masks) is None:
            x, number = number, x
        if (mask := _mask(number, masks)) is None:
            return None
        one = b.emit(i.opcode, x, 1)
        return b.select(mask, one, x)

    return rewrite(kernel, change)


def _mask(x: Operand, masks: dict[int, Operand]) -> Operand | None:
    return masks.get(x.id) if x.kind == "value" else None
