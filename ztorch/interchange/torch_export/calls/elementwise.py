"""Elementwise operators of one tensor, and copies."""

from __future__ import annotations

import numpy as np

from ztorch.dtypes import boolean, f32
from ztorch.interchange.torch_export.translation import OperatorCall, Result, call

# Operators that ONNX has too, by its names.
_PLAIN = {
    "abs": "Abs", "neg": "Neg", "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp",
    "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "floor": "Floor", "ceil": "Ceil",
    "round": "Round", "sign": "Sign", "sgn": "Sign", "reciprocal": "Reciprocal",
    "hardswish": "HardSwish", "mish": "Mish", "selu": "Selu", "bitwise_not": "BitwiseNot"}


@call(*_PLAIN)
def _plain(c: OperatorCall) -> Result:
    x = c.tensor()
    if c.op == "bitwise_not" and x.dtype is boolean:
        return c.node("Not", x.name)
    floats = not x.dtype.is_float and c.result.dtype.is_float
    return c.node(_PLAIN[c.op], c.cast(x, c.result.dtype) if floats else x.name)


@call("isnan", "isinf", "isfinite")
def _is_number(c: OperatorCall) -> Result:
    x, (nan, inf) = c.tensor(), ("IsNaN", "IsInf")
    name = x.name if x.dtype.is_float else c.cast(x, f32)
    if c.op != "isfinite":
        return c.node(nan if c.op == "isnan" else inf, name)
    return c.node("Not", c.node("Or", c.node(nan, name), c.node(inf, name)))


@call("round.decimals")
def _round(c: OperatorCall) -> Result:
    x, d = c.tensor(), c.tensor().dtype
    decimals = c.get("decimals", 0)
    if not d.is_float:
        return x.name if decimals >= 0 else c.unsupported("integers with decimals below zero")
    scale = c.number(10.0 ** abs(decimals), d)
    bigger, smaller = ("Mul", "Div") if decimals >= 0 else ("Div", "Mul")
    return c.node(smaller, c.node("Round", c.node(bigger, x.name, scale)), scale)


@call("rsqrt")
def _rsqrt(c: OperatorCall) -> Result:
    return c.node("Reciprocal", c.node("Sqrt", c.cast(c.tensor(), c.result.dtype)))


@call("square")
def _square(c: OperatorCall) -> Result:
    return c.node("Mul", c.x(), c.x())


@call("silu")
def _silu(c: OperatorCall) -> Result:
    return c.node("Mul", c.x(), c.node("Sigmoid", c.x()))


@call("gelu")
def _gelu(c: OperatorCall) -> Result:
    return c.node("Gelu", c.x(), approximate=c.get("approximate", "none"))


@call("elu")
def _elu(c: OperatorCall) -> Result:
    if c.get("input_scale", 1) != 1:
        c.unsupported("input_scale other than 1")
    y = c.node("Elu", c.x(), alpha=float(c.get("alpha", 1.0)))
    scale = c.get("scale", 1)
    return y if scale == 1 else c.node("Mul", y, c.number(scale, c.tensor().dtype))


@call("celu")
def _celu(c: OperatorCall) -> Result:
    return c.node("Celu", c.x(), alpha=float(c.get("alpha", 1.0)))


@call("leaky_relu")
def _leaky_relu(c: OperatorCall) -> Result:
    return c.node("LeakyRelu", c.x(), alpha=float(c.get("negative_slope", 0.01)))


@call("hardsigmoid")
def _hard_sigmoid(c: OperatorCall) -> Result:
    return c.node("HardSigmoid", c.x(), alpha=1 / 6, beta=0.5)


@call("softplus")
def _softplus(c: OperatorCall) -> Result:
    """Above the threshold, the argument itself."""
    d, threshold = c.tensor().dtype, c.get("threshold", 20)
    beta = c.number(c.get("beta", 1), d)
    x = c.node("Mul", c.x(), beta)
    y = c.node("Div", c.node("Softplus", x), beta)
    if threshold >= 20:  # both are equal there up to rounding
        return y
    return c.node("Where", c.node("Greater", x, c.number(threshold, d)), c.x(), y)


@call("log_sigmoid")
def _log_sigmoid(c: OperatorCall) -> Result:
    return c.node("Neg", c.node("Softplus", c.node("Neg", c.x())))


@call("prelu")
def _prelu(c: OperatorCall) -> Result:
    x, weight = c.tensor(), c.tensor("weight")
    shape = c.ints(-1, *(1,) * max(x.rank - 2, 0))
    return c.node("PRelu", x.name, c.node("Reshape", weight.name, shape))


@call("hardtanh", "relu6", "clamp", "clamp.Tensor", "clip", "clip.Tensor", "clamp_min",
      "clamp_max", "clamp_min.Tensor", "clamp_max.Tensor")
def _clamp(c: OperatorCall) -> Result:
    x, y = c.tensor(), c.result.dtype
    low, high = {"hardtanh": (-1, 1), "relu6": (0, 6)}.get(c.op, (None, None))
    low = c.get("min_val", c.get("min", low))
    high = c.get("max_val", c.get("max", high))
    return c.node("Clip", c.cast(x, y), *("" if n is None else c.number(n, y)
                                          for n in (low, high)))


@call("threshold")
def _threshold(c: OperatorCall) -> Result:
    x = c.tensor()
    low = c.node("LessOrEqual", x.name, c.number(c.get("threshold"), x.dtype))  # NaN is not
    return c.node("Where", low, c.number(c.get("value"), x.dtype), x.name)


@call("softshrink", "hardshrink")
def _shrink(c: OperatorCall) -> Result:
    x, width = c.x(), c.number(c.get("lambd", 0.5), c.tensor().dtype)
    size = c.node("Abs", x)
    if c.op == "softshrink":
        return c.node("Mul", c.node("Sign", x), c.node("Relu", c.node("Sub", size, width)))
    return c.node("Where", c.node("Greater", size, width), x, c.node("Sub", x, x))


@call("tanhshrink")
def _tanh_shrink(c: OperatorCall) -> Result:
    return c.node("Sub", c.x(), c.node("Tanh", c.x()))


@call("glu")
def _glu(c: OperatorCall) -> Result:
    a, b = c.nodes("Split", [c.x()], 2, axis=c.get("dim", -1), num_outputs=2)
    return c.node("Mul", a, c.node("Sigmoid", b))


@call("trunc", "fix", "frac")
def _truncated(c: OperatorCall) -> Result:
    x = c.x()
    integers = c.node("Mul", c.node("Sign", x), c.node("Floor", c.node("Abs", x)))
    return c.node("Sub", x, integers) if c.op == "frac" else integers


@call("nan_to_num")
def _numbers(c: OperatorCall) -> Result:
    x, d = c.x(), c.tensor().dtype
    if not d.is_float:
        return x
    for name, value, infinite in (("posinf", d.largest, np.inf), ("neginf", -d.largest, -np.inf)):
        same = c.node("Equal", x, c.number(infinite, d))
        x = c.node("Where", same, c.number(c.get(name, value), d), x)
    return c.node("Where", c.node("IsNaN", x), c.number(c.get("nan", 0.0), d), x)


@call(*(f"{op}dropout{end}" for op in ("", "alpha_", "feature_", "feature_alpha_")
        for end in ("", "_")),
      "native_dropout")
def _dropout(c: OperatorCall) -> Result:
    if c.get("train", False):
        c.unsupported("dropout in training; export module.eval()")
    return c.x("self" if "self" in c.spec.inputs else "input")


@call("contiguous", "clone", "alias", "lift_fresh_copy", "lift_fresh", "positive", "alias_copy")
def _same(c: OperatorCall) -> Result:
    return c.x()


@call("detach", "detach_", "detach_copy")
def _detach(c: OperatorCall) -> Result:
    return c.nodes("StopGradient", [c.x()], 1, domain="ztorch")[0]
