"""Which values may differ between the threads of a workgroup."""

from __future__ import annotations

import math

from ztorch.ir.kernel import Instr, Kernel


def divergent(kernel: Kernel, subgroup: int = 0) -> set[int]:
    """Ids of the values and variables that may differ between the threads of a workgroup, or of
    each `subgroup` neighbours in it.

    All that derives from `block_id` or the counter of a block loop differs, and so does a variable
    that is set where threads have parted. Variables carry this around loops: hence to a fixpoint.

    >>> from ztorch.ir.builder import Builder
    >>> b = Builder("k")
    >>> t, g = b.identity("block_id"), b.identity("grid_id")
    >>> x, y = b.add(t, 1), b.add(g, 1)
    >>> varying = divergent(b.kernel())
    >>> x.id in varying, y.id in varying
    (True, False)
    """
    varying: set[int] = set()
    numbers = _numbers(kernel) if subgroup else set()
    while True:
        before = len(varying)
        parted = [False]  # whether threads have parted, per open loop or if
        for i in kernel.body:
            differs = any(a.id in varying for a in i.args)
            if i.opcode == "div" and i.args[0].id in numbers:
                by = i.args[1]  # the quotient says which subgroups a thread is in
                differs = not (by.is_const and by.number > 0 and by.number % subgroup == 0)
            if i.opcode in ("loop", "if"):
                parted.append(parted[-1] or differs)
                differs |= i.attrs.get("kind") == "block"
            elif i.opcode in ("end_loop", "end_if"):
                parted.pop()
            elif i.opcode == "set" and (differs or parted[-1]):
                varying.add(i.args[0].id)
            if differs or i.opcode == "block_id":
                varying.add(i.dest.id)
        if len(varying) == before:
            return varying


def _numbers(kernel: Kernel) -> set[int]:
    """Values that are the number of a thread in its workgroup."""
    if kernel.workgroup[0] != math.prod(kernel.workgroup):
        return set()  # neighbours are not in one row
    return {i.dest.id for i in kernel.body if i.attrs.get("axis", 0) == 0 and (
        i.opcode == "block_id" or (i.attrs.get("kind") == "block" and whole_block(kernel, i)
                                   and (i.args[0].number, i.args[2].number) == (0, 1)))}


def whole_block(kernel: Kernel, loop: Instr) -> bool:
    """Whether a block loop has exactly one trip for each thread along its axis."""
    if not all(a.is_const for a in loop.args):
        return False
    trips = len(range(*[a.number for a in loop.args]))
    return trips == kernel.workgroup[loop.attrs.get("axis", 0)]
