"""Rounded numbers of a known range as integers, by one addition.

    y = x + 1.5 * 2 ** 23    rounds x to whole numbers, ties to even, in the low bits of y

A conversion rounds towards zero, so it needs a rounding before it, and has to replace NaN and
numbers out of range: seven more instructions on x86. Where x was clipped, none of them matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ztorch.dtypes import f32, i32
from ztorch.ir.builder import Builder
from ztorch.ir.floating import FORMATS
from ztorch.ir.kernel import Instr, Kernel, Operand
from ztorch.ir.ranges import limits
from ztorch.ir.rewrite import rewrite

_WHOLE = FORMATS[f32].whole
_WHOLE_BITS = int(np.float32(_WHOLE).view(np.int32))
_REACH = 1 << FORMATS[f32].mantissa - 1  # the largest number for which the sum has units


def rounded_casts(kernel: Kernel) -> Kernel:
    """The kernel with such conversions as additions.

    >>> b = Builder("code")
    >>> _ = b.memory("x", f32, 1), b.memory("y", i32, 1, access="w")
    >>> x = b.load("x", 0)
    >>> x = b.select(b.gt(x, 0.0), x, 0.0)
    >>> x = b.select(b.lt(x, 255.0), x, 255.0)
    >>> b.store("y", 0, b.cast(b.round(x), dtype=i32))
    >>> [i.opcode for i in rounded_casts(b.kernel()).body][-4:]
    ['add', 'bitcast', 'sub', 'store']
    """
    made = {i.dest.id: i for i in kernel.body}
    clipped = {i.dest.id: made[i.args[0].id].args[0] for i in kernel.body if _is_short(i, made)}
    if not clipped:
        return kernel

    def change(b: Builder, i: Instr) -> Operand | None:
        if i.dest.id in clipped:
            bits = b.bitcast(b.add(clipped[i.dest.id], _WHOLE), dtype=i32)
            whole = b.sub(bits, _WHOLE_BITS)
            return whole if i.dest.dtype is i32 else b.cast(whole, dtype=i.dest.dtype)
        return None

    return rewrite(kernel, change)


def _is_short(i: Instr, made: Mapping[int, Instr]) -> bool:
    """Whether an instruction converts a rounded number that fits."""
    if i.opcode != "cast" or not i.dest.dtype.is_int or i.args[0].dtype is not f32:
        return False
    rounding = made.get(i.args[0].id)
    if rounding is None or rounding.opcode != "round":
        return False
    low, high = limits(i.dest.dtype)
    least, most = _bounds(rounding.args[0], made)
    return max(low, -_REACH) <= least and most <= min(high, _REACH)


def _bounds(x: Operand, made: Mapping[int, Instr]) -> tuple[float, float]:
    """The bounds of a float. One that has any is a number: comparisons with NaN are false, so the
    bound is chosen in its place."""
    i, nothing = made.get(x.id), (-math.inf, math.inf)
    if i is None or i.opcode != "select":
        return nothing
    test = made.get(i.args[0].id)
    if test is None or test.opcode not in ("gt", "lt") or not test.args[1].is_const:
        return nothing
    inner, bound = test.args
    if i.args[1].id != inner.id or not i.args[2].is_const or i.args[2].number != bound.number:
        return nothing
    (low, high), end = _bounds(inner, made), float(bound.number)
    return (max(low, end), high) if test.opcode == "gt" else (low, min(high, end))
