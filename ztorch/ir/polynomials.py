"""Rewritings of opcodes (`via` functions), for all targets without a native instruction.

They take any number of lanes. Only round, trunc, sqrt and division are assumed beyond arithmetic,
bits and comparisons; no table is looked up. Exact kernels (see `floating.step`) give the same bits
on every machine. `exponentials` says how the coefficients were obtained.

Greatest errors measured, in units of the last place, f32 and f64: log 0.8 0.9, log1p 0.8 0.9,
exp2 1.2 1.1, exp 1.2 1.2, log2 1.4 1.4, rsqrt 1.5 1.5, expm1 1.7 2.2, sin and cos 2.2 2.1 (of
arguments up to 20), pow 4.2 33 (below 1.5 for results from 2^-20 to 2^20), tanh 6.2 2.6, erf 6.1
1.5, atan 2.1 2.1. tanh and erf are worst next to +-1, where 6 units are 3.6e-7. f16 and bf16 are
computed in f32 and rounded. NaN gives NaN, and odd functions keep the sign of zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztorch.dtypes import f32, f64
from ztorch.ir.exponentials import (
    exp,
    exp2,
    expm1,
    exponent,
    log,
    log1p,
    log2,
    power,
    significand,
)
from ztorch.ir.floating import (
    FORMATS,
    Coefficients,
    clamp,
    horner,
    step,
    widened,
    with_sign_of,
)
from ztorch.ir.sines import cos, sin

if TYPE_CHECKING:
    from ztorch.ir.arithmetic import Arithmetic
    from ztorch.ir.kernel import Operand

__all__ = ["atan", "ceil", "cos", "erf", "exp", "exp2", "expm1", "exponent", "floor", "fma",
           "log", "log1p", "log2", "nearest", "power", "rsqrt", "significand", "sin", "tanh",
           "trunc"]

# Quotients in x^2 for f32. Fits of errors 2^-25.5 and 2^-25.6, then a random search among their
# neighbors for the least error with all roundings. Beyond these ranges both exceed one, and are
# clamped.
# tanh(x) / x for |x| < 9.02
TANH_OVER = (1.33190268e-08, 2.05834549e-05, 0.00349403266, 0.133797139, 1.0)
TANH_UNDER = (7.76199954e-07, 0.000328309019, 0.0258710645, 0.467130244, 1.0)
# erf(x) / x for |x| < 3.93
ERF_OVER = (2.04196795e-06, 0.000284808717, 0.00377961947, 0.0527903289, 0.190784171, 1.12837923)
ERF_UNDER = (3.80040437e-05, 0.00116521493, 0.0149974637, 0.114257641, 0.502410889, 1.0)

# f64: erf(x) / x in x^2 for |x| < 1, error 2^-56.0.
ERF_SMALL = (-7.608504621167711e-10, 1.3617033682083868e-08, -1.6184059631145636e-07,
             1.644415830598373e-06, -1.4924466166211936e-05, 0.00012055280518667232,
             -0.0008548325485560322, 0.005223977596743993, -0.026866170641959716,
             0.11283791670936952, -0.37612638903183343, 1.1283791670955126)
# (1 - erf(x)) e^(x^2) for 1 < x < 6, error of erf 2^-59.4, as a quotient.
ERFCX_OVER = (0.008913599951997524, 0.08423773545905844, 0.3732505159084904, 0.9489369274400685,
              1.3901079104322733, 0.999999889099527)
ERFCX_UNDER = (0.015799067886868686, 0.14930356991258512, 0.6695286032839279, 1.7560225037293202,
               2.7907498441593392, 2.518485907496247, 1.0)

# (atan(t) / t - 1) / t^2 in t^2 for |t| < sqrt(2) - 1, error of atan 2^-30.4, 2^-59.4.
ARCTANGENT: Coefficients = {
    f32: (-0.060900524, 0.105991684, -0.14244391, 0.19998528, -0.33333316),
    f64: (-0.017907501482782782, 0.03806467321452599, -0.05039303299250824, 0.058478878103727816,
          -0.06663103709724935, 0.07692060178121746, -0.090908977558294, 0.11111110783438832,
          -0.14285714280198608, 0.19999999999953666, -0.333333333333332)}
# pi / 4 and the error of its rounding.
QUARTER_PI: Coefficients = {f32: (0.785398185253143, -2.1855695e-08),
                            f64: (0.7853981633974483, 3.061616997868383e-17)}


@widened
def atan(b: Arithmetic, x: Operand) -> Operand:
    """The arctangent, by t = x, (x - 1) / (x + 1) or -1 / x, whose arctangent differs by 0, pi / 4
    or pi / 2."""
    size = b.abs(x)
    middle, far = b.gt(size, 0.4142135623730951), b.gt(size, 2.414213562373095)
    over = b.select(far, -1.0, b.select(middle, b.sub(size, 1.0), size))
    under = b.select(far, size, b.select(middle, b.add(size, 1.0), 1.0))
    t = b.div(over, under)
    z = b.mul(t, t)
    rest = step(b, b.mul(t, z), horner(b, z, ARCTANGENT[x.dtype]), t)
    high, low = QUARTER_PI[x.dtype]
    eighths = b.select(far, b.const(2.0, x.dtype), b.select(middle, b.const(1.0, x.dtype), 0.0))
    return with_sign_of(b, b.add(b.mul(eighths, high), step(b, eighths, low, rest)), x)


@widened
def tanh(b: Arithmetic, x: Operand) -> Operand:
    """The hyperbolic tangent: +-1 exactly from where it rounds to that, and never more."""
    if x.dtype == f64:
        e = expm1(b, b.mul(b.min(b.abs(x), 22.0), 2.0))
        return with_sign_of(b, b.div(e, b.add(e, 2.0)), x)
    return _quotient(b, x, 10.0, TANH_OVER, TANH_UNDER)


@widened
def erf(b: Arithmetic, x: Operand) -> Operand:
    """The error function: +-1 exactly from where it rounds to that, and never more.

    1 + erf(x) has no relative accuracy for x far below zero, whatever the error of erf.
    """
    if x.dtype == f32:
        return _quotient(b, x, 4.2, ERF_OVER, ERF_UNDER)
    size = b.min(b.abs(x), 6.0)
    z = b.mul(size, size)
    small = b.mul(size, horner(b, z, ERF_SMALL))
    tail = b.div(horner(b, size, ERFCX_OVER), horner(b, size, ERFCX_UNDER))
    large = b.sub(1.0, b.mul(exp(b, b.neg(z)), tail))
    return with_sign_of(b, b.select(b.lt(size, 1.0), small, large), x)


def _quotient(b: Arithmetic, x: Operand, bound: float, over: tuple[float, ...],
              under: tuple[float, ...]) -> Operand:
    """x over(x^2) / under(x^2), clamped to +-1. Beyond the bound only the factor x grows."""
    z = b.min(b.mul(x, x), bound * bound)
    y = b.div(b.mul(x, horner(b, z, over)), horner(b, z, under))
    return clamp(b, y, -1.0, 1.0)


@widened
def rsqrt(b: Arithmetic, x: Operand) -> Operand:
    """1 / sqrt(x): two roundings."""
    return b.div(1.0, b.sqrt(x))


@widened
def nearest(b: Arithmetic, x: Operand) -> Operand:
    """The nearest whole number, ties to even: the addition rounds to whole numbers where the sum
    has no bits for a fraction. Larger numbers are whole already, and NaN stays NaN."""
    threshold = 2.0 ** FORMATS[x.dtype].mantissa
    size = b.abs(x)
    rounded = b.sub(b.add(size, threshold), threshold)
    return b.select(b.lt(size, threshold), with_sign_of(b, rounded, x), x)


@widened
def trunc(b: Arithmetic, x: Operand) -> Operand:
    """x without its fraction, with the sign of x also where that leaves zero."""
    return with_sign_of(b, floor(b, b.abs(x)), x)


@widened
def floor(b: Arithmetic, x: Operand) -> Operand:
    """The largest whole number that is not above x."""
    rounded = nearest(b, x)
    return b.select(b.gt(rounded, x), b.sub(rounded, 1.0), rounded)


@widened
def ceil(b: Arithmetic, x: Operand) -> Operand:
    """The smallest whole number that is not below x."""
    return b.neg(floor(b, b.neg(x)))


def fma(b: Arithmetic, x: Operand, y: Operand, z: Operand) -> Operand:
    """Two roundings where the machine has no fused one."""
    return b.add(b.mul(x, y), z)
