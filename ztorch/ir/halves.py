"""Conversions of the 16-bit floats by integer work, for machines without an instruction for them.

Rounding is to nearest, ties to even, as in hardware; NaN stays NaN, and what is too large for f16
becomes infinity.
"""

from __future__ import annotations

from ztorch.dtypes import DType, bf16, f16, f32, i32, u16, u32
from ztorch.ir.arithmetic import Arithmetic
from ztorch.ir.kernel import Operand

HALVES = (f16, bf16)


def cast(b: Arithmetic, x: Operand, dtype: DType) -> Operand:
    """The conversion in steps that always exist: other types go by way of f32."""
    if (x.dtype in HALVES and dtype is not f32) or (dtype in HALVES and x.dtype is not f32):
        return b.cast(b.cast(x, dtype=f32), dtype=dtype)
    if x.dtype is bf16:
        return b.bitcast(b.shl(_bits(b, x), 16), dtype=f32)
    if x.dtype is f16:
        return _from_f16(b, x)
    short = _to_bf16(b, x) if dtype is bf16 else _to_f16(b, x)
    return b.bitcast(b.cast(short, dtype=u16), dtype=dtype)


def _bits(b: Arithmetic, x: Operand) -> Operand:
    return b.cast(b.bitcast(x, dtype=u16), dtype=u32)


def _to_bf16(b: Arithmetic, x: Operand) -> Operand:
    bits = b.bitcast(x, dtype=u32)
    even = b.and_(b.shr(bits, 16), 1)
    rounded = b.shr(b.add(bits, b.add(even, 0x7FFF)), 16)
    quiet = b.or_(b.shr(bits, 16), 0x40)
    return b.select(b.ne(x, x), quiet, rounded)


def _from_f16(b: Arithmetic, x: Operand) -> Operand:
    """The fraction and exponent moved to their places, then scaled: exact, subnormals too."""
    bits = _bits(b, x)
    sign = b.shl(b.and_(bits, 0x8000), 16)
    size = b.shl(b.and_(bits, 0x7FFF), 13)
    scaled = b.bitcast(b.mul(b.bitcast(size, dtype=f32), 2.0**112), dtype=u32)
    special = b.or_(size, 0x7F800000)  # infinity and NaN
    whole = b.select(b.ge(b.and_(bits, 0x7C00), 0x7C00), special, scaled)
    return b.bitcast(b.or_(sign, whole), dtype=f32)


def _to_f16(b: Arithmetic, x: Operand) -> Operand:
    bits = b.bitcast(x, dtype=u32)
    sign = b.and_(b.shr(bits, 16), 0x8000)
    size = b.and_(bits, 0x7FFFFFFF)
    # A normal result: rebase the exponent and round away 13 bits of the fraction.
    even = b.and_(b.shr(size, 13), 1)
    rebased = b.sub(b.add(size, b.add(even, 0xFFF)), (127 - 15) << 23)
    normal = b.shr(rebased, 13)
    # A subnormal result: adding one half aligns the fraction so that the addition rounds it.
    aligned = b.add(b.bitcast(size, dtype=f32), 0.5)
    subnormal = b.sub(b.bitcast(aligned, dtype=u32), 0x3F000000)
    # What rounds to 65536 or more is infinity; NaN keeps a bit.
    huge = b.select(b.gt(size, 0x7F800000), b.const(0x7E00, u32, x.lanes),
                    b.const(0x7C00, u32, x.lanes))
    signed = b.bitcast(size, dtype=i32)
    finite = b.select(b.lt(signed, 0x38800000), subnormal, normal)
    return b.or_(sign, b.select(b.ge(signed, 0x477FF000), huge, finite))
