"""Arithmetic, functions, comparisons and activations: element by element, with broadcasting."""

from __future__ import annotations

from functools import reduce
from typing import Any

from ztorch.dtypes import DType
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.protobuf import DTYPES

# Ops that ztorch has under another name, inputs in the same order.
_SAME = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Neg": "neg", "Abs": "abs",
    "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Erf": "erf", "Tanh": "tanh", "Sin": "sin",
    "Cos": "cos", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sigmoid": "sigmoid",
    "Relu": "relu", "HardSwish": "hard_silu", "Softplus": "softplus", "Softsign": "softsign",
    "Mish": "mish", "Where": "where", "Equal": "equal", "Less": "less",
    "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
    "And": "bitwise_and", "Or": "bitwise_or", "Xor": "bitwise_xor", "Not": "bitwise_not",
    "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "BitwiseNot": "bitwise_not",
}


@node(*_SAME)
def _same(n: Node) -> Result:
    y = getattr(OPS, _SAME[n.op])(*n.values())
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


@node("Dropout", but="only for inference, where it changes nothing")
def _dropout(n: Node) -> Result:
    n.only_first_output()
    if n.has(2) and n.number(2):
        n.unsupported("training_mode=True; export the model for inference")
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
            y = reduce(OPS.mul, [x] * int(abs(exponent)))  # right for negative x as well
            return y if exponent > 0 else 1.0 / y
    if not x.dtype.is_float:
        n.unsupported(f"a power of {x.dtype} with an exponent other than 1 to 8")
    return OPS.power(x, OPS.cast(n.value(1), x.dtype))


@node("Mod")
def _mod(n: Node) -> Result:
    a, b = n.values()
    remainder = OPS.rem(a, b)
    if n.attr("fmod", 0):
        return remainder
    if a.dtype.is_float:
        n.unsupported("fmod=0 is for integers")
    if a.dtype.kind == "u":
        return remainder
    zero = OPS.zeros_like(remainder)  # the result has the sign of the divisor
    apart = OPS.not_equal(OPS.less(remainder, zero), OPS.less(OPS.broadcast_to(
        b, remainder.shape), zero))
    wrong = OPS.bitwise_and(OPS.not_equal(remainder, zero), apart)
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
    return OPS.where(OPS.greater(x, zero), ones, OPS.where(OPS.less(x, zero), -ones, zero))


@node("IsNaN")
def _is_nan(n: Node) -> Result:
    return OPS.isnan(n.value(0))


@node("IsInf")
def _is_inf(n: Node) -> Result:
    x = n.value(0)
    up, down = OPS.equal(x, float("inf")), OPS.equal(x, float("-inf"))
    if n.attr("detect_positive", 1) and n.attr("detect_negative", 1):
        return OPS.bitwise_or(up, down)
    return up if n.attr("detect_positive", 1) else down


@node("Clip")
def _clip(n: Node) -> Result:
    y = n.value(0)
    if n.has(1):
        y = OPS.maximum(y, n.value(1))
    return OPS.minimum(y, n.value(2)) if n.has(2) else y


# -- casts -----------------------------------------------------------------------------------------

def of_number(n: Node, number: int) -> DType:
    """The dtype of that number in the format; every float is the model's."""
    if number not in DTYPES:
        n.unsupported(f"dtype number {number} is none that ztorch computes with")
    target = DTYPES[number]
    return n.context.dtype if target.is_float else target


@node("Cast", but="all floats are the model's dtype")
def _cast(n: Node) -> Result:
    return OPS.cast(n.value(0), of_number(n, n.attr("to")))


@node("CastLike", but="all floats are the model's dtype")
def _cast_like(n: Node) -> Result:
    return OPS.cast(n.value(0), n.value(1).dtype)


# -- activations with parameters -------------------------------------------------------------------


@node("LeakyRelu")
def _leaky_relu(n: Node) -> Result:
    return OPS.leaky_relu(n.value(0), negative_slope=n.attr("alpha", 0.01))


@node("PRelu")
def _prelu(n: Node) -> Result:
    x, slope = n.values()
    return OPS.where(x > 0.0, x, x * slope)


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
    return hard_sigmoid(n.value(0), n.attr("alpha", 0.2), n.attr("beta", 0.5))


def hard_sigmoid(x: Value, alpha: Any, beta: Any) -> Value:
    return OPS.clip(x * alpha + beta, 0.0, 1.0)
