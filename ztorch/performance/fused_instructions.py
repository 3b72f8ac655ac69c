"""Which integer instructions assemblers join with the one that uses their result.

NVIDIA's assembler makes one instruction of a multiplication and the addition or subtraction behind
it, of two additions, of two bitwise operations, and of the two shifts that turn the bits of a
word. A conversion between integers of one size names a register.
"""

from __future__ import annotations

from collections import Counter

from ztorch.ir.kernel import Instr, Kernel, Operand

BITWISE = frozenset({"and", "or", "xor"})


def absorbed(kernel: Kernel) -> frozenset[int]:
    """The results of the instructions of which nothing is left.

    >>> from ztorch.dtypes import u32
    >>> from ztorch.ir.builder import Builder
    >>> b = Builder("turned")
    >>> _ = b.memory("x", u32, 1, access="rw")
    >>> x = b.load("x", 0)
    >>> b.store("x", 0, b.or_(b.shl(x, 13), b.shr(x, 19)))
    >>> gone = absorbed(b.kernel())
    >>> [i.opcode for i in b.kernel().body if i.dest.id in gone]
    ['shl', 'shr']
    """
    made = {i.dest.id: i for i in kernel.body if i.dest.kind == "value" and i.dest.id >= 0}
    uses = Counter(a.id for i in kernel.body for a in i.args if a.id >= 0)
    gone: set[int] = set()
    for i in kernel.body:
        if _renames(i):
            gone.add(i.dest.id)
    for i in kernel.body:
        if i.dest.dtype.is_float or i.dest.id in gone or i.dest.lanes > 1:
            continue
        sources = [_source(a, made, uses) for a in i.args]
        if i.opcode == "or" and _turns(sources):
            gone.update(s.dest.id for s in sources if s)
        elif one := next((s for s in sources if s and s.dest.id not in gone and _joins(s, i, gone)),
                         None):
            gone.add(one.dest.id)
    return frozenset(gone)


def _renames(i: Instr) -> bool:
    """Whether an instruction gives a register another name."""
    if i.opcode != "cast":
        return False
    [a] = i.args
    return i.dest.dtype.is_int and a.dtype.is_int and i.dest.dtype.bits == a.dtype.bits


def _source(a: Operand, made: dict[int, Instr], uses: Counter[int]) -> Instr | None:
    """The instruction whose only reader an operand is, through names of the register."""
    while a.id in made and uses[a.id] == 1:
        i = made[a.id]
        if not _renames(i):
            return i
        [a] = i.args
    return None


def _turns(sources: list[Instr | None]) -> bool:
    """Whether shifts to the left and to the right turn the bits of one word."""
    if len(sources) != 2 or not all(sources):
        return False
    left, right = sorted((s for s in sources if s), key=lambda s: s.opcode)
    if (left.opcode, right.opcode) != ("shl", "shr") or left.args[0] != right.args[0]:
        return False
    counts = left.args[1], right.args[1]
    return all(c.is_const for c in counts) and (
        sum(c.number for c in counts) == left.dest.dtype.bits)


def _joins(before: Instr, i: Instr, gone: set[int]) -> bool:
    """Whether an instruction becomes part of the next, which may have taken in no other."""
    if before.dest.dtype.bits != i.dest.dtype.bits or any(a.id in gone for a in before.args):
        return before.opcode == "mul" and i.opcode in ("add", "sub") and (
            before.dest.dtype.bits == i.dest.dtype.bits)
    pairs = {"mul": ("add", "sub"), "add": ("add",)}
    return i.opcode in pairs.get(before.opcode, ()) or {before.opcode, i.opcode} <= BITWISE
