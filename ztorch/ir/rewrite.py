"""Replaces instructions of a kernel by others that compute the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Operand

Change = Callable[[Builder, Instr], Operand | None]


def rewrite(kernel: Kernel, change: Change) -> Kernel:
    """The kernel with each instruction replaced by what `change` emits; if that returns None, the
    instruction is kept.

    >>> b = Builder("double")
    >>> _ = b.memory("x", b.index, 1, access="rw")
    >>> b.store("x", 0, b.mul(b.load("x", 0), 2))
    >>> def doubled(b, i):
    ...     return b.add(i.args[0], i.args[0]) if i.opcode == "mul" else None
    >>> [i.opcode for i in rewrite(b.kernel(), doubled).body]
    ['load', 'add', 'store']
    """
    b = Builder(kernel.name, kernel.index, kernel.exact, first_id=next_id(kernel))
    b.memories = {m.name: m for m in kernel.memories}
    b.variables = list(kernel.variables)
    new: dict[int, Operand] = {}
    for instr in kernel.body:
        if new:
            args = tuple([new.get(a.id, a) if a.kind == "value" else a for a in instr.args])
            if args != instr.args:
                instr = Instr(instr.opcode, instr.dest, args, instr.attrs)
        before = len(b.body)
        result = change(b, instr)
        if result is None:
            b.body.append(instr)
        elif len(b.body) > before and b.body[-1].dest is result:  # takes the place and the number
            b.body[-1] = replace(b.body[-1], dest=instr.dest)
        else:
            new[instr.dest.id] = result
        b.forget()  # this instruction may be out of scope at the next one
    return replace(kernel, variables=tuple(b.variables), body=tuple(b.body))


def next_id(kernel: Kernel) -> int:
    """The first id from which on all ids are free."""
    used = [i.dest.id for i in kernel.body] + [v.id for v in kernel.variables]
    return max(used, default=-1) + 1
