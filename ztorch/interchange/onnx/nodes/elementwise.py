"""Arithmetic, functions, comparisons and activations: element by element, with broadcasting."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ztorch.dtypes import f64
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.nodes.casts import numbers_of

# Ops that ztorch has too, by our names; inputs are in the same order.
_SAME = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Neg": "neg", "Abs": "abs",
    "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Erf": "erf", "Tanh": "tanh", "Sin": "sin",
    "Cos": "cos", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sigmoid": "sigmoid",
    "Relu": "relu", "HardSwish": "hard_silu", "Softplus": "softplus", "Softsign": "softsign",
    "Mish": "mish", "Where": "where", "Equal": "equal", "Less": "less",
    "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
    "And": "bitwise_and", "Or": "bitwise_or", "Xor": "bitwise_xor", "Not": "bitwise_not",
    "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "BitwiseNot": "bitwise_not", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan",
    "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh",
}


@node(*_SAME)
def _same(n: Node) -> Result:
    values = n.values()
    if n.opset < 7 and n.attr("broadcast", 0):  # the second input starts at an axis of the first
        a, b = values
        axis = n.attr("axis", a.rank - b.rank)
        values[1] = OPS.reshape(b, (*b.shape, *(1,) * (a.rank - axis - b.rank)))
    y = getattr(OPS, _SAME[n.op])(*values)
    if n.op == "Sigmoid":
        n.context.remember_logits(y, "sigmoid", n.value(0))
    return y


@node("Min", "Max", "Sum", "Mean")
def _several(n: Node) -> Result:
    op = {"Min": OPS.minimum, "Max": OPS.maximum}.get(n.op, OPS.add)
    y = reduce(op, n.values())
    return y * (1.0 / len(n.inputs)) if n.op == "Mean" else y


@node("Identity")
def _identity(n: Node) -> Result:
    return n.input(0)


@node("Pow")
def _pow(n: Node) -> Result:
    x = n.value(0)
    exponent = None if isinstance(n.input(1), Value) or n.array(1).size != 1 else n.number(1)
    if exponent is not None and len(n.shape(1)) <= x.rank:
        if exponent == 0.5 and x.dtype.is_float:
            return OPS.sqrt(x)
        if float(exponent).is_integer() and 1 <= abs(exponent) <= 8 and (
                x.dtype.is_float or exponent > 0):
            y = reduce(OPS.mul, [x] * int(abs(exponent)))  # also right for negative x
            return y if exponent > 0 else 1.0 / y
    power = n.value(1)
    if x.dtype.is_float:
        return OPS.power(x, OPS.cast(power, x.dtype))
    if power.dtype.is_float:
        y = OPS.power(OPS.cast(x, f64), OPS.cast(power, f64))
        near = OPS.round(y)  # so that rounding errors leave whole powers whole
        is_near = OPS.less_equal(OPS.abs(y - near), 1e-12 * OPS.abs(y))
        return OPS.cast(OPS.where(is_near, near, OPS.trunc(y)), x.dtype)
    return _whole_power(x, OPS.cast(power, "int64"))


def _whole_power(x: Value, power: Value) -> Value:
    """Integers to the power of integers, by squaring; results wrap. Negative powers of numbers
    other than 1 and -1 are 0. Powers from 64 on overflow, except of 0, 1 and -1."""
    y, square = OPS.ones_like(x), x
    odd = OPS.bitwise_and(power, 1)
    for bit in range(6):
        has_bit = OPS.not_equal(OPS.bitwise_and(power, 1 << bit), 0)
        y = OPS.where(has_bit, y * square, y)
        square = square * square
    y = OPS.where(OPS.logical_and(OPS.equal(x, 0), OPS.greater(power, 0)), OPS.zeros_like(y), y)
    unit = OPS.where(OPS.equal(x, 1), 1, OPS.where(OPS.equal(x, -1), OPS.where(
        OPS.not_equal(odd, 0), -1, 1), 0)) if x.dtype.kind == "s" else OPS.where(
            OPS.equal(x, 1), x, OPS.zeros_like(x))
    return OPS.where(OPS.less(power, 0), OPS.cast(unit, x.dtype), y)


@node("Mod")
def _mod(n: Node) -> Result:
    a, b = n.values()
    remainder = OPS.rem(a, b)
    if n.attr("fmod", 0):
        return remainder
    if a.dtype.is_float:
        return OPS.remainder(a, b)
    if a.dtype.kind == "u":
        return remainder
    zero = OPS.zeros_like(remainder)  # the result has the sign of the divisor
    signs_differ = OPS.not_equal(OPS.less(remainder, zero), OPS.less(OPS.broadcast_to(
        b, remainder.shape), zero))
    wrong = OPS.bitwise_and(OPS.not_equal(remainder, zero), signs_differ)
    return OPS.where(wrong, remainder + b, remainder)


@node("Reciprocal")
def _reciprocal(n: Node) -> Result:
    return 1.0 / n.value(0)


@node("Sign")
def _sign(n: Node) -> Result:
    x = n.value(0)
    zero, ones = OPS.zeros_like(x), OPS.ones_like(x)
    if x.dtype.kind == "u":
        return OPS.where(OPS.greater(x, zero), ones, zero)
    neither = OPS.where(OPS.isnan(x), x, zero) if x.dtype.is_float else zero
    return OPS.where(OPS.greater(x, zero), ones, OPS.where(OPS.less(x, zero), -ones, neither))


@node("IsNaN")
def _is_nan(n: Node) -> Result:
    return OPS.isnan(numbers_of(n, 0))


@node("IsInf")
def _is_inf(n: Node) -> Result:
    x = numbers_of(n, 0)
    up, down = OPS.equal(x, float("inf")), OPS.equal(x, float("-inf"))
    signs = [part for part, name in ((up, "detect_positive"), (down, "detect_negative"))
             if n.attr(name, 1)]
    return reduce(OPS.bitwise_or, signs) if signs else OPS.zeros(x.shape, "bool")


@node("Clip")
def _clip(n: Node) -> Result:
    y = n.value(0)
    low: Any = n.value(1) if n.has(1) else n.attr("min") if n.opset < 11 else None
    high: Any = n.value(2) if n.has(2) else n.attr("max") if n.opset < 11 else None
    y = y if low is None else OPS.maximum(y, low)
    return y if high is None else OPS.minimum(y, high)


@node("BitShift")
def _bit_shift(n: Node) -> Result:
    x, places = n.values()
    left = n.attr("direction") == "LEFT"
    y = (OPS.shift_left if left else OPS.shift_right)(x, OPS.minimum(places, x.dtype.bits - 1))
    if not left and x.dtype.kind == "s":  # only the sign remains
        return y
    return OPS.where(OPS.less(places, x.dtype.bits), y, OPS.zeros_like(y))


@node("Atan2", domain="ztorch")
def _atan2(n: Node) -> Result:
    """The angle of a point, for programs of torch.export; ONNX has no such op."""
    return OPS.atan2(*n.values())


# -- activations with parameters -------------------------------------------------------------------


@node("LeakyRelu")
def _leaky_relu(n: Node) -> Result:
    return OPS.leaky_relu(n.value(0), negative_slope=n.attr("alpha", 0.01))


@node("PRelu")
def _prelu(n: Node) -> Result:
    x, slope = n.values()
    if n.opset < 7 and slope.rank == 1:
        slope = OPS.reshape(slope, (-1, *(1,) * (x.rank - 2)))
    return OPS.where(OPS.greater(x, 0), x, x * slope)


@node("Elu", "Celu")
def _elu(n: Node) -> Result:
    return getattr(OPS, n.op.lower())(n.value(0), alpha=n.attr("alpha", 1.0))


@node("Selu")
def _selu(n: Node) -> Result:
    alpha, gamma = n.attr("alpha", 1.67326319217681884765625), n.attr("gamma", 1.05070102214813232)
    return OPS.elu(n.value(0), alpha=alpha) * gamma


@node("ThresholdedRelu")
def _thresholded_relu(n: Node) -> Result:
    return OPS.threshold(n.value(0), n.attr("alpha", 1.0), 0.0)


@node("Gelu")
def _gelu(n: Node) -> Result:
    return OPS.gelu(n.value(0), approximate=n.attr("approximate", "none") == "tanh")


@node("HardSigmoid")
def _hard_sigmoid(n: Node) -> Result:
    return hard_sigmoid(n.value(0), n.attr("alpha", float(np.float32(0.2))), n.attr("beta", 0.5))


def hard_sigmoid(x: Value, alpha: Any, beta: Any) -> Value:
    """alpha x + beta, clipped to 0 and 1."""
    return OPS.clip(x * alpha + beta, 0.0, 1.0)


@node("Shrink")
def _shrink(n: Node) -> Result:
    x, limit, bias = n.value(0), n.attr("lambd", 0.5), n.attr("bias", 0.0)
    wide = x if x.dtype.is_float else OPS.cast(x, "float64")
    y = OPS.where(OPS.less(wide, -limit), wide + bias,
                  OPS.where(OPS.greater(wide, limit), wide - bias, 0 * wide))
    return OPS.cast(y, x.dtype)
