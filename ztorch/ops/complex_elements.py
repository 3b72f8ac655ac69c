"""Functions of single complex numbers: arithmetic, exponents, logarithms, hyperbolic functions.

At infinities, NaN and zeros they follow C's Annex G and the array API. A correction applies only at
these points, so it never replaces a derivative.
"""

from __future__ import annotations

import math

import numpy as np

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ops.complex_values import ComplexValue, all_of, any_of, choose, complex_op

INF = math.inf
_FLAT = 22.0  # above it, tanh is 1 in float64
_STEEP = 40.0  # above it, expm1 equals exp


def size_of(x: Value) -> Value:
    """|x|, with the derivative at 0 that the sign of 0 selects; `abs` has 0 there."""
    return signed(x, x)


def signed(x: Value, sign: Value) -> Value:
    """x, or -x where another number is negative or -0."""
    return OPS.where(OPS.signbit(sign), -x, x)


def finite(x: Value) -> Value:
    """Whether each number is finite."""
    y: Value = OPS.isfinite(x)
    return y


def unbounded(x: Value) -> Value:
    """Whether each number is infinite or NaN."""
    y: Value = OPS.bitwise_not(OPS.isfinite(x))
    return y


def scalar(number: float, like: Value) -> Value:
    """A number in the dtype of a value."""
    y: Value = OPS.full((), number, like.dtype)
    return y


def zero(x: Value) -> Value:
    """Whether each number is 0."""
    y: Value = OPS.equal(x, 0.0)
    return y


def _ones(x: ComplexValue) -> ComplexValue:
    return ComplexValue(OPS.ones_like(x.real), OPS.zeros_like(x.imag))


# -- arithmetic ------------------------------------------------------------------------------------


@complex_op("divide", "div")
def divide(x: ComplexValue, y: ComplexValue) -> ComplexValue:
    """Smith's quotient, which does not overflow unless the result does: both numbers are rotated so
    that the larger part of the divisor comes first."""
    steep = OPS.abs(y.real) < OPS.abs(y.imag)
    x, y = choose(steep, x.turned_back(), x), choose(steep, y.turned_back(), y)
    ratio = y.imag / OPS.where(zero(y.real), 1.0, y.real)
    below = y.real + y.imag * ratio
    return ComplexValue((x.real + x.imag * ratio) / below, (x.imag - x.real * ratio) / below)


@complex_op()
def reciprocal(x: ComplexValue) -> ComplexValue:
    steep = OPS.abs(x.real) < OPS.abs(x.imag)
    x = choose(steep, x.turned_back(), x)
    ratio = x.imag / OPS.where(zero(x.real), 1.0, x.real)
    below = x.real + x.imag * ratio
    return ComplexValue(OPS.where(steep, -ratio, 1.0) / below,
                        OPS.where(steep, -1.0, -ratio) / below)


@complex_op()
def square(x: ComplexValue) -> ComplexValue:
    return ComplexValue((x.real - x.imag) * (x.real + x.imag), x.real * x.imag * 2.0)


@complex_op()
def power(x: ComplexValue, y: ComplexValue) -> ComplexValue:
    is_zero = all_of(zero(x.real), zero(x.imag))
    base = choose(is_zero, _ones(x), x)
    result = exp(y * log(base))
    nothing = OPS.where(y.real > 0.0, 0.0, scalar(math.nan, y.real))
    result = choose(is_zero, ComplexValue(nothing, nothing), result)
    return choose(all_of(zero(y.real), zero(y.imag)), _ones(result), result)


@complex_op()
def integer_power(x: ComplexValue, n: int) -> ComplexValue:
    """x to an integer power, by repeated squaring."""
    y, bits = None, abs(n)
    base = x
    while bits:
        if bits & 1:
            y = base if y is None else y * base
        bits >>= 1
        base = square(base) if bits else base
    y = _ones(x) if y is None else y
    return reciprocal(y) if n < 0 else y


@complex_op("abs")
def size(x: ComplexValue) -> Value:
    y: Value = OPS.hypot(x.real, x.imag)
    return y


@complex_op()
def angle(x: ComplexValue) -> Value:
    y: Value = OPS.atan2(x.imag, x.real)
    return y


@complex_op()
def sign(x: ComplexValue) -> ComplexValue:
    """x divided by its absolute value; 0 at 0. Infinite parts dominate."""
    endless = any_of(OPS.isinf(x.real), OPS.isinf(x.imag))
    unit = ComplexValue(*(OPS.where(endless, OPS.where(OPS.isinf(part), OPS.sign(part), part * 0.0),
                                    part) for part in (x.real, x.imag)))
    largest = OPS.maximum(OPS.abs(unit.real), OPS.abs(unit.imag))
    unit = unit.on_parts("divide", OPS.where(zero(largest), 1.0, largest))
    length = size(unit)
    nothing, length = zero(length), OPS.where(zero(length), 1.0, length)
    return ComplexValue(OPS.where(nothing, 0.0, unit.real / length),
                        OPS.where(nothing, 0.0, unit.imag / length))


# -- exponents and logarithms ----------------------------------------------------------------------


@complex_op()
def exp(x: ComplexValue) -> ComplexValue:
    """The exponent is applied in two halves; each is finite if the result is."""
    a, b = x.real, x.imag
    half = OPS.exp(a * 0.5)
    real, imag = half * OPS.cos(b) * half, half * OPS.sin(b) * half
    lost = unbounded(b)
    real = OPS.where(all_of(lost, OPS.isinf(a)), OPS.where(a > 0.0, scalar(INF, a), 0.0), real)
    imag = OPS.where(all_of(lost, OPS.equal(a, -INF)), 0.0, imag)
    return ComplexValue(real, OPS.where(all_of(zero(b), unbounded(half)), b, imag))


@complex_op()
def exp2(x: ComplexValue) -> ComplexValue:
    result: ComplexValue = exp(x * math.log(2))
    return result


@complex_op()
def expm1(x: ComplexValue) -> ComplexValue:
    exponential, low = exp(x), OPS.minimum(x.real, _STEEP)
    half = OPS.sin(x.imag * 0.5)
    real = OPS.expm1(low) * OPS.cos(x.imag) - half * half * 2.0 + 0.0  # also 0 for -0
    real = OPS.where(x.real > _STEEP, exponential.real, real)
    return ComplexValue(OPS.where(all_of(OPS.equal(x.real, -INF), unbounded(x.imag)), -1.0, real),
                        exponential.imag)


def log_size(a: Value, b: Value) -> Value:
    """log(hypot(a, b)), accurate for all magnitudes and close to 1."""
    a, b = size_of(a), size_of(b)
    swap = a < b
    m, n = OPS.where(swap, b, a), OPS.where(swap, a, b)
    ratio = n / OPS.where(zero(m), 1.0, m)
    far = OPS.log(m) + OPS.log1p(ratio * ratio) * 0.5
    close = all_of(m > 0.7, m < 1.5)
    near = OPS.where(close, m, 1.0)
    beyond = (near - 1.0) * (near + 1.0) + OPS.where(close, n * n, 0.0)  # the square minus 1
    y = OPS.where(close, OPS.log1p(beyond) * 0.5, far)
    return OPS.where(any_of(OPS.isinf(a), OPS.isinf(b)), INF, y)


@complex_op()
def log(x: ComplexValue) -> ComplexValue:
    return ComplexValue(log_size(x.real, x.imag), angle(x))


@complex_op()
def log2(x: ComplexValue) -> ComplexValue:
    return log(x).on_parts("divide", math.log(2))


@complex_op()
def log10(x: ComplexValue) -> ComplexValue:
    return log(x).on_parts("divide", math.log(10))


@complex_op()
def log1p(x: ComplexValue) -> ComplexValue:
    a, b = x.real, x.imag
    small = all_of(OPS.abs(a) < 0.5, OPS.abs(b) < 0.5)
    near = OPS.where(small, a * (a + 2.0) + b * b, 0.0)
    real = OPS.where(small, OPS.log1p(near) * 0.5, log_size(a + 1.0, b))
    return ComplexValue(real, OPS.atan2(b, a + 1.0))


@complex_op()
def sqrt(x: ComplexValue) -> ComplexValue:
    """Kahan's square root of scaled numbers, so that the absolute value neither overflows nor loses
    bits (the scales are powers of 2 with exact roots)."""
    limits = np.finfo(x.real.dtype.numpy)
    up = 2.0 ** (2 * ((limits.nmant + 1) // 2 + 1))
    m = OPS.maximum(OPS.abs(x.real), OPS.abs(x.imag))
    large, small = m > float(limits.max) / 8, m < float(limits.tiny) * up
    scale = OPS.where(large, 1 / 16, OPS.where(small, scalar(up, m), 1.0))
    back = OPS.where(large, 4.0, OPS.where(small, scalar(up**-0.5, m), 1.0))
    a, b = x.real * scale, x.imag * scale
    right = a >= 0.0
    t = OPS.sqrt((OPS.where(right, a, -a) + OPS.hypot(a, b)) * 0.5)
    u = b / (OPS.where(zero(t), 1.0, t) * 2.0)
    real = OPS.where(right, t, signed(u, b)) * back
    imag = OPS.where(right, u, signed(t, b)) * back
    endless = OPS.isinf(b)
    return ComplexValue(OPS.where(endless, INF, real), OPS.where(endless, b, imag))


# -- hyperbolic and trigonometric functions --------------------------------------------------------


def _times(x: Value, y: Value) -> Value:
    """The product, with 0 times infinity or NaN equal to 0."""
    lost = any_of(all_of(zero(x), unbounded(y)), all_of(zero(y), unbounded(x)))
    y_or_x = OPS.where(zero(x), signed(x, y), signed(y, x))
    return OPS.where(lost, y_or_x, x * y)


def _grown(x: Value, a: Value, y: Value) -> Value:
    """The product of sinh(a) or cosh(a) with a sine or cosine. It may be finite where the former is
    not; then exp(|a|) / 2 is applied in halves."""
    huge = all_of(OPS.isinf(x), finite(a))
    half = OPS.exp(OPS.where(huge, OPS.abs(a) * 0.5, 0.0))
    return OPS.where(huge, signed(half * 0.5, x) * y * half, _times(OPS.where(huge, 1.0, x), y))


@complex_op()
def sinh(x: ComplexValue) -> ComplexValue:
    a, b = x.real, x.imag
    real = _grown(OPS.sinh(a), a, OPS.cos(b))
    return ComplexValue(OPS.where(all_of(OPS.isinf(a), unbounded(b)), a, real),
                        _grown(OPS.cosh(a), a, OPS.sin(b)))


@complex_op()
def cosh(x: ComplexValue) -> ComplexValue:
    a, b = x.real, x.imag
    real = _grown(OPS.cosh(a), a, OPS.cos(b))
    return ComplexValue(OPS.where(all_of(OPS.isinf(a), unbounded(b)), INF, real),
                        _grown(OPS.sinh(a), a, OPS.sin(b)))


@complex_op()
def tanh(x: ComplexValue) -> ComplexValue:
    a, b = x.real, x.imag
    flat = OPS.abs(a) > _FLAT
    low = OPS.where(flat, 0.0, a)
    s, c, sine, cosine = OPS.sinh(low), OPS.cosh(low), OPS.sin(b), OPS.cos(b)
    below = s * s + cosine * cosine
    below = OPS.where(flat, 1.0, below)
    waves = sine * cosine
    imag = OPS.where(flat, waves * 4.0 * OPS.exp(OPS.abs(a) * -2.0), waves / below)
    end = OPS.where(unbounded(b), 0.0, signed(OPS.zeros_like(b), b))  # as in the array API
    imag = OPS.where(OPS.isinf(a), end, imag)
    imag = OPS.where(all_of(zero(b), OPS.isnan(a)), b, imag)
    real = OPS.where(flat, signed(OPS.ones_like(a), a), s * c / below)
    real = OPS.where(all_of(finite(a), unbounded(b)), math.nan, real)
    return ComplexValue(OPS.where(all_of(zero(a), unbounded(b)), a, real), imag)


@complex_op()
def sin(x: ComplexValue) -> ComplexValue:
    return sinh(x.turned()).turned_back()


@complex_op()
def cos(x: ComplexValue) -> ComplexValue:
    result: ComplexValue = cosh(x.turned())
    return result


@complex_op()
def tan(x: ComplexValue) -> ComplexValue:
    return tanh(x.turned()).turned_back()
