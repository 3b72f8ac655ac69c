"""Writers of ops that compute element by element, as one node or a few."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ztorch.graph.value import Value
from ztorch.interchange.onnx.selection import primitive
from ztorch.interchange.onnx.writer import SMALL, Writer

_DIRECT = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "abs": "Abs",
    "minimum": "Min", "maximum": "Max", "round": "Round", "floor": "Floor", "ceil": "Ceil",
    "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "tanh": "Tanh", "erf": "Erf", "sin": "Sin",
    "cos": "Cos", "power": "Pow", "less": "Less", "less_equal": "LessOrEqual",
    "greater": "Greater", "greater_equal": "GreaterOrEqual", "equal": "Equal", "where": "Where",
    "sigmoid": "Sigmoid", "isnan": "IsNaN", "isinf": "IsInf", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh",
}
_BITS = {"bitwise_and": ("And", "BitwiseAnd"), "bitwise_or": ("Or", "BitwiseOr"),
         "bitwise_xor": ("Xor", "BitwiseXor"), "bitwise_not": ("Not", "BitwiseNot")}
Names = list[str]  # of tensors in the file


def _truncated_remainder(w: Writer, v: Value, names: Names) -> tuple[str, str]:
    """The remainder with the sign of the dividend, and whether the one with the sign of the divisor
    differs."""
    rest, zero = w.node("Mod", names, fmod=1), w.scalar(0, v)
    signs_differ = w.node("Xor", [w.node("Less", [x, zero]) for x in (rest, names[1])])
    return rest, w.node("And", [signs_differ, w.node("Not", [w.node("Equal", [rest, zero])])])


def _remainder(w: Writer, v: Value, names: Names) -> str:
    if not v.dtype.is_float:
        return w.node("Mod", names)
    rest, differs = _truncated_remainder(w, v, names)
    return w.node("Where", [differs, w.node("Add", [rest, names[1]]), rest])


def _floor_divide(w: Writer, v: Value, names: Names) -> str:
    if not v.dtype.is_float:
        return w.node("Div", [w.node("Sub", [names[0], w.node("Mod", names)]), names[1]])
    rest, differs = _truncated_remainder(w, v, names)  # a rounded quotient may be one too large
    quotient = w.node("Round", [w.node("Div", [w.node("Sub", [names[0], rest]), names[1]])])
    y = w.node("Where", [differs, w.node("Sub", [quotient, w.scalar(1, v)]), quotient])
    by_zero = w.node("Equal", [names[1], w.scalar(0, v)])
    return w.node("Where", [by_zero, w.node("Div", names), y])


def _hypot(w: Writer, v: Value, names: Names) -> str:
    """Squares a ratio, since the squares of large numbers overflow."""
    sizes = [w.node("Abs", [x]) for x in names]
    high, one = w.node("Max", sizes), w.scalar(1, v)
    ratio = w.node("Div", [w.node("Min", sizes), high])
    y = w.node("Mul", [high, w.node("Sqrt", [w.node("Add", [w.node("Mul", [ratio, ratio]), one])])])
    has_no_ratio = w.node("Or", [w.node("IsInf", [high]), w.node("Equal", [high, w.scalar(0, v)])])
    return w.node("Where", [has_no_ratio, high, y])


def _expm1(w: Writer, v: Value, names: Names) -> str:
    """tanh(x / 2) (exp(x) + 1), which is accurate near zero."""
    half = w.node("Tanh", [w.node("Mul", [*names, w.scalar(0.5, v)])])
    return w.node("Mul", [half, w.node("Add", [w.node("Exp", names), w.scalar(1, v)])])


def _log1p(w: Writer, v: Value, names: Names) -> str:
    """log(u) x / (u - 1) with u = 1 + x, where the rounding error of u cancels."""
    [x], one = names, w.scalar(1, v)
    u = w.node("Add", [x, one])
    ratio = w.node("Div", [x, w.node("Sub", [u, one])])
    ratio = w.node("Where", [w.node("Equal", [u, x]), one, ratio])  # also of infinity
    y = w.node("Mul", [w.node("Log", [u]), ratio])
    return w.node("Where", [w.node("Equal", [u, one]), x, y])


def _logaddexp(w: Writer, v: Value, names: Names) -> str:
    gap = w.node("Neg", [w.node("Abs", [w.node("Sub", names)])])
    gap = w.node("Where", [w.node("Equal", names), w.scalar(0, v), gap])  # of equal infinities
    return w.node("Add", [w.node("Max", names), _log1p(w, v, [w.node("Exp", [gap])])])


def _rounded_to(w: Writer, v: Value, names: Names) -> str:
    narrow = w.node("Cast", names, to=v.attrs["dtype"].onnx)
    return w.node("Cast", [narrow], to=v.dtype.onnx)


# Ops that take several nodes.
_COMPOSED: dict[str, Callable[[Writer, Value, Names], str]] = {
    "cast": lambda w, v, x: w.node("Cast", x, to=v.dtype.onnx),
    "rounded_to": _rounded_to,
    "isfinite": lambda w, v, x: w.node(
        "Not", [w.node("Or", [w.node("IsInf", x), w.node("IsNaN", x)])]),
    "not_equal": lambda w, v, x: w.node("Not", [w.node("Equal", x)]),
    "rsqrt": lambda w, v, x: w.node("Reciprocal", [w.node("Sqrt", x)]),
    "rem": lambda w, v, x: w.node("Mod", x, fmod=1),
    "exp2": lambda w, v, x: w.node("Pow", [w.scalar(2, v.args[0]), *x]),
    "log2": lambda w, v, x: w.node(
        "Mul", [w.node("Log", x), w.scalar(1 / math.log(2), v.args[0])]),
    "trunc": lambda w, v, x: w.node(
        "Mul", [w.node("Sign", x), w.node("Floor", [w.node("Abs", x)])]),
    "fma": lambda w, v, x: w.node("Add", [w.node("Mul", x[:2]), x[2]]),
    "remainder": _remainder, "floor_divide": _floor_divide, "hypot": _hypot,
    "logaddexp": _logaddexp, "expm1": _expm1, "log1p": _log1p,
}


@primitive(*_DIRECT, *_BITS, *_COMPOSED)
def _elementwise(w: Writer, v: Value) -> None:
    numbers = [w.numbers_of(a) for a in v.args]
    if all(x is not None for x in numbers):
        with np.errstate(all="ignore"):
            result = np.asarray(v.op.numpy(*numbers, **v.attrs))
        if result.size <= max(SMALL, *(x.size for x in numbers if x is not None)):
            w.set_numbers(v, result)
            return
    order = w.order_of(*v.args)
    parts = [w.tensor(a, order) for a in v.args]
    shape = np.broadcast_shapes(*(p.shape for p in parts))
    w.record(v, _nodes_of(w, v, [p.name for p in parts]), order, shape)


def _nodes_of(w: Writer, v: Value, names: Names) -> str:
    """The nodes of an elementwise op on tensors of these names."""
    op, d = v.op.name, v.args[-1].dtype
    if op == "where" and d.kind == "b":  # ONNX Runtime has no Where of booleans
        condition, yes, no = names
        return w.node("Or", [w.node("And", [condition, yes]),
                             w.node("And", [w.node("Not", [condition]), no])])
    if op in _COMPOSED:
        return _COMPOSED[op](w, v, names)
    return w.node(_BITS[op][d.kind != "b"] if op in _BITS else _DIRECT[op], names)
