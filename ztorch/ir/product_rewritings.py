"""Replacements of asynchronous products for machines without them."""

from __future__ import annotations

from typing import Any

from ztorch.ir.kernel import SWIZZLE_LINE, WARPGROUP, Fragment, Instr, Operand

ALIGN_BYTES = 16  # of rows of matrices in shared memory: what instructions that load them ask for


def at_once(b: Any, instr: Instr) -> Operand:
    """The product of each subgroup by instructions of its own."""
    attrs, (left, right, *sums) = instr.attrs, instr.args
    fragment = sums[0].fragment
    assert fragment is not None
    shape, subgroup = fragment.shape, fragment.size // sums[0].lanes
    line = SWIZZLE_LINE // shape.of.bytes
    number = b.rem(b.div(b.identity("block_id"), subgroup), WARPGROUP)
    rows = b.mul(number, shape.m * (1 if attrs["turned"] else line))
    a = b.mma_load(attrs["mem"], b.add(left, rows), Fragment("a", shape), subgroup, line,
                   turned=attrs["turned"], off=attrs["off"], align=ALIGN_BYTES)
    for k, total in enumerate(sums):
        column = k * shape.n
        far = column * line if attrs["source_turned"] else (
            column // line * attrs["panel"] + column % line)
        x = b.mma_load(attrs["source"], right, Fragment("b", shape), subgroup, line,
                       turned=attrs["source_turned"], off=attrs["source_off"] + far,
                       align=ALIGN_BYTES)
        b.set(total, b.mma(a, x, b.get(total)))
    return instr.dest
