"""Indices of gathers in 32 bits, where they are computed from 32-bit numbers.

Indices of a processor have 64 bits, of which a vector holds half as many. An index into a memory
that 32 bits can count is the same number if its sums and products wrap on the way.
"""

from __future__ import annotations

from dataclasses import replace

from ztorch.dtypes import i32
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Operand
from ztorch.ir.rewrite import rewrite

_WRAPPING = ("add", "sub", "mul")


def short_indices(kernel: Kernel) -> Kernel:
    """The kernel with 32-bit indices of gathers, where these need no conversion of vectors.

    >>> from ztorch.dtypes import f32
    >>> b = Builder("lookup")
    >>> _ = b.memory("x", f32, 64), b.memory("at", i32, 8)
    >>> at = b.cast(b.load("at", 0, lanes=8), dtype=b.index)
    >>> _ = b.load("x", b.add(b.mul(at, 4), 1))
    >>> [repr(i.args[0].dtype) for i in short_indices(b.kernel()).body if i.opcode == "gather"]
    ['i32']
    """
    sizes = {m.name: m.size for m in kernel.memories}
    gathers = [i for i in kernel.body if i.opcode == "gather" and (
        i.args[0].dtype.bits > i32.bits and sizes[i.attrs["mem"]].bit_length() < i32.bits)]
    if not gathers:
        return kernel
    made = {i.dest.id: i for i in kernel.body}
    chosen = {i.dest.id for i in gathers if _is_short(i.args[0], made)}

    def change(b: Builder, i: Instr) -> Operand | None:
        if i.dest.id not in chosen:
            return None
        index = _shortened(b, i.args[0], made)
        b.body.append(replace(i, args=(index, *i.args[1:])))
        return b.body[-1].dest

    return rewrite(kernel, change) if chosen else kernel


def _is_short(x: Operand, made: dict[int, Instr]) -> bool:
    """Whether a vector is computed from 32-bit vectors by operations that wrap."""
    if x.is_const or x.lanes == 1:
        return True
    i = made.get(x.id)
    if i is None or x.kind != "value":
        return False
    if i.opcode == "cast":
        return i.args[0].dtype == i32
    return i.opcode in ("splat", "iota") or (
        i.opcode in _WRAPPING and all(_is_short(a, made) for a in i.args))


def _shortened(b: Builder, x: Operand, made: dict[int, Instr]) -> Operand:
    """The lowest 32 bits of an operand."""
    if x.is_const:
        half = 1 << i32.bits - 1
        return replace(b.const((x.number + half) % (2 * half) - half, i32), lanes=x.lanes)
    if x.lanes == 1:
        return b.cast(x, dtype=i32)
    i = made[x.id]
    if i.opcode == "cast":
        return i.args[0]
    if i.opcode == "splat":
        return b.splat(_shortened(b, i.args[0], made), x.lanes)
    if i.opcode == "iota":
        return b.iota(x.lanes, i32)
    return b.emit(i.opcode, *(_shortened(b, a, made) for a in i.args))
