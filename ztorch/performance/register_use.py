"""Estimates the registers of a thread from the values that are live at the same time."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ztorch.ir.kernel import Kernel, Operand, matching

ADDRESSING = 12  # registers of a thread for addresses, thread numbers and so on
MIN_REGISTERS = 16  # registers of the smallest kernel
MAX_REGISTERS = 255  # largest number of registers of a thread
REGISTER_STEP = 8  # granularity of register allocation


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
    """The estimated number of registers of a thread of a kernel. Assemblers reorder instructions,
    so they use fewer or more: for typical kernels NVIDIA's differs by less than a third.

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
        begin, end = _live_range(first[v], last[v], operand.kind == "variable", loops)
        changes[begin] += registers_of(operand)
        changes[end] -= registers_of(operand)
    live = most = 0.0
    for change in changes:
        live += change
        most = max(most, live)
    rounded = math.ceil((most + ADDRESSING) / REGISTER_STEP) * REGISTER_STEP
    return min(MAX_REGISTERS, max(MIN_REGISTERS, rounded))


def _live_range(first: int, last: int, variable: bool,
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
