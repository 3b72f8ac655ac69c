"""Operators on complex tensors, which are pairs of floats along a last axis."""

from __future__ import annotations

import math

import numpy as np

from ztorch.dtypes import f32
from ztorch.interchange.torch_export.translation import (
    CALLS,
    CallTensor,
    OperatorCall,
    Result,
    call,
    key_of,
)

# -- parts -----------------------------------------------------------------------------------------


def _parts(c: OperatorCall, x: CallTensor) -> tuple[str, str]:
    """The real and the imaginary part of a tensor."""
    if not x.is_complex:
        d = c.result.dtype if c.result.dtype.is_float else f32
        name = x.name if x.dtype.is_float else c.cast(x, d)
        return name, c.node("Mul", name, c.number(0, x.dtype if x.dtype.is_float else d))
    real, imag = (c.node("Gather", x.name, c.constant(np.int64(k)), axis=-1) for k in (0, 1))
    return real, imag


def _pair(c: OperatorCall, real: str, imag: str) -> str:
    """A complex tensor from its real and its imaginary part."""
    return c.node("Concat", *(c.node("Unsqueeze", part, c.ints(-1)) for part in (real, imag)),
                  axis=-1)


@call("view_as_real", "view_as_complex", "resolve_conj", "resolve_neg", of_complex=True)
def _same(c: OperatorCall) -> Result:
    return c.x()


@call("_to_copy", of_complex=True)
def _cast(c: OperatorCall) -> Result:
    x = c.tensor()
    if not c.result.is_complex:
        return c.cast(CallTensor(_parts(c, x)[0], x.dtype, x.dims), c.result.dtype)
    parts = x if x.is_complex else CallTensor(_pair(c, *_parts(c, x)), x.dtype, x.dims)
    return c.cast(parts, c.result.dtype)


@call("complex", of_complex=True)
def _of_parts(c: OperatorCall) -> Result:
    return _pair(c, c.x("real"), c.x("imag"))


@call("polar", of_complex=True)
def _polar(c: OperatorCall) -> Result:
    size, angle = c.x("abs"), c.x("angle")
    return _pair(c, *(c.node("Mul", size, c.node(op, angle)) for op in ("Cos", "Sin")))


@call("real", "imag", of_complex=True)
def _part(c: OperatorCall) -> Result:
    return _parts(c, c.tensor())[c.op == "imag"]


@call("_conj", "conj_physical", "_conj_physical", "conj", of_complex=True)
def _conjugate(c: OperatorCall) -> Result:
    real, imag = _parts(c, c.tensor())
    return _pair(c, real, c.node("Neg", imag))


@call("abs", of_complex=True)
def _size(c: OperatorCall) -> Result:
    return c.node("ReduceL2", c.x(), c.ints(-1), keepdims=0)


@call("angle", of_complex=True)
def _angle(c: OperatorCall) -> Result:
    real, imag = _parts(c, c.tensor())
    return c.nodes("Atan2", [imag, real], 1, domain="ztorch")[0]


@call("angle")
def _angle_of_real(c: OperatorCall) -> Result:
    x, d = c.cast(c.tensor(), c.result.dtype), c.result.dtype
    zero = c.number(0, d)
    y = c.node("Where", c.node("Less", x, zero), c.number(math.pi, d), zero)
    return c.node("Where", c.node("IsNaN", x), x, y)


@call("mul.Tensor", "mul.Scalar", "div.Tensor", "div.Scalar", of_complex=True)
def _product(c: OperatorCall) -> Result:
    x, y = c.tensor(), c.get("other")
    if isinstance(y, CallTensor) and y.is_complex:
        (a, b), (u, v) = _parts(c, x), _parts(c, y)
        if c.op == "div":  # times the conjugate, divided by the squared magnitude
            square = c.node("ReduceSumSquare", y.name, c.ints(-1), keepdims=0)
            u, v = c.node("Div", u, square), c.node("Neg", c.node("Div", v, square))
        return _pair(c, c.node("Sub", c.node("Mul", a, u), c.node("Mul", b, v)),
                     c.node("Add", c.node("Mul", a, v), c.node("Mul", b, u)))
    op, factor = c.op.capitalize(), (
        c.cast(y, x.dtype) if isinstance(y, CallTensor) else c.number(y, x.dtype))
    return _pair(c, *(c.node(op, part, factor) for part in _parts(c, x)))


@call("matmul", "mm", "bmm", "dot", "mv", of_complex=True)
def _matrices(c: OperatorCall) -> Result:
    """Four real products make a complex one."""
    second = next(name for name in c.spec.inputs if name != "self")
    (a, b), (u, v) = _parts(c, c.tensor()), _parts(c, c.tensor(second))
    return _pair(c, c.node("Sub", c.node("MatMul", a, u), c.node("MatMul", b, v)),
                 c.node("Add", c.node("MatMul", a, v), c.node("MatMul", b, u)))


@call("exp", of_complex=True)
def _exponential(c: OperatorCall) -> Result:
    real, angle = _parts(c, c.tensor())
    size = c.node("Exp", real)
    return _pair(c, *(c.node("Mul", size, c.node(op, angle)) for op in ("Cos", "Sin")))


@call("log", of_complex=True)
def _logarithm(c: OperatorCall) -> Result:
    x = c.tensor()
    size = c.node("Log", c.node("ReduceL2", x.name, c.ints(-1), keepdims=0))
    real, imag = _parts(c, x)
    return _pair(c, size, c.nodes("Atan2", [imag, real], 1, domain="ztorch")[0])


@call("reciprocal", of_complex=True)
def _reciprocal(c: OperatorCall) -> Result:
    x = c.tensor()
    square = c.node("ReduceSumSquare", x.name, c.ints(-1), keepdims=0)
    real, imag = _parts(c, x)
    return _pair(c, c.node("Div", real, square), c.node("Neg", c.node("Div", imag, square)))


@call("eq.Tensor", "ne.Tensor", of_complex=True)
def _same_numbers(c: OperatorCall) -> Result:
    real, imag = (c.node("Equal", a, b) for a, b in zip(
        _parts(c, c.tensor()), _parts(c, c.tensor("other")), strict=True))
    equal = c.node("And", real, imag)
    return equal if c.op == "eq" else c.node("Not", equal)


@call("linalg_vector_norm", of_complex=True)
def _norm(c: OperatorCall) -> Result:
    x = c.tensor()
    size = CallTensor(c.node("ReduceL2", x.name, c.ints(-1), keepdims=0), x.dtype, x.dims)
    return CALLS[key_of(c.spec)](c.with_tensors({x.name: size}))


@call("zeros", "ones", "full", "zeros_like", "ones_like", of_complex=True)
def _filled(c: OperatorCall) -> Result:
    real = CALLS[key_of(c.spec)](c)
    assert isinstance(real, str)
    return _pair(c, real, c.node("Sub", real, real))


@call("add.Tensor", "sub.Tensor", of_complex=True)
def _sum(c: OperatorCall) -> Result:
    x, y, alpha = c.tensor(), c.get("other"), c.get("alpha", 1)
    op, d = c.op.capitalize(), x.dtype
    real, imag = _parts(c, x)
    if not isinstance(y, CallTensor):
        return _pair(c, c.node(op, real, c.number(y * alpha, d)), imag)
    added = _parts(c, y)
    if alpha != 1:
        added = (c.node("Mul", added[0], c.number(alpha, d)),
                 c.node("Mul", added[1], c.number(alpha, d)))
    return _pair(c, c.node(op, real, added[0]), c.node(op, imag, added[1]))


_LINEAR = [
    "neg", "sum", "sum.dim_IntList", "mean", "mean.dim", "view",
    "reshape", "permute", "transpose.int", "unsqueeze", "squeeze.dim", "squeeze.dims",
    "flatten.using_ints", "select.int", "slice.Tensor", "cat", "stack", "roll", "flip",
    "expand", "repeat", "clone", "contiguous", "alias", "detach", "detach_",
    "constant_pad_nd", "pad", "lift_fresh_copy",
    "index_select", "split.Tensor", "unbind.int", "gather", "index.Tensor", "cumsum", "tril",
    "triu", "where.self", "unfold", "diagonal", "trace", "expand_as", "view_as", "narrow",
    "movedim.int", "movedim.intlist", "unflatten.int", "chunk", "tile", "take", "take_along_dim",
    "mT", "t", "swapaxes", "diff"]


@call(*_LINEAR, of_complex=True)
def _each_part(c: OperatorCall) -> Result:
    """Linear operators act on the real and the imaginary parts alike; real tensors among the
    arguments have an imaginary part of 0."""
    if c.op in ("constant_pad_nd", "pad") and c.get("value"):
        c.unsupported("padding of complex numbers with a number other than 0")
    tensors = c.tensors
    split = {x.name: _parts(c, x) for x in tensors if x.is_complex or x.dtype.is_float}
    real, imag = (CALLS[key_of(c.spec)](c.with_tensors({
        x.name: CallTensor(split[x.name][k], x.dtype, x.dims) for x in tensors if x.name in split}))
        for k in (0, 1))
    if isinstance(real, str) and isinstance(imag, str):
        return _pair(c, real, imag)
    return [_pair(c, a, b) for a, b in zip(real, imag, strict=True)]
