"""Elementwise operators of several tensors, casts, and integer arithmetic on shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.dtypes import boolean, i32
from ztorch.interchange.torch_export.calls.own_ops import ztorch_op
from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call

_PAIRS = {"mul": "Mul", "maximum": "Max", "minimum": "Min", "max": "Max", "min": "Min"}
_COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater",
                "ge": "GreaterOrEqual"}
_LOGIC = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
_BITS = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor",
         "__and__": "And", "__or__": "Or", "__xor__": "Xor"}
_BOTH = ("Tensor", "Scalar")


@call("mul.Tensor", "mul.Scalar", "maximum", "minimum", "max.other", "min.other")
def _pair(c: OperatorCall) -> Result:
    (a, b), d = c.promoted("self", "other")
    op = _PAIRS[c.op]
    return c.node({"Mul": "And", "Min": "And", "Max": "Or"}[op] if d is boolean else op, a, b)


@call(*(f"{op}.{overload}" for op in ("add", "sub", "rsub") for overload in _BOTH))
def _sum(c: OperatorCall) -> Result:
    (a, b), d = c.promoted("self", "other")
    if c.op == "rsub":
        a, b = b, a
    alpha = c.get("alpha", 1)
    if alpha != 1:
        b = c.node("Mul", b, c.number(alpha, d))
    if d is boolean:  # PyTorch does not subtract booleans
        return c.node("Or", a, b)
    return c.node("Add" if c.op == "add" else "Sub", a, b)


@call(*(f"div.{overload}" for overload in (*_BOTH, "Tensor_mode", "Scalar_mode")), "floor_divide",
      "floor_divide.Scalar")
def _quotient(c: OperatorCall) -> Result:
    (a, b), d = c.promoted("self", "other")
    mode = "floor" if c.op == "floor_divide" else c.get("rounding_mode")
    if mode is None and not d.is_float:
        a, b = (c.node("Cast", x, to=c.result.dtype.onnx) for x in (a, b))
    if mode == "floor":
        return ztorch_op(c, "floor_divide", a, b)
    y = c.node("Div", a, b)
    if mode is None or d.is_int:
        return y
    return c.node("Mul", c.node("Sign", y), c.node("Floor", c.node("Abs", y)))


@call("atan2")
def _angle(c: OperatorCall) -> Result:
    names, d = c.promoted("self", "other")
    if not d.is_float:
        names = [c.node("Cast", x, to=c.result.dtype.onnx) for x in names]
    return c.nodes("Atan2", names, 1, domain="ztorch")[0]


@call("addcmul", "addcdiv")
def _added_product(c: OperatorCall) -> Result:
    (x, a, b), d = c.promoted("self", "tensor1", "tensor2")
    y = c.node("Mul" if c.op == "addcmul" else "Div", a, b)
    value = c.get("value", 1)
    return c.node("Add", x, y if value == 1 else c.node("Mul", y, c.number(value, d)))


@call("lerp.Scalar", "lerp.Tensor")
def _between(c: OperatorCall) -> Result:
    (x, end, weight), _ = c.promoted("self", "end", "weight")
    return c.node("Add", x, c.node("Mul", weight, c.node("Sub", end, x)))


@call(*(f"remainder.{overload}" for overload in (*_BOTH, "Scalar_Tensor")))
def _remainder(c: OperatorCall) -> Result:
    return ztorch_op(c, "remainder", *c.promoted("self", "other")[0])


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
    (a, b), d = c.promoted("self", "other")
    if c.op == "ne":
        return c.node("Not", c.node("Equal", a, b))
    if d is boolean and c.op != "eq":  # ONNX does not order booleans
        a, b = (c.node("Cast", x, to=i32.onnx) for x in (a, b))
    return c.node(_COMPARISONS[c.op], a, b)


@call(*_LOGIC, "logical_not")
def _logic(c: OperatorCall) -> Result:
    a = c.cast(c.tensor(), boolean)
    return c.node("Not", a) if c.op == "logical_not" else c.node(
        _LOGIC[c.op], a, c.cast(c.tensor("other"), boolean))


@call(*(f"{op}.{overload}" for op in _BITS for overload in _BOTH))
def _bits(c: OperatorCall) -> Result:
    (a, b), d = c.promoted("self", "other")
    return c.node(_BITS[c.op] if d is boolean else f"Bitwise{_BITS[c.op]}", a, b)


@call(*(f"{op}.{overload}" for op in ("__lshift__", "__rshift__") for overload in _BOTH),
      *(f"bitwise_{side}_shift.{overload}" for side in ("left", "right")
        for overload in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")))
def _shift(c: OperatorCall) -> Result:
    (a, places), d = c.promoted("self", "other")
    if not d.is_int:
        c.unsupported(f"a shift of {d.name}")
    is_left = c.op in ("__lshift__", "bitwise_left_shift")
    return c.node("BitShift", a, places, direction="LEFT" if is_left else "RIGHT")


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
    if c.op == "floordiv":  # ONNX's Div truncates
        names[0] = c.node("Sub", names[0], c.node("Mod", *names))
    return c.node(_INTEGERS[c.op], *names)


@call("_operator.neg")
def _negative(c: OperatorCall) -> Result:
    return c.node("Neg", c.get(next(iter(c.spec.inputs))).name)
