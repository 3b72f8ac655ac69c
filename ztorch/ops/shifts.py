"""Shifts by any count: the opcodes take counts below the width only, and machines differ beyond."""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.value import Op, Value


def any_shift(shift: Op, left: bool, a: Value, b: Value) -> Value:
    """a shifted by b bits, as in NumPy: by the width or more, or by a negative count, nothing of a
    is left but its sign on a shift to the right.

    Args:
        shift: The primitive op.
        left: Whether it shifts to the left.
        a: Integers.
        b: Counts, of the same shape and dtype.
    """
    width = a.dtype.bits
    if b.op.name == "full" and 0 <= b.attrs["value"] < width:
        return shift(a, b)
    last = OPS.full(b.shape, width - 1, b.dtype)
    fits = OPS.less_equal(b, last)
    if b.dtype.kind == "s":
        fits = OPS.bitwise_and(fits, OPS.greater_equal(b, OPS.zeros_like(b)))
    shifted = shift(a, OPS.where(fits, b, last))
    if not left and a.dtype.kind == "s":
        return shifted
    return OPS.where(fits, shifted, OPS.zeros_like(a))
