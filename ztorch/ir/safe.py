"""The meaning of div, rem, min, max, abs, mulhi and cast where machines differ, for all targets.

The machine's instruction traps, is undefined or gives another result for some operands. A target
whose table has no text for the opcode gets the raw instruction: those operands are replaced before
it, and their results are selected after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztorch.dtypes import DType, boolean, u32
from ztorch.ir import halves

if TYPE_CHECKING:
    from ztorch.ir.arithmetic import Arithmetic
    from ztorch.ir.kernel import Operand


def div(b: Arithmetic, x: Operand, y: Operand) -> Operand:
    """Integers: x / 0 is 0, and the minimum / -1 is the minimum."""
    if y.is_const:
        if y.number == 0:
            return b.const(0, x.dtype, x.lanes)
        return b.neg(x) if y.number == -1 else b.raw_div(x, y)
    zero, minus_one, divisor = _divisor(b, y)
    quotient = b.raw_div(x, divisor)
    if minus_one is not None:
        quotient = b.select(minus_one, b.neg(x), quotient)
    return b.select(zero, 0, quotient)


def rem(b: Arithmetic, x: Operand, y: Operand) -> Operand:
    """Integers: x rem 0 is x, and x rem -1 is 0. The sign is that of x."""
    if y.is_const:
        if y.number in (0, -1):
            return x if y.number == 0 else b.const(0, x.dtype, x.lanes)
        return b.raw_rem(x, y)
    zero, _, divisor = _divisor(b, y)
    return b.select(zero, x, b.raw_rem(x, divisor))


def raw_rem(b: Arithmetic, x: Operand, y: Operand) -> Operand:
    """For machines that divide but have no remainder instruction."""
    return b.sub(x, b.mul(b.raw_div(x, y), y))


def _divisor(b: Arithmetic, y: Operand) -> tuple[Operand, Operand | None, Operand]:
    """Where y is 0, where it is -1 (None: it has no sign), and y with 1 in both places."""
    zero = b.eq(y, 0)
    if y.dtype.kind == "u":
        return zero, None, b.select(zero, 1, y)
    minus_one = b.eq(y, -1)
    return zero, minus_one, b.select(b.or_(zero, minus_one), 1, y)


def maximum(b: Arithmetic, x: Operand, y: Operand) -> Operand:
    """The larger; NaN if either is NaN."""
    return _chosen(b, "gt", x, y)


def minimum(b: Arithmetic, x: Operand, y: Operand) -> Operand:
    """The smaller; NaN if either is NaN."""
    return _chosen(b, "lt", x, y)


def _chosen(b: Arithmetic, compare: str, x: Operand, y: Operand) -> Operand:
    """x where the comparison of x and y holds, else y; NaN if either is NaN.

    NaN compares as false, so a NaN in y is kept. Where x is known to be a number this is enough,
    and one instruction on most machines; otherwise x is tested for NaN.
    """
    if y.is_const and y.number == y.number:
        x, y = y, x
    chosen = b.select(getattr(b, compare)(x, y), x, y)
    if x.dtype.is_int or (x.is_const and x.number == x.number):
        return chosen
    return b.select(b.ne(x, x), x, chosen)


def absolute(b: Arithmetic, x: Operand) -> Operand:
    """Integers: the absolute value of the minimum is the minimum."""
    return b.select(b.lt(x, 0), b.neg(x), x)


def mulhi(b: Arithmetic, x: Operand, y: Operand) -> Operand:
    """The upper half of a product: up to 16 bits in 32 bits, others by four half products."""
    bits = x.dtype.bits
    if bits < 32:
        product = b.mul(b.cast(x, dtype=u32), b.cast(y, dtype=u32))
        return b.cast(b.shr(product, bits), dtype=x.dtype)
    half = bits // 2
    low = (1 << half) - 1
    x_low, y_low, x_high, y_high = b.and_(x, low), b.and_(y, low), b.shr(x, half), b.shr(y, half)
    middle = b.add(b.mul(x_high, y_low), b.shr(b.mul(x_low, y_low), half))
    other = b.add(b.mul(x_low, y_high), b.and_(middle, low))
    return b.add(b.mul(x_high, y_high), b.add(b.shr(middle, half), b.shr(other, half)))


def cast(b: Arithmetic, x: Operand, dtype: DType) -> Operand:
    """Conversions that few machines have, expressed by those that all machines have."""
    if dtype is boolean:
        return b.ne(x, 0)
    if x.dtype in halves.HALVES or dtype in halves.HALVES:
        return halves.cast(b, x, dtype)
    if x.dtype is boolean:
        return b.select(x, b.const(1, dtype, x.lanes), b.const(0, dtype, x.lanes))
    return _saturated(b, x, dtype)


def _saturated(b: Arithmetic, x: Operand, dtype: DType) -> Operand:
    """Float to integer: a number out of range becomes the nearest one in it, NaN becomes 0. The
    bounds are powers of two (or 0), which every float dtype holds."""
    signed = dtype.kind == "s"
    bound = 1 << (dtype.bits - signed)
    low, high = -bound if signed else 0, bound
    inside = b.and_(b.ge(x, float(low)), b.lt(x, float(high)))
    truncated = b.raw_cast(b.select(inside, x, 0.0), dtype=dtype)
    truncated = b.select(b.ge(x, float(high)), high - 1, truncated)
    return b.select(b.lt(x, float(low)), low, truncated) if signed else truncated
