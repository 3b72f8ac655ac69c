"""The remainder of floats, exact for every quotient, without a fused multiplication.

x = q * y + r is exact if q has so few bits that its products with both halves of y are exact. For
larger quotients, multiples y * 2^s are subtracted first, which removes some bits of the quotient
per iteration. Few numbers need that; a vector without such lanes pays for one test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztorch.dtypes import f32, f64
from ztorch.ir.floating import FORMATS, bits_of, upper_half, widened, with_sign_of

if TYPE_CHECKING:
    from ztorch.ir.kernel import Operand

BITS = {f32: 9, f64: 24}  # of a quotient whose products with half of y are exact
MAX_ITERATIONS = {f32: 40, f64: 100}  # for all exponents; each removes at least BITS - 2 bits


@widened
def rem(b: Any, x: Operand, y: Operand) -> Operand:
    """x - trunc(x / y) * y, with the sign of x."""
    f, bits = FORMATS[x.dtype], BITS[x.dtype]
    size, unit = b.abs(x), b.abs(y)
    most = b.mul(unit, 2.0**bits)
    rest = b.var(x.dtype, x.lanes, init=size)
    with b.loop(0, MAX_ITERATIONS[x.dtype]) as iteration:
        far = b.get(rest)
        b.while_(iteration, b.ge(far, most), rare=True)
        small = b.lt(unit, f.smallest)
        normal = b.select(small, b.mul(unit, 2.0**f.mantissa), unit)
        apart = b.sub(_exponent(b, far), _exponent(b, normal))
        apart = b.select(small, b.add(apart, f.mantissa), apart)
        s = b.max(b.sub(apart, bits - 1), 0)
        half = b.shr(s, 1)  # 2^s may be more than the largest number
        multiple = b.mul(b.mul(unit, _power(b, half, x)), _power(b, b.sub(s, half), x))
        b.set(rest, _rest(b, far, multiple))
    return with_sign_of(b, _rest(b, b.get(rest), unit), x)


def _rest(b: Any, size: Operand, unit: Operand) -> Operand:
    """size modulo unit, where the quotient has few bits. The rounded quotient may be too large by
    one, which gives a negative rest and is corrected."""
    quotient = b.round(b.div(size, unit))
    largest = 2.0**FORMATS[size.dtype].bias
    large = b.ge(size, largest)  # where a product might exceed the largest number: by halves
    dividend, part = (b.select(large, b.mul(x, 0.5), x) for x in (size, unit))
    upper = upper_half(b, part)
    rest = b.sub(dividend, b.mul(quotient, upper))
    rest = b.sub(rest, b.mul(quotient, b.sub(part, upper)))
    rest = b.select(large, b.mul(rest, 2.0), rest)
    rest = b.select(b.lt(rest, 0.0), b.add(rest, unit), rest)
    return b.select(b.lt(size, unit), size, rest)


def _exponent(b: Any, x: Operand) -> Operand:
    """The exponent of a number that is not negative, as it is stored."""
    return b.shr(bits_of(b, x), FORMATS[x.dtype].mantissa)


def _power(b: Any, n: Operand, like: Operand) -> Operand:
    """2 ** n for a whole number n."""
    f = FORMATS[like.dtype]
    return b.bitcast(b.shl(b.add(n, f.bias), f.mantissa), dtype=like.dtype)
