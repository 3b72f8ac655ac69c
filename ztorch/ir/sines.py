"""sin and cos as one polynomial of the angle reduced by multiples of pi.

Small angles: Cody-Waite reduction, with pi as a sum of parts. Large ones: Payne-Hanek reduction in
integers. The angle is m * 2^e, and m is multiplied by those bits of 1 / pi that determine the
remainder. Large angles are rare, so a vector without any of them skips this after one test.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, pi
from typing import TYPE_CHECKING, Any

from ztorch.dtypes import f32, f64, u32, u64
from ztorch.ir.floating import (
    FORMATS,
    Coefficients,
    bits_of,
    clamp,
    horner,
    step,
    widened,
    zero_kept,
)

if TYPE_CHECKING:
    from ztorch.ir.kernel import Operand

# (sin(r) / r - 1) / r^2 in r^2 for |r| < pi / 2, error of the sine 2^-27.3, 2^-61.4.
SINE: Coefficients = {
    f32: (2.60608181e-06, -0.000198097739, 0.00833306927, -0.166666597),
    f64: (2.721411007162231e-15, -7.643018766738586e-13, 1.6058940985981346e-10,
          -2.50521069042148e-08, 2.755731921156824e-06, -0.00019841269841212476,
          0.008333333333333207, -0.16666666666666666)}
# pi as a sum. All terms but the last have so few bits (f32: 8, f64: 28) that their products with
# a multiple below 2^16 (f64: 2^25) are exact.
PI: Coefficients = {
    f32: (3.140625, 0.00096893310546875, -1.2814998626708984e-06, 1.984187258941006e-09),
    f64: (3.141592651605606, 1.9841871617964912e-09, -2.435410355594793e-18)}
PI_BITS = {f32: 8, f64: 28}  # bits of the first term of PI
ONE_OVER_PI = 0.3183098861837907  # 1 / pi, to float64

LARGE = {f32: 1e5, f64: 5e7}  # larger angles use Payne-Hanek reduction
LEAD = {f32: 8, f64: 28}  # zeros before 1 / pi, so that the window of the smallest LARGE fits
INVERSE_PI_BITS = 1216  # bits of the fraction in INVERSE_PI
INVERSE_PI = int(
    "517cc1b727220a94fe13abe8fa9a6ee06db14acc9e21c820ff28b1d5ef5de2b0db92371d2126e97003249775"
    "04e8c90e7f0ef58e5894d39f74411afa975da24274ce38135a2fbf209cc8eb1cc1a99cfa4e422fc5defc941d"
    "8ffc4bffef02cc07f79788c5ad05368fb69b3f6793e584dba7a31fb34f2ff516ba93dd63f5f2f8bd9e839cfb"
    "c529497535fdafd88fc6ae842b0198237e3db5d5", 16)


@widened
def sin(b: Any, x: Operand) -> Operand:
    """The sine."""
    n = b.round(b.mul(x, ONE_OVER_PI))
    return zero_kept(b, _sine(b, x, n, multiple=n, quarter=False), x)


@widened
def cos(b: Any, x: Operand) -> Operand:
    """The cosine: as a sine shifted by pi / 2, so that its zeros are accurate."""
    n = b.round(step(b, x, ONE_OVER_PI, -0.5))
    return _sine(b, x, n, multiple=b.add(n, 0.5), quarter=True)


def _sine(b: Any, x: Operand, n: Operand, multiple: Operand, quarter: bool) -> Operand:
    """sin(x - multiple * pi), negated for odd n, or for even n of the cosine. Infinity gives NaN.

    Multiples of pi, not of pi / 2: one longer polynomial is cheaper than two and a select.
    """
    f = FORMATS[x.dtype]
    r = x
    for part in PI[x.dtype]:
        r = step(b, multiple, -part, r)
    sign = b.shl(bits_of(b, b.add(n, f.whole + quarter)), f.ints.bits - 1)
    r, sign = _with_large(b, x, r, sign, quarter)
    z = b.mul(r, r)
    y = clamp(b, step(b, b.mul(r, z), horner(b, z, SINE[x.dtype]), r), -1.0, 1.0)
    return b.bitcast(b.xor(bits_of(b, y), sign), dtype=x.dtype)


def _with_large(b: Any, x: Operand, r: Operand, sign: Operand, quarter: bool) -> tuple[Any, Any]:
    """The reduced angle of x and the sign of its sine, by Payne-Hanek reduction if x is large."""
    f = FORMATS[x.dtype]
    size = b.abs(x)
    large = b.gt(size, LARGE[x.dtype])
    rest, flips = b.var(x.dtype, x.lanes, init=r), b.var(f.ints, x.lanes, init=sign)
    with b.loop(0, 1) as once:
        b.while_(once, large, rare=True)
        large_rest, large_sign = _reduced(b, size, quarter)
        if not quarter:
            large_sign = b.xor(large_sign, b.and_(bits_of(b, x), f.sign))
        number = b.and_(large, b.lt(size, inf))
        b.set(rest, b.select(number, large_rest, r))
        b.set(flips, b.select(number, large_sign, sign))
    return b.get(rest), b.get(flips)


def _reduced(b: Any, size: Operand, quarter: bool) -> tuple[Operand, Operand]:
    """The distance of a large number (plus pi / 2 for the cosine) to the nearest multiple of pi,
    and the sign: set if the distance is negative or the multiple odd, but not both.

    The highest bit of the product has the weight pi. Its two words have an error of one or two
    units, 2^-62 or 2^-126, and no number is closer to a multiple of pi / 2 than 2^-30 or 2^-61.
    """
    d, f = size.dtype, FORMATS[size.dtype]
    word, bits = (u32, 32) if d == f32 else (u64, 64)
    stored = b.bitcast(size, dtype=word)
    m = b.or_(b.and_(stored, (1 << f.mantissa) - 1), 1 << f.mantissa)
    at = b.add(b.shr(stored, f.mantissa), LEAD[d] - 1 - f.bias - f.mantissa)
    first, second, third = _window(b, at, LEAD[d])
    low = b.mul(m, second)
    lower = b.add(low, b.mulhi(m, third))
    carry = b.select(b.lt(lower, low), b.const(1, word), 0)
    upper = b.add(b.add(b.mul(m, first), b.mulhi(m, second)), carry)
    if quarter:
        upper = b.add(upper, 1 << (bits - 2))
    half = b.shl(upper, 1)  # its sign: whether the next multiple is nearer
    odd = b.xor(upper, half)
    below = b.shr(b.bitcast(half, dtype=f.ints), bits - 1)  # 0 or -1
    mask = b.bitcast(below, dtype=word)
    near = b.xor(b.or_(half, b.shr(lower, bits - 1)), mask)
    rest = b.xor(b.shl(lower, 1), mask)
    sign = b.and_(b.xor(b.bitcast(odd, dtype=f.ints), below), f.sign)
    # A sum, whose first term has so few bits that its product with the first term of pi is exact.
    cut = bits - 2 - f.mantissa + PI_BITS[d]
    high = _scaled(b, b.and_(near, -1 << cut), d, -bits)
    middle = _scaled(b, b.and_(near, (1 << cut) - 1), d, -bits)
    last = _scaled(b, b.shr(rest, bits - 1 - f.mantissa), d, -bits - 1 - f.mantissa)
    first_part, *parts = PI[d]
    over = b.mul(b.add(middle, last), pi)
    return step(b, high, first_part, step(b, high, sum(parts), over)), sign


def _scaled(b: Any, integer: Operand, d: Any, exponent: int) -> Operand:
    """A non-negative integer times a power of two."""
    ints = FORMATS[d].ints
    return b.mul(b.cast(b.bitcast(integer, dtype=ints), dtype=d), 2.0**exponent)


def _window(b: Any, at: Operand, lead: int) -> tuple[Operand, Operand, Operand]:
    """Three words of 1 / pi with `lead` zeros before it, beginning at bit `at`. A binary search by
    selects instead of a table: each bit of the word index selects half of the remaining words."""
    word, bits = at.dtype, at.dtype.bits
    shift, number = b.and_(at, bits - 1), b.shr(at, bits.bit_length() - 1)
    halves = (1, 2) if bits == 32 else (1, 2, 4, 8)
    count = sum(halves) + 4
    padded = INVERSE_PI >> (INVERSE_PI_BITS + lead - bits * count)
    words = [b.const(padded >> (bits * k) & ((1 << bits) - 1), word)
             for k in reversed(range(count))]
    for half in reversed(halves):
        later = b.ne(b.and_(number, half), 0)
        words = [b.select(later, words[k + half], words[k]) for k in range(len(words) - half)]
    back = b.sub(bits - 1, shift)
    joined = [b.or_(b.shl(x, shift), b.shr(b.shr(y, 1), back))
              for x, y in pairwise(words)]
    return joined[0], joined[1], joined[2]
