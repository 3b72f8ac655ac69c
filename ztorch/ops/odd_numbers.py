"""Functions of single numbers by Keras' names: NaN and infinity, divisors, and the parts of complex
numbers, which there are none of."""

from __future__ import annotations

import math

import numpy as np

from ztorch.dtypes import DType, dtype
from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, as_value, broadcast_together, shape_error
from ztorch.graph.value import Value
from ztorch.ops.control import while_loop
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import widened


@composition(Sample(((3, 4), (4,))))
def fmax(x1: Value | float, x2: Value | float) -> Value:
    """The larger of two numbers; the other one where one is NaN.

    Args:
        x1: Tensor of numbers, or a number.
        x2: Tensor of the same dtype, or a number.

    Returns:
        A tensor of the shape that both broadcast to.
    """
    x1, x2 = broadcast_together(x1, x2)
    if not x1.dtype.is_float:
        return OPS.maximum(x1, x2)
    return OPS.where(OPS.isnan(x1), x2, OPS.where(OPS.isnan(x2), x1, OPS.maximum(x1, x2)))


@composition(Sample(((3, 4), (4,))))
def fmin(x1: Value | float, x2: Value | float) -> Value:
    """The smaller of two numbers; the other one where one is NaN.

    Args:
        x1: Tensor of numbers, or a number.
        x2: Tensor of the same dtype, or a number.

    Returns:
        A tensor of the shape that both broadcast to.
    """
    x1, x2 = broadcast_together(x1, x2)
    if not x1.dtype.is_float:
        return OPS.minimum(x1, x2)
    return OPS.where(OPS.isnan(x1), x2, OPS.where(OPS.isnan(x2), x1, OPS.minimum(x1, x2)))


@composition(Sample(((3, 4),)))
def isposinf(x: Value) -> Value:
    """Whether each number is infinity.

    Args:
        x: Tensor of numbers.

    Returns:
        A bool tensor of the shape of `x`.
    """
    return OPS.equal(as_floats(x)[0], math.inf)


@composition(Sample(((3, 4),)))
def isneginf(x: Value) -> Value:
    """Whether each number is minus infinity.

    Args:
        x: Tensor of numbers.

    Returns:
        A bool tensor of the shape of `x`.
    """
    return OPS.equal(as_floats(x)[0], -math.inf)


@composition(Sample(((3, 4),)))
def real(x: Value) -> Value:
    """The real part; x itself if it is no complex tensor.

    Args:
        x: Tensor of numbers.

    Returns:
        x.
    """
    return x


@composition(Sample(((3, 4),)), aliases=("conjugate",))
def conj(x: Value) -> Value:
    """The conjugate, whose imaginary part has the other sign; x itself if it is no complex tensor.

    Args:
        x: Tensor of numbers.

    Returns:
        x.
    """
    return x


@composition(Sample(((3, 4),)))
def imag(x: Value) -> Value:
    """The imaginary part; 0 if x is no complex tensor.

    Args:
        x: Tensor of numbers.

    Returns:
        Zeros of the shape and dtype of `x`.
    """
    return OPS.zeros_like(x)


@composition(Sample(((3, 4),)))
def isreal(x: Value) -> Value:
    """Whether numbers are real: all are, but in complex tensors.

    Args:
        x: Tensor of numbers.

    Returns:
        A bool tensor of the shape of `x`.
    """
    return OPS.full(x.shape, True, "bool")


@composition(Sample(((3, 4),)))
def angle(x: Value) -> Value:
    """The angle of a number in the complex plane: pi below zero, 0 else.

    Args:
        x: Tensor of numbers.

    Returns:
        A float tensor of the shape of `x`.
    """
    [x] = as_floats(x)
    return OPS.where(x < 0.0, math.pi, OPS.where(OPS.isnan(x), x, OPS.zeros_like(x)))


@composition(Sample((np.array([12, -18, 0]), np.array([8, 12, 5])), dtypes="s"))
def gcd(x1: Value | float, x2: Value | float) -> Value:
    """The greatest common divisor of integers.

    Args:
        x1: Integer tensor, or an integer.
        x2: Integer tensor of the same dtype, or an integer.

    Returns:
        A tensor of the shape that both broadcast to.
    """
    x1, x2 = broadcast_together(x1, x2)
    if not x1.dtype.is_int:
        raise shape_error(f"ops.gcd takes integers, not {x1.dtype}")

    def turn(state: tuple[Value, Value]) -> tuple[Value, Value]:
        a, b = state
        ended = OPS.equal(b, 0)
        rest = OPS.remainder(a, OPS.where(ended, 1, b))
        return OPS.where(ended, a, b), OPS.where(ended, 0, rest)

    # Fibonacci numbers take most turns: 1.44 for each bit.
    divisor, _ = while_loop(lambda state: OPS.any(OPS.not_equal(state[1], 0)), turn,
                            (OPS.abs(x1), OPS.abs(x2)), max_steps=12 * x1.dtype.numpy.itemsize)
    return divisor


@composition(Sample((np.array([12, -18, 0]), np.array([8, 12, 5])), dtypes="s"))
def lcm(x1: Value | float, x2: Value | float) -> Value:
    """The least common multiple of integers.

    Args:
        x1: Integer tensor, or an integer.
        x2: Integer tensor of the same dtype, or an integer.

    Returns:
        A tensor of the shape that both broadcast to.
    """
    x1, x2 = broadcast_together(x1, x2)
    divisor = gcd(x1, x2)
    return OPS.floor_divide(OPS.abs(x1), OPS.maximum(divisor, 1)) * OPS.abs(x2)


@composition(Sample(((3, 4),), {"dtype": "int8"}, low=-300.0, high=300.0))
def saturate_cast(x: Value, dtype: DType | str) -> Value:
    """x in another dtype, with the nearest number that it holds for those that it does not.

    Args:
        x: Tensor of numbers.
        dtype: A `DType` or a name such as `"uint8"`.

    Returns:
        A tensor of the shape of `x`.
    """
    target = _dtype(dtype)
    if target.is_int and (x.dtype.is_float or x.dtype.is_int):
        ends = np.iinfo(target.numpy)
        own = None if x.dtype.is_float else np.iinfo(x.dtype.numpy)
        low = max(int(ends.min), int(own.min)) if own else float(ends.min)
        high = min(int(ends.max), int(own.max)) if own else float(ends.max)
        over = as_value(x) >= high
        return OPS.where(over, OPS.full((), ends.max if own is None else high, target),
                         OPS.cast(OPS.where(over, OPS.zeros_like(x), OPS.maximum(x, low)), target))
    if target.kind == "b" and x.dtype.kind != "b":
        return OPS.logical_not(OPS.less_equal(x, 0))  # as in Keras, NaN is true
    if target.is_float and x.dtype.kind != "b":
        own_largest = x.dtype.largest if x.dtype.is_float else np.iinfo(x.dtype.numpy).max
        if own_largest > target.largest:
            low = 0 if x.dtype.kind == "u" else -target.largest
            x = OPS.clip(widened(x), low, target.largest)  # bfloat16 lacks float16's largest
    return OPS.cast(x, target)


_dtype = dtype  # an argument hides it
