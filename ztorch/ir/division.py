"""Cheaper division of integers whose ranges a kernel declares.

By a constant: shifts, masks and products give the same results. GPU compilers do not always replace
divisions, and CPU compilers cannot know that most positions are never negative. By a number that is
certainly positive: the machine's own division, unguarded.
"""

from __future__ import annotations

from collections.abc import Callable

from ztorch.dtypes import DType, u32, u64
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Operand, constant
from ztorch.ir.ranges import range_of, ranges
from ztorch.ir.rewrite import rewrite

UNSIGNED = {32: u32, 64: u64}  # by width: the dtype for which `mulhi` exists


def without_division(kernel: Kernel, supports: Callable[[Instr], bool]) -> Kernel:
    """The kernel with cheaper integer divisions where ranges allow it. `supports` returns whether
    the target has an instruction.

    >>> b = Builder("k")
    >>> _ = b.memory("y", b.index, 100, access="w")
    >>> with b.loop(0, 100) as i:
    ...     b.store("y", i, b.add(b.div(i, 8), b.rem(i, 8)))
    >>> [i.opcode for i in without_division(b.kernel(), lambda i: True).body]
    ['loop', 'shr', 'and', 'add', 'store', 'end_loop']
    """
    divisions = [i for i in kernel.body if i.opcode in ("div", "rem") and i.dest.dtype.is_int]
    if not divisions:
        return kernel
    limits_by_id = ranges(kernel)
    operands = {i.dest.id: [range_of(a, limits_by_id) for a in i.args] for i in divisions}

    def change(b: Builder, i: Instr) -> Operand | None:
        dividend, divisor = operands.get(i.dest.id, ((0, 0), (0, 0)))
        if divisor[0] <= 0:
            return None
        if i.args[1].is_const:
            return _by_constant(b, i, dividend[1], supports) if dividend[0] >= 0 else None
        return None if supports(i) else b.emit(f"raw_{i.opcode}", *i.args)

    return rewrite(kernel, change)


def _by_constant(b: Builder, i: Instr, most: int,
                 supports: Callable[[Instr], bool]) -> Operand | None:
    """The quotient or remainder of a number from 0 to `most`."""
    x, by = i.args[0], int(i.args[1].number)
    is_quotient = i.opcode == "div"
    if most < by:
        return b.const(0, x.dtype, x.lanes) if is_quotient else x
    if by == 1:
        return x if is_quotient else b.const(0, x.dtype, x.lanes)
    if by & (by - 1) == 0:
        return b.shr(x, by.bit_length() - 1) if is_quotient else b.and_(x, by - 1)
    quotient = _quotient(b, x, by, most, supports)
    if quotient is None or is_quotient:
        return quotient
    return b.sub(x, b.mul(quotient, by))


def _quotient(b: Builder, x: Operand, by: int, most: int,
              supports: Callable[[Instr], bool]) -> Operand | None:
    """x / by as (x * factor) >> shift: of the product where it fits, else of its upper half."""
    d, bits = x.dtype, x.dtype.bits
    room = bits - (d.kind == "s")
    for shift in range(1, bits):
        factor = _factor(by, most, shift)
        if factor and factor * most < 1 << room:
            return b.shr(b.mul(x, factor), shift)
    if bits not in UNSIGNED or not supports(_upper_half(UNSIGNED[bits], x.lanes)):
        return None
    for shift in range(bits):
        factor = _factor(by, most, bits + shift)
        if factor and factor < 1 << bits:
            upper = b.mulhi(b.cast(x, dtype=UNSIGNED[bits]), factor)
            return b.cast(b.shr(upper, shift) if shift else upper, dtype=d)
    return None


def _factor(by: int, most: int, shift: int) -> int:
    """The number f with (x * f) >> shift equal to x // by for all x from 0 to `most`; 0: none.

    f is 2^shift / by rounded up, by an error of e / by. It adds x e / (by 2^shift) to a quotient,
    whose fraction is at most (by - 1) / by: so no integer is reached where x e < 2^shift.
    """
    power = 1 << shift
    factor = -(-power // by)
    return factor if most * (factor * by - power) < power else 0


def _upper_half(d: DType, lanes: int) -> Instr:
    x = constant(1, d, lanes)
    return Instr("mulhi", x, (x, x))
