"""Conversions of 16-bit floats by integer arithmetic, for machines without an instruction for it.

Rounding is to nearest, ties to even, as in hardware. NaN stays NaN. A number too large for the
format becomes infinity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztorch.dtypes import ALL, DType, bf16, f16, f32, i32, u16, u32
from ztorch.errors import Unsupported

if TYPE_CHECKING:
    from ztorch.ir.arithmetic import Arithmetic
    from ztorch.ir.kernel import Instr, Operand

HALVES = tuple(d for d in ALL if d.is_float and d.bits < 32)  # floats that are computed in f32


def rounds_pairs(i: Instr, into: DType) -> bool:
    """Whether a store of a matrix to a memory of 16 bits rounds neighbors and stores each pair as
    one word."""
    return (i.opcode == "mma_store" and i.args[1].dtype is f32 and into in HALVES
            and i.attrs["align"] >= 2 * into.bytes and not i.attrs["transposed"])


def cast(b: Arithmetic, x: Operand, dtype: DType) -> Operand:
    """Convert x in steps that every machine has. Other dtypes are converted through f32."""
    if (x.dtype in HALVES and dtype is not f32) or (dtype in HALVES and x.dtype is not f32):
        return b.cast(b.cast(x, dtype=f32), dtype=dtype)
    narrow, table = (x.dtype, _WIDENED) if dtype is f32 else (dtype, _NARROWED)
    if narrow not in table:
        raise Unsupported(f"cast: no backend converts {narrow} from and to float32 before "
                          "ir/halves.py has its conversion")
    return table[narrow](b, x)


def _from_bf16(b: Arithmetic, x: Operand) -> Operand:
    return b.bitcast(b.shl(_bits(b, x), 16), dtype=f32)


def _bits(b: Arithmetic, x: Operand) -> Operand:
    """The 16 bits of x, as u32."""
    return b.cast(b.bitcast(x, dtype=u16), dtype=u32)


def _of_bits(b: Arithmetic, bits: Operand, dtype: DType) -> Operand:
    """The number whose 16 bits are those of a u32."""
    return b.bitcast(b.cast(bits, dtype=u16), dtype=dtype)


def _to_bf16(b: Arithmetic, x: Operand) -> Operand:
    bits = b.bitcast(x, dtype=u32)
    odd = b.and_(b.shr(bits, 16), 1)  # the last bit that is kept: a tie rounds it to even
    rounded = b.shr(b.add(bits, b.add(odd, 0x7FFF)), 16)
    quiet_nan = b.or_(b.shr(bits, 16), 0x40)
    return _of_bits(b, b.select(b.ne(x, x), quiet_nan, rounded), bf16)


def _from_f16(b: Arithmetic, x: Operand) -> Operand:
    """Shift exponent and fraction into place, then scale by 2**112. Exact, subnormals included."""
    bits = _bits(b, x)
    sign = b.shl(b.and_(bits, 0x8000), 16)
    magnitude = b.shl(b.and_(bits, 0x7FFF), 13)
    scaled = b.bitcast(b.mul(b.bitcast(magnitude, dtype=f32), 2.0**112), dtype=u32)
    special = b.or_(magnitude, 0x7F800000)  # infinity and NaN
    unsigned = b.select(b.ge(b.and_(bits, 0x7C00), 0x7C00), special, scaled)
    return b.bitcast(b.or_(sign, unsigned), dtype=f32)


def _to_f16(b: Arithmetic, x: Operand) -> Operand:
    bits = b.bitcast(x, dtype=u32)
    sign = b.and_(b.shr(bits, 16), 0x8000)
    magnitude = b.and_(bits, 0x7FFFFFFF)
    # Normal result: rebase the exponent and round off 13 bits of the fraction.
    odd = b.and_(b.shr(magnitude, 13), 1)
    rebased = b.sub(b.add(magnitude, b.add(odd, 0xFFF)), (127 - 15) << 23)
    normal = b.shr(rebased, 13)
    # Subnormal result: adding 0.5 aligns the fraction, so the addition itself rounds it.
    aligned = b.add(b.bitcast(magnitude, dtype=f32), 0.5)
    subnormal = b.sub(b.bitcast(aligned, dtype=u32), 0x3F000000)
    # A number that rounds to 65536 or more becomes infinity. Every NaN becomes the quiet NaN.
    special = b.select(b.gt(magnitude, 0x7F800000), b.const(0x7E00, u32, x.lanes),
                       b.const(0x7C00, u32, x.lanes))
    signed = b.bitcast(magnitude, dtype=i32)  # for comparisons; it is never negative
    finite = b.select(b.lt(signed, 0x38800000), subnormal, normal)
    return _of_bits(b, b.or_(sign, b.select(b.ge(signed, 0x477FF000), special, finite)), f16)


# The conversions to float32 and from it, by dtype. A new dtype has one of each.
_WIDENED = {bf16: _from_bf16, f16: _from_f16}
_NARROWED = {bf16: _to_bf16, f16: _to_f16}
