"""The inverse trigonometric and hyperbolic functions of complex numbers.

They follow Kahan ("Branch cuts for complex elementary functions", 1987): roots on both sides of
each branch cut, where signed zeros select the side.
"""

from __future__ import annotations

import math

import numpy as np

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ops.complex_elements import log_size, signed, size_of, sqrt, unbounded, zero
from ztorch.ops.complex_values import ComplexValue, all_of, any_of, choose, complex_op


def _large(x: ComplexValue) -> Value:
    """Where 1 is negligible next to the square of a number, which may overflow."""
    limit = math.sqrt(float(np.finfo(x.real.dtype.numpy).max)) / 4
    y: Value = any_of(OPS.abs(x.real) > limit, OPS.abs(x.imag) > limit)
    return y


def _log_twice(x: ComplexValue) -> Value:
    """log(2 |x|), the limit of the inverse hyperbolic functions for large numbers."""
    y: Value = log_size(x.real, x.imag) + math.log(2)
    return y


def _roots(x: ComplexValue) -> tuple[Value, ComplexValue, ComplexValue, ComplexValue]:
    """Where x is large; x, or 0 where it is large; the roots of 1 - x and 1 + x."""
    large = _large(x)
    inner = ComplexValue(OPS.where(large, 0.0, x.real), OPS.where(large, 0.0, x.imag))
    return (large, inner, sqrt(ComplexValue(1.0 - inner.real, -inner.imag)),
            sqrt(ComplexValue(inner.real + 1.0, inner.imag)))


@complex_op()
def acos(x: ComplexValue) -> ComplexValue:
    large, _, minus, plus = _roots(x)
    near = ComplexValue(OPS.atan2(minus.real, plus.real) * 2.0,
                        OPS.asinh(plus.real * minus.imag - plus.imag * minus.real))
    far = ComplexValue(OPS.atan2(size_of(x.imag), x.real), -signed(_log_twice(x), x.imag))
    y = choose(large, far, near)
    return ComplexValue(OPS.where(all_of(zero(x.real), OPS.isnan(x.imag)), math.pi / 2, y.real),
                        y.imag)


@complex_op()
def acosh(x: ComplexValue) -> ComplexValue:
    large = _large(x)
    inner = ComplexValue(OPS.where(large, 0.0, x.real), OPS.where(large, 0.0, x.imag))
    minus, plus = (sqrt(ComplexValue(inner.real + n, inner.imag)) for n in (-1.0, 1.0))
    near = ComplexValue(OPS.asinh(minus.real * plus.real + minus.imag * plus.imag),
                        OPS.atan2(minus.imag, plus.real) * 2.0)
    y = choose(large, ComplexValue(_log_twice(x), OPS.atan2(x.imag, x.real)), near)
    return ComplexValue(y.real, OPS.where(all_of(zero(x.real), OPS.isnan(x.imag)), math.pi / 2,
                                          y.imag))


@complex_op()
def asinh(x: ComplexValue) -> ComplexValue:
    large, _, minus, plus = _roots(x.turned())
    near = ComplexValue(OPS.asinh(minus.real * plus.imag - plus.real * minus.imag),
                        OPS.atan2(x.imag, minus.real * plus.real - minus.imag * plus.imag))
    far = ComplexValue(signed(_log_twice(x), x.real), OPS.atan2(x.imag, size_of(x.real)))
    y = choose(large, far, near)
    return ComplexValue(y.real, OPS.where(all_of(zero(x.imag), OPS.isnan(x.real)), x.imag, y.imag))


@complex_op()
def atanh(x: ComplexValue) -> ComplexValue:
    """Computed in the first quadrant: the function is odd in each part."""
    a, b = size_of(x.real), size_of(x.imag)
    limits = np.finfo(x.real.dtype.numpy)
    large = _large(x)
    u, v = OPS.where(large, 0.0, a), OPS.where(large, 0.0, b)
    real = OPS.log1p(u * 4.0 / ((1.0 - u) * (1.0 - u) + v * v)) * 0.25
    imag = OPS.atan2(v * 2.0, (1.0 - u) * (u + 1.0) - v * v) * 0.5
    tip = all_of(OPS.equal(u, 1.0), v < math.sqrt(float(limits.tiny)), v > 0.0)
    short = OPS.where(tip, v, 1.0)
    real = OPS.where(tip, OPS.log(short) * -0.5 + OPS.log(OPS.hypot(short, 2.0)) * 0.5, real)
    imag = OPS.where(tip, OPS.atan2(OPS.full_like(v, 2.0), -short) * 0.5, imag)
    endless = any_of(OPS.isinf(a), OPS.isinf(b))
    length = OPS.hypot(OPS.where(large, a * 0.5, 1.0), OPS.where(large, b * 0.5, 1.0))
    real = OPS.where(large, a * 0.25 / length / length, real)
    quarter = OPS.where(all_of(OPS.isnan(b), unbounded(a)), b, math.pi / 2)
    imag = OPS.where(large, quarter, imag)
    real = OPS.where(any_of(endless, all_of(zero(a), OPS.isnan(b))), 0.0, real)
    return ComplexValue(signed(real, x.real), signed(imag, x.imag))


@complex_op()
def asin(x: ComplexValue) -> ComplexValue:
    return asinh(x.turned()).turned_back()


@complex_op()
def atan(x: ComplexValue) -> ComplexValue:
    return atanh(x.turned()).turned_back()
