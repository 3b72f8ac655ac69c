"""Finds the integer instructions that assemblers fuse with the one that uses their result.

NVIDIA's assembler fuses a multiplication with the addition or subtraction that follows, two
additions, two bitwise operations, and the two shifts that rotate a word. A conversion between
integers of one size only renames a register.
"""

from __future__ import annotations

from collections import Counter

from ztorch.ir.kernel import Instr, Kernel, Operand

BITWISE = frozenset({"and", "or", "xor"})


def fused_results(kernel: Kernel) -> frozenset[int]:
    """The results of the instructions that are fused into others or only rename a register.

    >>> from ztorch.dtypes import u32
    >>> from ztorch.ir.builder import Builder
    >>> b = Builder("rotated")
    >>> _ = b.memory("x", u32, 1, access="rw")
    >>> x = b.load("x", 0)
    >>> b.store("x", 0, b.or_(b.shl(x, 13), b.shr(x, 19)))
    >>> fused = fused_results(b.kernel())
    >>> [i.opcode for i in b.kernel().body if i.dest.id in fused]
    ['shl', 'shr']
    """
    producers = {i.dest.id: i for i in kernel.body if i.dest.kind == "value" and i.dest.id >= 0}
    uses = Counter(a.id for i in kernel.body for a in i.args if a.id >= 0)
    fused: set[int] = set()
    for i in kernel.body:
        if _renames(i):
            fused.add(i.dest.id)
    for i in kernel.body:
        if i.dest.dtype.is_float or i.dest.id in fused or i.dest.lanes > 1:
            continue
        sources = [_source(a, producers, uses) for a in i.args]
        if i.opcode == "or" and _is_rotation(sources):
            fused.update(s.dest.id for s in sources if s)
        elif source := next((s for s in sources if s and s.dest.id not in fused
                             and _can_fuse(s, i, fused)), None):
            fused.add(source.dest.id)
    return frozenset(fused)


def _renames(i: Instr) -> bool:
    """Whether an instruction only gives a register another name."""
    if i.opcode != "cast":
        return False
    [a] = i.args
    return i.dest.dtype.is_int and a.dtype.is_int and i.dest.dtype.bits == a.dtype.bits


def _source(a: Operand, producers: dict[int, Instr], uses: Counter[int]) -> Instr | None:
    """The instruction that computes an operand and has no other use; renamings are followed."""
    while a.id in producers and uses[a.id] == 1:
        i = producers[a.id]
        if not _renames(i):
            return i
        [a] = i.args
    return None


def _is_rotation(sources: list[Instr | None]) -> bool:
    """Whether a left and a right shift rotate one word."""
    if len(sources) != 2 or not all(sources):
        return False
    left, right = sorted((s for s in sources if s), key=lambda s: s.opcode)
    if (left.opcode, right.opcode) != ("shl", "shr") or left.args[0] != right.args[0]:
        return False
    counts = left.args[1], right.args[1]
    return all(c.is_const for c in counts) and (
        sum(c.number for c in counts) == left.dest.dtype.bits)


def _can_fuse(before: Instr, i: Instr, fused: set[int]) -> bool:
    """Whether an instruction is fused into the next. An instruction has room for one other."""
    if before.dest.dtype.bits != i.dest.dtype.bits or any(a.id in fused for a in before.args):
        return before.opcode == "mul" and i.opcode in ("add", "sub") and (
            before.dest.dtype.bits == i.dest.dtype.bits)
    pairs = {"mul": ("add", "sub"), "add": ("add",)}
    return i.opcode in pairs.get(before.opcode, ()) or {before.opcode, i.opcode} <= BITWISE
