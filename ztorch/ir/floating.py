"""The parts that approximations are built from: polynomial steps, powers of two, split numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from ztorch.dtypes import DType, f32, f64, i32, i64

if TYPE_CHECKING:
    from ztorch.ir.arithmetic import Arithmetic
    from ztorch.ir.kernel import Operand

Via = Callable[..., Any]
Coefficients = dict[DType, tuple[float, ...]]  # by dtype, the highest power first


class Format(NamedTuple):
    """The layout of an IEEE number in an integer of the same width."""

    ints: DType
    mantissa: int  # bits after the leading one
    bias: int

    @property
    def whole(self) -> float:
        """The addend that moves an integer-valued float into the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa

    @property
    def smallest(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def sign(self) -> int:
        return -1 << (self.ints.bits - 1)

    @property
    def upper(self) -> int:
        """Mask that keeps half of the significant bits, so that products of two are exact."""
        return -1 << (self.mantissa // 2 + 1)


FORMATS = {f32: Format(i32, 23, 127), f64: Format(i64, 52, 1023)}


def widened(via: Via) -> Via:
    """Gives a rewriting for f32 and f64 to the 16-bit floats as well: computed in f32."""

    @wraps(via)
    def any_float(b: Arithmetic, *xs: Operand) -> Operand:
        narrow = xs[0].dtype
        if narrow.bits >= 32:
            return via(b, *xs)
        return b.cast(via(b, *[b.cast(x, dtype=f32) for x in xs]), dtype=narrow)

    return any_float


def step(b: Arithmetic, x: Operand, y: Operand | float, z: Operand | float) -> Operand:
    """x * y + z. Exact kernels round twice, as that is the same number on every machine."""
    return b.add(b.mul(x, y), z) if b.exact else b.fma(x, y, z)


def horner(b: Arithmetic, x: Operand, coefficients: Sequence[float]) -> Operand:
    """The polynomial with these coefficients, the highest power first."""
    first, second, *rest = coefficients
    y = step(b, x, first, second)
    for c in rest:
        y = step(b, y, x, c)
    return y


def clamp(b: Arithmetic, x: Operand, low: float, high: float) -> Operand:
    """x between two bounds; NaN stays NaN."""
    return b.max(b.min(x, high), low)


def bits_of(b: Arithmetic, x: Operand) -> Operand:
    return b.bitcast(x, dtype=FORMATS[x.dtype].ints)


def with_sign_of(b: Arithmetic, y: Operand, x: Operand) -> Operand:
    """y >= 0 with the sign of x."""
    sign = b.and_(bits_of(b, x), FORMATS[x.dtype].sign)
    return b.bitcast(b.or_(bits_of(b, y), sign), dtype=y.dtype)


def zero_kept(b: Arithmetic, y: Operand, x: Operand) -> Operand:
    """y, and x itself where that is a zero: sums of a polynomial lose the sign of -0.0."""
    return b.select(b.eq(x, 0.0), x, y)


def power_of_two(b: Arithmetic, n: Operand, less: int = 0) -> Operand:
    """2 ** (n - less) for a whole float n; exponents 1 - bias give 0 and 1 + bias infinity.

    The sum moves n into the low bits of a float, from where one shift makes it an exponent. That
    is cheaper than a conversion to an integer, which must saturate.
    """
    f = FORMATS[n.dtype]
    exponent = bits_of(b, b.add(n, f.whole + (f.bias - less)))
    return b.bitcast(b.shl(exponent, f.mantissa), dtype=n.dtype)


def upper_half(b: Arithmetic, x: Operand) -> Operand:
    """x cut to half of its bits: the product of two such numbers is exact."""
    return b.bitcast(b.and_(bits_of(b, x), FORMATS[x.dtype].upper), dtype=x.dtype)
