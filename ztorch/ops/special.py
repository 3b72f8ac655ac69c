"""Functions of numbers by Keras' names: error functions, Bessel's, and others such as sinc."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ztorch.dtypes import f64
from ztorch.graph.composition import composition
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, as_value, broadcast_together
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import widened

_ERFC_MIDDLE, _I0_MIDDLE = 3.0, 6.0  # arguments in the middle of the polynomials
_TERMS = {"erfc": (14, 22), "i0": (16, 36)}  # of their polynomials, in float32 and in float64


def _erfc_scaled(x: float) -> float:
    """erfc(x) * exp(x ** 2) * (x + 1), smooth from 0 to infinity."""
    if math.isinf(x):
        return 1.0 / math.sqrt(math.pi)
    if x < 4:
        return math.exp(x * x) * math.erfc(x) * (x + 1)
    fraction = 0.0
    for k in range(80, 0, -1):
        fraction = k / 2 / (x + fraction)
    return (x + 1) / (math.sqrt(math.pi) * (x + fraction))


def _i0_scaled(x: float) -> float:
    """I0(x) * exp(-x) * sqrt(x + 1), smooth from 0 to infinity."""
    if math.isinf(x):
        return 1.0 / math.sqrt(2 * math.pi)
    if x < 500:
        return float(np.i0(x)) * math.exp(-x) * math.sqrt(x + 1)
    total = term = 1.0
    for k in range(1, 12):
        term *= (2 * k - 1) ** 2 / (8 * k * x)
        total += term
    return total * math.sqrt((x + 1) / (2 * math.pi * x))


@functools.cache
def _chebyshev(name: str, terms: int) -> tuple[float, ...]:
    """The coefficients of a function of (x - middle) / (x + middle), which goes from -1 to 1."""
    function: Callable[[float], float]
    function, middle = {"erfc": (_erfc_scaled, _ERFC_MIDDLE), "i0": (_i0_scaled, _I0_MIDDLE)}[name]
    at = np.cos(math.pi * (np.arange(terms) + 0.5) / terms)
    values = np.array([function(middle * (1 + t) / (1 - t)) for t in at])
    waves = np.cos(np.outer(np.arange(terms), math.pi * (np.arange(terms) + 0.5) / terms))
    numbers = 2 / terms * waves @ values
    numbers[0] /= 2
    return tuple(map(float, numbers))


def _smooth(name: str, x: Value, middle: float) -> Value:
    """The polynomial of a function at x, which is 0 or more."""
    t = (x - middle) / (x + middle)
    later = last = OPS.zeros_like(x)
    for number in reversed(_chebyshev(name, _TERMS[name][x.dtype is f64])[1:]):
        later, last = last, t * last * 2.0 - later + number
    return t * last - later + _chebyshev(name, _TERMS[name][x.dtype is f64])[0]


@composition(Sample(((3, 4),), low=-3.0, high=4.0))
def erfc(x: Value) -> Value:
    """`1 - erf(x)`, which keeps its digits where it is small.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape of `x`.
    """
    [x] = as_floats(x)
    size = OPS.abs(OPS.stop_gradient(x))
    tail = OPS.exp(-size * size) * _smooth("erfc", OPS.minimum(size, 30.0), _ERFC_MIDDLE) / (
        size + 1.0)
    [y] = with_gradient([OPS.where(x < 0.0, 2.0 - tail, tail)], [x], [], _erfc_gradient)
    return y


def _erfc_gradient(upstreams: Sequence[Value], args: Sequence[Value],
                   shared: Sequence[Value]) -> list[Value]:
    """That of the formula would pass through the kink of `abs` at 0."""
    [x] = args
    return [upstreams[0] * OPS.exp(-x * x) * (-2.0 / math.sqrt(math.pi))]


@composition(Sample(((3, 4),), low=-0.99, high=0.99))
def erfinv(x: Value) -> Value:
    """The number whose error function is x: infinite at -1 and 1, NaN outside of them.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape of `x`.
    """
    [x] = as_floats(x)
    size = OPS.minimum(OPS.abs(OPS.stop_gradient(x)), 1.0)
    left = 1.0 - size
    inner = OPS.where(left > 0.0, left * (1.0 + size), 1.0)
    logarithm, share = OPS.log(inner), 0.147  # a guess to three digits
    half = logarithm * 0.5 + 2.0 / (math.pi * share)
    y = OPS.sqrt(OPS.maximum(OPS.sqrt(half * half - logarithm * (1.0 / share)) - half, 0.0))
    for _ in range(3):  # Halley's steps
        error = OPS.where(size < 0.5, OPS.erf(y) - size, left - erfc(y))
        step = error * OPS.exp(y * y) * (math.sqrt(math.pi) / 2)
        y = y - step / (1.0 + y * step)
    y = OPS.where(x < 0.0, -y, y)
    y = OPS.where(left > 0.0, y, OPS.sign(x) * math.inf)
    y = OPS.where(OPS.abs(x) > 1.0, math.nan, y)
    [y] = with_gradient([y], [x], [], _erfinv_gradient)
    return y


def _erfinv_gradient(upstreams: Sequence[Value], args: Sequence[Value],
                     shared: Sequence[Value]) -> list[Value]:
    y = erfinv(*args)  # again, so that it has a gradient of its own
    return [upstreams[0] * OPS.exp(y * y) * (math.sqrt(math.pi) / 2)]


@composition(Sample(((3, 4),), low=-9.0, high=9.0))
def i0(x: Value) -> Value:
    """The modified Bessel function of order 0, of which the windows of Kaiser are made.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape of `x`.
    """
    size = OPS.abs(as_floats(x)[0])
    return OPS.exp(size) * _smooth("i0", size, _I0_MIDDLE) / OPS.sqrt(size + 1.0)


@composition(Sample(((3, 4),)))
def cbrt(x: Value) -> Value:
    """The cube root, which keeps the sign.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape of `x`.
    """
    [x] = as_floats(x)
    size = OPS.abs(x)
    root = OPS.exp(OPS.log(OPS.where(size > 0.0, size, 1.0)) * (1.0 / 3.0))
    root = root - (root * root * root - size) / (root * root * 3.0)
    root = OPS.where(OPS.isinf(x), x, OPS.sign(x) * root)
    zero = OPS.equal(x, 0.0)
    steep = OPS.sqrt(OPS.where(zero, x + 0.0, 1.0))  # 0, with an infinite slope; 0.0 for -0.0
    return OPS.where(zero, steep, root)


@composition(Sample(((3, 4),)))
def sinc(x: Value) -> Value:
    """`sin(pi x) / (pi x)`, which is 1 at 0.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape of `x`.
    """
    [number] = as_floats(x)
    x = widened(number)  # the angle has to be exact to a part of a turn
    near = OPS.abs(x) < 0.2  # there, the gradient of the quotient would be a difference of equals
    angle = OPS.where(near, 1.0, x) * math.pi
    square = OPS.square(OPS.where(near, x, 0.0) * math.pi)
    series = OPS.ones_like(x)
    for k in range(7, 0, -1):  # the Taylor series, as nested products
        series = 1.0 - series * square * (1.0 / (2 * k * (2 * k + 1)))
    return OPS.cast(OPS.where(near, series, OPS.sin(angle) / angle), number.dtype)


@composition(Sample(((3, 4),)), aliases=("radians",))
def deg2rad(x: Value) -> Value:
    """Degrees as radians.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape of `x`.
    """
    return as_floats(x)[0] * (math.pi / 180.0)


@composition(Sample(((3, 4),)), aliases=("degrees",))
def rad2deg(x: Value) -> Value:
    """Radians as degrees.

    Args:
        x: Float tensor.

    Returns:
        A tensor of the shape of `x`.
    """
    return as_floats(x)[0] * (180.0 / math.pi)


@composition(Sample(((3, 4), (4,))))
def divide_no_nan(x1: Value | float, x2: Value | float) -> Value:
    """`x1 / x2`, and 0 where `x2` is 0.

    Args:
        x1: Float tensor, or a number.
        x2: Float tensor of the same dtype, or a number.

    Returns:
        A tensor of the shape that both broadcast to.
    """
    x1, x2 = broadcast_together(x1, x2)
    x1, x2 = as_floats(x1, x2)
    zero = OPS.equal(x2, 0.0)
    return OPS.where(zero, 0.0, x1 / OPS.where(zero, 1.0, x2))


@composition(Sample(((3, 4), (4,))))
def logaddexp2(x1: Value | float, x2: Value | float) -> Value:
    """The logarithm, to base 2, of the sum of two powers of 2.

    Args:
        x1: Tensor of numbers, or a number.
        x2: Tensor of the same dtype, or a number.

    Returns:
        A tensor of the shape that both broadcast to; float64 for integers.
    """
    x1, x2 = as_floats(*broadcast_together(x1, x2))
    return OPS.logaddexp(x1 * math.log(2.0), x2 * math.log(2.0)) * (1.0 / math.log(2.0))


@composition(Sample(((3, 4), np.array([1, 0, -3, 5], np.int32))))
def ldexp(x1: Value, x2: Value) -> Value:
    """`x1 * 2 ** x2`.

    Args:
        x1: Float tensor.
        x2: Tensor of exponents.

    Returns:
        A tensor of the shape that both broadcast to.
    """
    [x1] = as_floats(x1)
    y = widened(x1)
    rest = OPS.cast(as_value(x2, y), y.dtype)
    for parts in (3, 2, 1):  # 2 ** x2 may overflow where the product does not
        part = OPS.trunc(rest * (1.0 / parts)) if parts > 1 else rest
        y, rest = y * OPS.exp2(part), rest - part
    return OPS.cast(y, x1.dtype)


@composition(Sample(((3, 4), (4,))))
def heaviside(x1: Value | float, x2: Value | float) -> Value:
    """0 below zero, 1 above it, and `x2` at zero.

    Args:
        x1: Tensor of numbers, or a number.
        x2: Tensor of the same dtype, or a number: the value at zero.

    Returns:
        A tensor of the shape that both broadcast to.
    """
    x1, x2 = broadcast_together(x1, x2)
    step = OPS.where(x1 < 0, OPS.zeros_like(x1), OPS.ones_like(x1))
    step = OPS.where(OPS.equal(x1, 0), x2, step)
    return OPS.where(OPS.isnan(x1), x1, step) if x1.dtype.is_float else step
