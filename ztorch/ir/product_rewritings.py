"""Replacements of asynchronous products for machines without them.

The table of opcodes imports this file, for models too, so the classes of kernels load in functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ztorch.ir.kernel import Instr, MmaShape, Operand

ALIGN_BYTES = 16  # of rows of matrices in shared memory, as instructions that load them require


def at_once(b: Any, instr: Instr) -> Operand:
    """The product of each subgroup by separate instructions."""
    from ztorch.ir.kernel import WARPGROUP, Fragment

    attrs, (left, right, *sums) = instr.attrs, instr.args
    shape, subgroup, line = _sizes(sums)
    number = b.rem(b.div(b.identity("block_id"), subgroup), WARPGROUP)
    rows = b.mul(number, shape.m * (1 if attrs["transposed"] else line))
    a = b.mma_load(attrs["mem"], b.add(left, rows), Fragment("a", shape), subgroup, line,
                   transposed=attrs["transposed"], off=attrs["off"], align=ALIGN_BYTES)
    _multiply(b, a, attrs["source"], right, attrs["source_off"], attrs["source_transposed"], attrs,
              sums)
    return instr.dest


def held_at_once(b: Any, instr: Instr) -> Operand:
    """The same with a in registers."""
    attrs, (right, a, *sums) = instr.attrs, instr.args
    assert not attrs["parts"], "machines that copy parts of b in tiles have this product"
    _multiply(b, a, attrs["mem"], right, attrs["off"], attrs["transposed"], attrs, sums)
    return instr.dest


def _sizes(sums: list[Operand]) -> tuple[MmaShape, int, int]:
    """The shape of products, the threads of a subgroup, and the elements of a line."""
    from ztorch.ir.kernel import SWIZZLE_LINE

    fragment = sums[0].fragment
    assert fragment is not None
    return (fragment.shape, fragment.size // sums[0].lanes,
            SWIZZLE_LINE // fragment.shape.of.bytes)


def _multiply(b: Any, a: Operand, mem: str, index: Operand, off: int, transposed: bool,
              attrs: dict[str, Any], sums: list[Operand]) -> None:
    """Adds the products of a subgroup's a with each matrix of b."""
    from ztorch.ir.kernel import Fragment

    shape, subgroup, line = _sizes(sums)
    for k, total in enumerate(sums):
        column = k * shape.n
        start = column * line if transposed else column // line * attrs["panel"] + column % line
        x = b.mma_load(mem, index, Fragment("b", shape), subgroup, line, transposed=transposed,
                       off=off + start, align=ALIGN_BYTES)
        if attrs["fresh"]:
            b.set(total, 0)
        b.set(total, b.mma(a, x, b.get(total)))
