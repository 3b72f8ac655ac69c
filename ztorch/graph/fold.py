"""Constant folding, and algebraic simplifications that are exact in floating point.

Exact means the same bits, also for -0.0, infinities and NaN (any NaN counts as any other). So
`x * 1`, `x / 1`, `x - 0` and `x + -0.0` become x. But `x + 0.0` stays, since it turns -0.0
into 0.0, and so do `x * 0` and `x - x`. Nothing is reassociated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant
from ztorch.graph.rewrite import filled, is_number, rewrite
from ztorch.graph.value import Graph, Value

LIMIT = 64 * 1024  # bytes of a folded constant: larger ones cost more to store than to compute

_WHOLE = ("round", "floor", "ceil", "trunc")  # opcodes that leave integers unchanged


def fold(graph: Graph) -> Graph:
    """The graph with constants folded and exact simplifications applied.

    >>> from ztorch.graph.op import leaf
    >>> from ztorch.graph.value import show
    >>> x = leaf("input", "x", (2,), "float32")
    >>> print(show(fold(Graph({"y": x * (OPS.exp(OPS.full((2,), 0.0)) + 2.0)}))))
    v0  input x           float32[2]
    v1  full(3.0)         float32[2]
    v2  mul v0 v1         float32[2]
    y = v2
    """
    return rewrite(graph, _folded)


def _folded(v: Value) -> Value | None:
    constant = _constant(v)
    return constant if constant is not None else _algebra(v)


# -- constants -------------------------------------------------------------------------------------


def _known(v: Value) -> bool:
    return v.op.name in ("full", "iota") or v.attrs.get("role") == "constant"


def _constant(v: Value) -> Value | None:
    if not v.args or v.op.kind in ("loop", "threads") or not all(_known(a) for a in v.args):
        return None
    if all(filled(a) for a in v.args):
        if v.op.movement:
            return OPS.full(v.shape, v.args[0].attrs["value"], v.dtype)
        if v.op.kind == "map" and v.op.opcode:  # elementwise: all elements are equal
            args = tuple(OPS.full((), a.attrs["value"], a.dtype) for a in v.args)
            [element] = evaluate([Value(v.op, args, v.attrs, (), v.dtype)], {})
            return OPS.full(v.shape, element.item(), v.dtype)
    if v.op.movement and v.size > v.args[0].size:
        return None  # repeating elements is free when they are read, but not when stored
    if v.size == 0 or max(v.nbytes, *(a.nbytes for a in v.args)) > LIMIT:
        return None
    [data] = evaluate([v], {})
    bits = np.asarray(data, order="C").tobytes()
    if bits == bits[:data.itemsize] * data.size:
        return OPS.full(v.shape, data.flat[0].item(), v.dtype)
    return constant(data, v.dtype)


# -- algebra ---------------------------------------------------------------------------------------


def _algebra(v: Value) -> Value | None:
    if v.op.kind != "map" or not v.op.opcode:
        return None
    if len(v.args) == 1:
        return _unary(v, v.op.opcode, v.args[0])
    if len(v.args) == 2:
        return _binary(v.op.opcode, *v.args)
    return _choice(*v.args) if v.op.opcode == "select" else None


def _unary(v: Value, opcode: str, a: Value) -> Value | None:
    inner = a.op.opcode
    if opcode in ("neg", "not") and inner == opcode:
        return a.args[0]
    if opcode == "abs" and inner == "neg":
        return OPS.abs(a.args[0])
    if (opcode == "abs" and inner == "abs") or (opcode in _WHOLE and inner in _WHOLE):
        return a
    if opcode == "cast":
        if a.dtype == v.dtype:
            return a
        if inner == "cast" and _skips(a.args[0].dtype, a.dtype, v.dtype):
            return OPS.cast(a.args[0], v.dtype)
    return None


def _binary(opcode: str, a: Value, b: Value) -> Value | None:
    if opcode in ("mul", "add", "or", "xor") and is_number(a, _neutral(opcode, a.dtype)):
        return b
    if opcode in ("mul", "add", "or", "xor", "div", "sub", "shl", "shr", "pow") and is_number(
            b, _neutral(opcode, b.dtype)):
        return a
    if opcode in ("min", "max", "and", "or") and a is b:
        return a
    minus_a, minus_b = a.op.opcode == "neg", b.op.opcode == "neg"
    if opcode == "add" and minus_b:
        return OPS.sub(a, b.args[0])
    if opcode == "add" and minus_a:
        return OPS.sub(b, a.args[0])
    if opcode == "sub" and minus_b:
        return OPS.add(a, b.args[0])
    # Of integers, the smallest is its own negative: -a / -b may differ from a / b.
    if minus_a and minus_b and (opcode == "mul" or (opcode == "div" and a.dtype.is_float)):
        return getattr(OPS, opcode)(a.args[0], b.args[0])
    return None


def _choice(c: Value, a: Value, b: Value) -> Value | None:
    if filled(c):
        return a if c.attrs["value"] else b
    if a is b:
        return a
    return OPS.where(c.args[0], b, a) if c.op.opcode == "not" else None


def _neutral(opcode: str, d: DType) -> Any:
    """The neutral right operand of an opcode."""
    if opcode in ("mul", "div", "pow"):
        return 1
    return -0.0 if opcode == "add" and d.is_float else 0


def _skips(source: DType, middle: DType, last: DType) -> bool:
    """Whether a cast from `source` to `last` gives the same as one by way of `middle`: that holds
    every number of `source`, and an integer that becomes an integer stays one. By way of a float it
    would be clipped to the range of `last`, where integers wrap around."""
    by_float = source.is_int and middle.is_float and last.is_int
    return _holds(middle, source) and (not by_float or _holds(last, source))


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether `wide` represents every number of `narrow`."""
    if narrow.kind == "b" or wide == narrow:
        return True
    if wide.kind == "f":
        if narrow.kind == "f":
            return wide.bits > narrow.bits
        return wide.significand >= narrow.bits
    signs = narrow.kind == wide.kind or (narrow.kind, wide.kind) == ("u", "s")
    return narrow.is_int and signs and wide.bits > narrow.bits
