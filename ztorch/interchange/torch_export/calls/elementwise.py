"""Operators that compute each element by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import boolean
from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call

# Operators that ONNX has under another name, or with attributes of their own.
_PLAIN = {
    "abs": "Abs", "neg": "Neg", "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp",
    "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "floor": "Floor", "ceil": "Ceil",
    "round": "Round", "sign": "Sign", "reciprocal": "Reciprocal", "hardswish": "HardSwish",
    "mish": "Mish", "selu": "Selu", "isnan": "IsNaN", "isinf": "IsInf", "bitwise_not": "BitwiseNot"}


@call(*_PLAIN)
def _plain(c: OperatorCall) -> Result:
    x = c.tensor()
    if c.op == "bitwise_not" and x.dtype is boolean:
        return c.node("Not", x.name)
    floats = not x.dtype.is_float and c.result.dtype.is_float
    return c.node(_PLAIN[c.op], c.cast(x, c.result.dtype) if floats else x.name)


@call("rsqrt")
def _rsqrt(c: OperatorCall) -> Result:
    return c.node("Reciprocal", c.node("Sqrt", c.x()))


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
        c.unsupported("a scale of its input")
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
    beta = c.number(c.get("beta", 1), c.tensor().dtype)
    return c.node("Div", c.node("Softplus", c.node("Mul", c.x(), beta)), beta)


@call("log_sigmoid")
def _log_sigmoid(c: OperatorCall) -> Result:
    return c.node("Neg", c.node("Softplus", c.node("Neg", c.x())))


@call("prelu")
def _prelu(c: OperatorCall) -> Result:
    x, weight = c.tensor(), c.tensor("weight")
    shape = c.ints(-1, *(1,) * max(x.rank - 2, 0))
    return c.node("PRelu", x.name, c.node("Reshape", weight.name, shape))


@call("hardtanh", "relu6", "clamp", "clamp.Tensor", "clamp_min", "clamp_max")
def _clamp(c: OperatorCall) -> Result:
    x, y = c.tensor(), c.result.dtype
    low, high = {"hardtanh": (-1, 1), "relu6": (0, 6)}.get(c.op, (None, None))
    low = c.get("min_val", c.get("min", low))
    high = c.get("max_val", c.get("max", high))
    return c.node("Clip", c.cast(x, y), *("" if n is None else c.number(n, y)
                                           for n in (low, high)))


@call("log1p")
def _log1p(c: OperatorCall) -> Result:
    return c.node("Log", c.node("Add", c.x(), c.number(1, c.tensor().dtype)))


@call("expm1")
def _expm1(c: OperatorCall) -> Result:
    return c.node("Sub", c.node("Exp", c.x()), c.number(1, c.tensor().dtype))


@call("log2", "log10")
def _log_of_base(c: OperatorCall) -> Result:
    base = 2 if c.op == "log2" else 10
    return c.node("Div", c.node("Log", c.x()), c.number(math.log(base), c.tensor().dtype))


@call("exp2")
def _exp2(c: OperatorCall) -> Result:
    return c.node("Pow", c.number(2, c.tensor().dtype), c.x())


@call("dropout", "alpha_dropout", "feature_dropout", "native_dropout")
def _dropout(c: OperatorCall) -> Result:
    if c.get("train", False):
        c.unsupported("it drops elements; export module.eval()")
    return c.x("self" if "self" in c.spec.inputs else "input")


@call("contiguous", "clone", "alias", "lift_fresh_copy", "lift_fresh")
def _same(c: OperatorCall) -> Result:
    return c.x()


@call("detach", "detach_", "detach_copy")
def _detach(c: OperatorCall) -> Result:
    return c.nodes("StopGradient", [c.x()], 1, domain="ztorch")[0]


# -- of two tensors --------------------------------------------------------------------------------

_PAIRS = {"mul": "Mul", "maximum": "Max", "minimum": "Min"}
_COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater",
                "ge": "GreaterOrEqual"}
_LOGIC = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
_BITS = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor",
         "__and__": "And", "__or__": "Or", "__xor__": "Xor"}
_BOTH = ("Tensor", "Scalar")


@call(*(f"{op}.{overload}" for op in ("mul",) for overload in _BOTH), "maximum", "minimum")
def _pair(c: OperatorCall) -> Result:
    (a, b), _ = c.promoted("self", "other")
    return c.node(_PAIRS[c.op], a, b)


@call(*(f"{op}.{overload}" for op in ("add", "sub", "rsub") for overload in _BOTH))
def _sum(c: OperatorCall) -> Result:
    (a, b), d = c.promoted("self", "other")
    if c.op == "rsub":
        a, b = b, a
    alpha = c.get("alpha", 1)
    if alpha != 1:
        b = c.node("Mul", b, c.number(alpha, d))
    return c.node("Add" if c.op.startswith("add") else "Sub", a, b)


@call(*(f"{op}.{overload}" for op in ("div",) for overload in (
    *_BOTH, "Tensor_mode", "Scalar_mode")), "floor_divide", "floor_divide.Scalar")
def _quotient(c: OperatorCall) -> Result:
    (a, b), d = c.promoted("self", "other")
    mode = "floor" if c.op == "floor_divide" else c.get("rounding_mode")
    if mode is None and not d.is_float:
        a, b = (c.node("Cast", x, to=c.result.dtype.onnx) for x in (a, b))
    if mode == "floor" and d.is_int:
        a = c.node("Sub", a, c.node("Mod", a, b))
    y = c.node("Div", a, b)
    if mode is None or d.is_int:
        return y
    if mode == "floor":
        return c.node("Floor", y)
    return c.node("Mul", c.node("Sign", y), c.node("Floor", c.node("Abs", y)))


@call(*(f"remainder.{overload}" for overload in _BOTH))
def _remainder(c: OperatorCall) -> Result:
    (a, b), d = c.promoted("self", "other")
    if d.is_int:
        return c.node("Mod", a, b)
    return c.node("Sub", a, c.node("Mul", c.node("Floor", c.node("Div", a, b)), b))


@call(*(f"fmod.{overload}" for overload in _BOTH))
def _fmod(c: OperatorCall) -> Result:
    (a, b), _ = c.promoted("self", "other")
    return c.node("Mod", a, b, fmod=1)


@call("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _power(c: OperatorCall) -> Result:
    (a, b), _ = c.promoted("self", "exponent")
    return c.node("Pow", a, b)


@call(*(f"{op}.{overload}" for op in (*_COMPARISONS, "ne") for overload in _BOTH))
def _comparison(c: OperatorCall) -> Result:
    (a, b), _ = c.promoted("self", "other")
    return c.node("Not", c.node("Equal", a, b)) if c.op == "ne" else c.node(
        _COMPARISONS[c.op], a, b)


@call(*_LOGIC, "logical_not")
def _logic(c: OperatorCall) -> Result:
    a = c.cast(c.tensor(), boolean)
    return c.node("Not", a) if c.op == "logical_not" else c.node(
        _LOGIC[c.op], a, c.cast(c.tensor("other"), boolean))


@call(*(f"{op}.{overload}" for op in _BITS for overload in _BOTH))
def _bits(c: OperatorCall) -> Result:
    (a, b), d = c.promoted("self", "other")
    return c.node(_BITS[c.op] if d is boolean else f"Bitwise{_BITS[c.op]}", a, b)


@call("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(c: OperatorCall) -> Result:
    (a, b), _ = c.promoted("self", "other")
    return c.node("Where", c.x("condition"), a, b)


@call("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(c: OperatorCall) -> Result:
    x = c.tensor()
    return c.node("Where", c.x("mask"), c.number(c.get("value"), x.dtype), x.name)


# -- dtypes ----------------------------------------------------------------------------------------


@call("_to_copy", "to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as")
def _cast(c: OperatorCall) -> Result:
    return c.cast(c.tensor(), c.result.dtype)


# -- integers that are computed from shapes --------------------------------------------------------

_INTEGERS = {"add": "Add", "sub": "Sub", "mul": "Mul", "floordiv": "Div", "mod": "Mod"}


@call(*(f"_operator.{op}" for op in _INTEGERS))
def _integers(c: OperatorCall) -> Result:
    values: list[Any] = [c.get(name) for name in c.spec.inputs]
    names = [v.name if isinstance(v, CallTensor) else c.constant(np.int64(v)) for v in values]
    return c.node(_INTEGERS[c.op], *names)


@call("_operator.neg")
def _negative(c: OperatorCall) -> Result:
    return c.node("Neg", c.get(next(iter(c.spec.inputs))).name)


