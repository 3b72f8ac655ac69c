"""Which values may differ between the threads of a workgroup."""

from __future__ import annotations

import math

from ztorch.ir.kernel import Instr, Kernel, assigned
from ztorch.ir.opcodes import ATOMICS


def divergent(kernel: Kernel, subgroup: int = 0) -> set[int]:
    """Ids of the values and variables that may differ between the threads of a workgroup.

    With `subgroup` > 0: between the threads of a subgroup, which are that many consecutive ones.

    Everything derived from `block_id` or from the counter of a block loop may differ, and so may a
    variable that is set in divergent code. Variables carry this from one trip of a loop to the
    next, so the scan is repeated until nothing changes.

    >>> from ztorch.ir.builder import Builder
    >>> b = Builder("k")
    >>> t, g = b.identity("block_id"), b.identity("grid_id")
    >>> x, y = b.add(t, 1), b.add(g, 1)
    >>> varying = divergent(b.kernel())
    >>> x.id in varying, y.id in varying
    (True, False)
    """
    varying: set[int] = set()
    thread_numbers = _thread_numbers(kernel) if subgroup else set()
    while True:
        before = len(varying)
        diverged = [False]  # whether threads may have diverged, per open loop or if
        for i in kernel.body:
            differs = any(a.id in varying for a in i.args)
            if i.opcode == "div" and i.args[0].id in thread_numbers:
                # Divided by a multiple of the subgroup: the same in all its threads.
                by = i.args[1]
                differs = not (by.is_const and by.number > 0 and by.number % subgroup == 0)
            if i.opcode == "while" and differs:  # threads leave its loop at different trips
                varying.add(i.args[0].id)
                diverged[-1] = True
            if i.opcode in ("loop", "if"):
                left_apart = i.attrs.get("kind") == "serial" and i.dest.id in varying
                diverged.append(diverged[-1] or differs or left_apart)
                differs |= i.attrs.get("kind") == "block"
            elif i.opcode in ("end_loop", "end_if"):
                diverged.pop()
            elif differs or diverged[-1]:
                varying.update(v.id for v in assigned(i))
            if differs or i.opcode == "block_id" or i.opcode in ATOMICS:
                varying.add(i.dest.id)
        if len(varying) == before:
            return varying


def _thread_numbers(kernel: Kernel) -> set[int]:
    """Ids of the values that are the number of a thread in its workgroup."""
    if kernel.workgroup[0] != math.prod(kernel.workgroup):
        return set()  # with several axes, the number along x is not the number in the workgroup
    return {i.dest.id for i in kernel.body if i.attrs.get("axis", 0) == 0 and (
        i.opcode == "block_id" or (i.attrs.get("kind") == "block" and whole_block(kernel, i)
                                   and (i.args[0].number, i.args[2].number) == (0, 1)))}


def whole_block(kernel: Kernel, loop: Instr) -> bool:
    """Whether a block loop has exactly one trip for each thread along its axis."""
    if not all(a.is_const for a in loop.args):
        return False
    trips = len(range(*[a.number for a in loop.args]))
    return trips == kernel.workgroup[loop.attrs.get("axis", 0)]


def parted_at(kernel: Kernel) -> list[int]:
    """Where in the body all threads of a workgroup must synchronize, but some may not get there.

    >>> from ztorch.ir.builder import Builder
    >>> b = Builder("k")
    >>> with b.if_(b.lt(b.identity("block_id"), 3)):
    ...     b.barrier()
    >>> parted_at(b.kernel())
    [3]
    """
    varying, open_at, parted = divergent(kernel), [], []
    for at, i in enumerate(kernel.body):
        if i.opcode in ("loop", "if"):
            ids = [a.id for a in (i.dest, *i.args)]
            open_at.append(i.attrs.get("kind") != "block" and any(x in varying for x in ids))
        elif i.opcode in ("end_loop", "end_if"):
            open_at.pop()
        elif i.opcode in ("barrier", "shuffle_xor") and any(open_at):
            parted.append(at)
    return parted
