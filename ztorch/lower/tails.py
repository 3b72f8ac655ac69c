"""Masked stores of the first lanes of a vector, split into full stores of shorter vectors.

The end of a row is a partial vector. Processors without mask registers store it slowly or lane by
lane: on Zen 3 a masked store of 256 bits takes ten cycles, and two full stores of 128 and 64 bits
take two.
"""

from __future__ import annotations

from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Operand
from ztorch.ir.rewrite import rewrite


def stored_in_pieces(kernel: Kernel) -> Kernel:
    """The kernel with each store of the first n lanes, for a constant n, split into unmasked stores
    of half, quarter and shorter vectors."""
    iotas: set[int] = set()  # ids of registers
    counts: dict[int, int] = {}  # active lanes of a mask, by the id of its register

    def change(b: Builder, instr: Instr) -> Operand | None:
        if instr.opcode == "iota":
            iotas.add(instr.dest.id)
        elif instr.opcode == "lt" and instr.args[0].id in iotas and instr.args[1].is_const:
            counts[instr.dest.id] = int(instr.args[1].number)
        if instr.opcode != "store" or len(instr.args) <= 2 or instr.args[2].id not in counts:
            return None
        at, x, mask = instr.args
        start = 0
        for size in _pieces(counts[mask.id], x.lanes):
            part = (b.extract(x, start) if size == 1 else
                    b.shuffle(x, x, tuple(range(start, start + size))))
            b.store(instr.attrs["mem"], at, part, off=instr.attrs["off"] + start)
            start += size
        return b.body[-1].dest

    return rewrite(kernel, change)


def _pieces(count: int, lanes: int) -> list[int]:
    """Powers of two that add up to `count`, the largest first.

    >>> _pieces(7, 8), _pieces(3, 16)
    ([4, 2, 1], [2, 1])
    """
    return [1 << k for k in reversed(range(lanes.bit_length())) if count & 1 << k]
