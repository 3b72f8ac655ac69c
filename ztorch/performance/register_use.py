"""An estimate of the registers of a thread, from the values that are needed at once."""

from __future__ import annotations

from collections.abc import Iterable

from ztorch.ir.kernel import Kernel, Operand, matching

ADDRESSING = 12  # additional registers for addresses, thread numbers and so on
LEAST = 16  # registers of the smallest kernel
MOST = 255  # largest number of registers of a thread
STEP = 8  # granularity of register allocation


def registers_of(operand: Operand) -> float:
    """Registers of 32 bits that a value takes; predicates have a separate register file.

    >>> from ztorch.ir.kernel import constant
    >>> from ztorch.dtypes import f16, f64
    >>> registers_of(constant(0, f64)), registers_of(constant(0, f16, lanes=4))
    (2.0, 2.0)
    """
    if operand.dtype.kind == "b" or operand.kind == "token":
        return 0.0
    bits = operand.dtype.bits if operand.lanes > 1 else max(32, operand.dtype.bits)
    return operand.lanes * bits / 32


def estimated_registers(kernel: Kernel) -> int:
    """Registers that a thread of a kernel may need. Assemblers reorder, so they need fewer or
    more: this is within a third of NVIDIA's assembler for typical kernels.

    Args:
        kernel: The kernel of one thread, in words of its target.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    operands: dict[int, Operand] = {}
    for at, i in enumerate(kernel.body):
        for operand in (i.dest, *i.args):
            if not operand.is_const:
                operands[operand.id] = operand
                first.setdefault(operand.id, at)
                last[operand.id] = at
    loops = [(s, e) for s, e in matching(kernel.body) if kernel.body[s].opcode == "loop"]
    changes = [0.0] * (len(kernel.body) + 1)
    for v, operand in operands.items():
        begin, end = _alive(first[v], last[v], operand.kind == "variable", loops)
        changes[begin] += registers_of(operand)
        changes[end] -= registers_of(operand)
    alive = most = 0.0
    for change in changes:
        alive += change
        most = max(most, alive)
    return int(min(MOST, max(LEAST, -(-(most + ADDRESSING) // STEP) * STEP)))


def _alive(first: int, last: int, variable: bool,
           loops: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The live range of a value: if a loop uses a value defined before it, the value is live in
    every trip, and a variable keeps its value from trip to trip."""
    for start, end in loops:
        inside = start < last <= end
        if inside and first < start:
            last = max(last, end)
        elif inside and variable and start < first:
            first, last = start, max(last, end)
    return first, last
