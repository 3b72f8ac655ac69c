"""exp, log and pow as polynomials.

Coefficients are minimax fits (Remez exchange in 40 digits, the lowest ones rounded first and the
others refitted), relative to the function approximated. Subnormal arguments are taken as they are;
exp, exp2 and pow return zero for results below 2 ** -125.5 (f64: 2 ** -1021.5), so that no
subnormal number, slow on many CPUs, is ever made.
"""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np

from ztorch.dtypes import DType, f32, f64
from ztorch.ir.floating import (
    FORMATS,
    Coefficients,
    bits_of,
    clamp,
    horner,
    power_of_two,
    step,
    upper_half,
    widened,
    zero_kept,
)

if TYPE_CHECKING:
    from ztorch.ir.arithmetic import Arithmetic
    from ztorch.ir.kernel import Operand

LOG2_E = 1.4426950408889634  # log2(e), to float64
# ln 2 in two parts; the first is short, so that its product with an exponent is exact.
LN_2: Coefficients = {f32: (0.693145751953125, 1.428606765330187e-06),
                      f64: (0.6931471805598903, 5.497923018708371e-14)}

# (e^r - 1 - r) / r^2 for |r| < ln(2) / 2, error of e^r - 1: 2^-26.1, 2^-55.0
EXPM1: Coefficients = {
    f32: (0.00138378784, 0.00836731866, 0.0416677408, 0.166665375, 0.49999997),
    f64: (2.5053778921639877e-08, 2.762629918336701e-07, 2.7557408228711757e-06,
          2.4801504649320882e-05, 0.00019841269717583691, 0.001388888893205268,
          0.008333333333390428, 0.04166666666657538, 0.16666666666666588, 0.5000000000000006)}

# (2^r - 1) / r for |r| < 1/2, error of 2^r: 2^-26.2, 2^-57.0
EXP2: Coefficients = {
    f32: (0.000133469322, 0.00133879762, 0.00962541997, 0.0555036627, 0.240225941, 0.693147182),
    f64: (4.518628720512358e-10, 7.0757407311782505e-09, 1.0177658870953693e-07,
          1.3215423754066337e-06, 1.5252734734938764e-05, 0.00015403530480320485,
          0.001333355814556781, 0.00961812910757592, 0.05550410866482458, 0.24022650695910175,
          0.6931471805599453)}

# f32: (log(1 + t) - t + t^2 / 2) / t^3 for 3/4 < 1 + t < 3/2, error of the log 2^-27.5.
# f64: (log(1 + t) / s - 2) / s^2 in s^2, with s = t / (2 + t): a division, but half the terms that
# a polynomial in t needs; error 2^-55.9.
LOG: Coefficients = {
    f32: (-0.0450750776, 0.104630008, -0.131611213, 0.144784078, -0.166473091, 0.199908435,
          -0.250000954, 0.333334506),
    f64: (0.15367315828684938, 0.15250310028653194, 0.181863494799505, 0.22222138677421205,
          0.2857142939291694, 0.399999999961764, 0.6666666666667268)}

# (log2(1 + t) / s - 2 / ln 2) / s^2 in s^2 for sqrt(1/2) < 1 + t < sqrt(2), error of the log
# 2^-35.9, 2^-66.0
LOG2_TAIL: Coefficients = {
    f32: (0.336489528, 0.411927283, 0.577078819, 0.961796701),
    f64: (0.1909143948784706, 0.19119094515352714, 0.22198717981468818, 0.2623076185544622,
          0.32059890346814657, 0.4121985830825015, 0.5770780163556545, 0.9617966939259756)}
# 2 / ln 2: in one number, and in two parts of which the first has half the bits.
TWO_LOG2_E = 2.8853900817779268
TWO_LOG2_E_PARTS: Coefficients = {
    f32: (2.8857421875, -0.0003521057078614831), f64: (2.8853901028633118, -2.1085384952858276e-08)}


def _split_power(b: Arithmetic, x: Operand, rate: float, high: float, low: float
                 ) -> tuple[Operand, Operand]:
    """r and 2 ** (n - 1), for a whole n next to x * rate and r = x - n * (high + low).

    The sum x * rate + addend is used twice: its low bits are n, which a shift makes the exponent of
    the power, and minus the addend it is n as a float. n is clamped as bits, because r must grow
    for larger x, and because a compiler could merge two float additions in a row.
    """
    f = FORMATS[x.dtype]
    added = f.whole + (f.bias - 1)
    largest = ((f.bias + f.mantissa) << f.mantissa) + (1 << (f.mantissa - 1)) + 2 * f.bias
    moved = b.add(x, added) if rate == 1.0 else step(b, x, rate, added)
    bits = b.min(bits_of(b, moved), largest)
    n = b.sub(b.bitcast(bits, dtype=x.dtype), added)
    r = b.sub(x, n) if not low else step(b, n, -low, step(b, n, -high, x))
    return r, b.bitcast(b.shl(bits, f.mantissa), dtype=x.dtype)


def _raised(b: Arithmetic, r: Operand, half: Operand, polynomial: tuple[float, ...]) -> Operand:
    """polynomial(r) * 2 ** n, given half of that power: coefficients are doubled, since 2 ** n may
    be infinite where the product is not. The multiplication alone gives infinity and zero."""
    return b.mul(horner(b, r, [2.0 * c for c in polynomial]), half)


@widened
def exp(b: Arithmetic, x: Operand) -> Operand:
    """e ** x. x is clamped where the power of two becomes zero."""
    x = b.max(x, {f32: -87.4, f64: -708.5}[x.dtype])
    r, half = _split_power(b, x, LOG2_E, *LN_2[x.dtype])
    return _raised(b, r, half, (*EXPM1[x.dtype], 1.0, 1.0))


@widened
def exp2(b: Arithmetic, x: Operand) -> Operand:
    """2 ** x, exact for whole x."""
    x = b.max(x, 1.0 - FORMATS[x.dtype].bias)
    r, half = _split_power(b, x, 1.0, 1.0, 0.0)
    return _raised(b, r, half, (*EXP2[x.dtype], 1.0))


@widened
def expm1(b: Arithmetic, x: Operand) -> Operand:
    """e ** x - 1 as 2^n (e^r - 1) + (2^n - 1), all halved because 2^n may be infinite."""
    bounded = b.max(x, {f32: -18.0, f64: -38.0}[x.dtype])  # -1 below
    r, half = _split_power(b, bounded, LOG2_E, *LN_2[x.dtype])
    fraction = step(b, horner(b, r, EXPM1[x.dtype]), b.mul(r, r), r)
    return zero_kept(b, b.mul(step(b, fraction, half, b.sub(half, 0.5)), 2.0), x)


def _exponent(b: Arithmetic, bits: Operand, least: float, d: DType) -> Operand:
    """k of the positive number m * 2 ** k with m from `least` to twice that, from its bits. With m
    around one, no digits cancel where the logarithm is small."""
    return b.shr(b.sub(bits, int(np.array(least, d.numpy).view(FORMATS[d].ints.numpy))),
                 FORMATS[d].mantissa)


def _parts(b: Arithmetic, x: Operand, least: float) -> tuple[Operand, Operand]:
    """k and m with x = m * 2 ** k for x > 0, subnormal or not."""
    f = FORMATS[x.dtype]
    small = b.lt(x, f.smallest)
    bits = bits_of(b, b.select(small, b.mul(x, 2.0**f.mantissa), x))
    k = _exponent(b, bits, least, x.dtype)
    m = b.bitcast(b.sub(bits, b.shl(k, f.mantissa)), dtype=x.dtype)
    scaled = b.select(small, b.const(f.mantissa, x.dtype), 0.0)
    return b.sub(b.cast(k, dtype=x.dtype), scaled), m


def _log_ends(b: Arithmetic, x: Operand, y: Operand) -> Operand:
    """A part y of the logarithm of x, corrected for infinity, zero, negative numbers and NaN."""
    ends = b.select(b.eq(x, 0.0), b.const(-inf, x.dtype), nan)
    return b.select(b.gt(x, 0.0), b.select(b.lt(x, inf), y, x), ends)


@widened
def exponent(b: Arithmetic, x: Operand) -> Operand:
    """k with x = m * 2 ** k and m from 3/4 to 3/2, and the logarithm where that is not finite: of
    zero, infinity, negative numbers and NaN."""
    return _log_ends(b, x, _parts(b, x, 0.75)[0])


@widened
def significand(b: Arithmetic, x: Operand) -> Operand:
    """m with x = m * 2 ** k and m from 3/4 to 3/2, and 1 of zero and infinity."""
    return _parts(b, x, 0.75)[1]


def _split(b: Arithmetic, x: Operand) -> tuple[Operand, Operand]:
    """k and t with x = (1 + t) * 2 ** k. Where the logarithm is not finite it is k, and t is a
    number that does not change it."""
    return b.raw_exponent(x), b.sub(b.raw_significand(x), 1.0)


def _log_terms(b: Arithmetic, t: Operand) -> tuple[Operand, Operand]:
    """q and c with log(1 + t) = t - q / 2 + c: t itself is exact, the others are smaller."""
    q = b.mul(t, t)
    if t.dtype == f32:
        return q, b.mul(b.mul(horner(b, t, LOG[f32]), t), q)
    s = b.div(t, b.add(t, 2.0))
    z = b.mul(s, s)
    return q, b.mul(s, step(b, horner(b, z, LOG[f64]), z, b.mul(q, 0.5)))


def _natural(b: Arithmetic, k: Operand, t: Operand) -> Operand:
    """log((1 + t) * 2 ** k), the small terms first."""
    high, low = LN_2[t.dtype]
    q, c = _log_terms(b, t)
    rest = step(b, q, -0.5, step(b, k, low, c))
    return step(b, k, high, b.add(t, rest))


@widened
def log(b: Arithmetic, x: Operand) -> Operand:
    """The natural logarithm."""
    return _natural(b, *_split(b, x))


@widened
def log2(b: Arithmetic, x: Operand) -> Operand:
    """The logarithm to base 2, exact for powers of two. The product with log2(e) is taken as
    1 + 0.44 times, so that only the smaller part is rounded."""
    k, t = _split(b, x)
    q, c = _log_terms(b, t)
    rest = step(b, q, -0.5, c)
    y = step(b, t, LOG2_E - 1.0, b.mul(rest, LOG2_E - 1.0))
    return b.add(b.add(k, t), b.add(rest, y))


@widened
def log1p(b: Arithmetic, x: Operand) -> Operand:
    """log(1 + x). 1 + x gives the exponent k alone; t = x 2^-k + (2^-k - 1) has all digits of x.

    Quarters of x and four times 2^-k, as the largest k would make that a subnormal number.
    """
    f = FORMATS[x.dtype]
    y = b.add(x, 1.0)
    k = _exponent(b, bits_of(b, y), 0.75, x.dtype)
    scale = b.bitcast(b.sub(b.const((f.bias + 2) << f.mantissa, f.ints), b.shl(k, f.mantissa)),
                      dtype=x.dtype)
    t = step(b, b.mul(x, 0.25), scale, step(b, scale, 0.25, -1.0))
    return zero_kept(b, _log_ends(b, y, _natural(b, b.cast(k, dtype=x.dtype), t)), x)


def _log2_parts(b: Arithmetic, x: Operand) -> tuple[Operand, Operand]:
    """log2 of x > 0 as a sum of two, the first with half the bits: pow multiplies the error of a
    logarithm by up to 128 (f64: 1024), so one number is not enough.

    log2(1 + t) = s (2 / ln 2 + s^2 ...), s = t / (2 + t), with s and the first term in two parts;
    the series adds at most 1% and is an ordinary number.
    """
    k, m = _parts(b, x, 0.5**0.5)
    t = b.sub(m, 1.0)
    d = b.add(t, 2.0)
    inverse = b.div(1.0, d)
    s_high, d_high = upper_half(b, b.mul(t, inverse)), upper_half(b, d)
    d_low = b.sub(t, b.sub(d_high, 2.0))
    rest = b.sub(b.sub(t, b.mul(s_high, d_high)), b.mul(s_high, d_low))
    s_low = b.mul(rest, inverse)
    s = b.add(s_high, s_low)
    z = b.mul(s, s)
    w_high, w_low = TWO_LOG2_E_PARTS[x.dtype]
    series = b.mul(horner(b, z, LOG2_TAIL[x.dtype]), b.mul(s, z))
    first = b.mul(s_high, w_high)  # exact
    second = step(b, s_high, w_low, step(b, s_low, TWO_LOG2_E, series))
    high = upper_half(b, b.add(k, b.add(first, second)))
    return high, b.add(b.add(b.sub(k, high), first), second)


@widened
def power(b: Arithmetic, x: Operand, y: Operand) -> Operand:
    """x ** y as 2 ** (y log2|x|), with the ends that C gives pow (1 for y = 0 and for x = 1)."""
    f = FORMATS[x.dtype]
    size = b.abs(x)
    high, low = _log2_parts(b, size)
    # Beyond this bound every result but 1 is infinite or zero, within it no product overflows.
    bounded = clamp(b, y, -(2.0 ** (f.mantissa + 17)), 2.0 ** (f.mantissa + 17))
    y_high = upper_half(b, bounded)
    first = b.mul(y_high, high)  # exact
    second = step(b, b.sub(bounded, y_high), high, b.mul(bounded, low))
    exponent = b.add(first, second)
    n = b.round(exponent)
    r = b.add(b.sub(first, n), second)
    z = _raised(b, r, power_of_two(b, n, less=1), (*EXP2[x.dtype], 1.0))
    z = b.select(b.ge(exponent, 1.0 + f.bias), inf, z)
    z = b.select(b.lt(exponent, 1.0 - f.bias), 0.0, z)

    zero = b.eq(size, 0.0)
    extreme = b.select(b.eq(b.lt(y, 0.0), zero), b.const(inf, x.dtype), 0.0)
    z = b.select(b.or_(zero, b.eq(size, inf)), extreme, z)

    half = b.mul(y, 0.5)
    is_integer = b.eq(b.trunc(y), y)
    odd = b.and_(is_integer, b.ne(b.trunc(half), half))
    sign = b.select(odd, b.and_(bits_of(b, x), f.sign), 0)
    z = b.bitcast(b.or_(bits_of(b, z), sign), dtype=x.dtype)

    negative = b.and_(b.lt(x, 0.0), b.gt(x, -inf))
    unknown = b.or_(b.ne(x, x), b.ne(y, y))
    z = b.select(b.or_(unknown, b.and_(negative, b.not_(is_integer))), nan, z)
    return b.select(b.or_(b.eq(x, 1.0), b.eq(y, 0.0)), 1.0, z)
