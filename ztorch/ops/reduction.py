"""Reductions along axes, and what is made of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType
from ztorch.graph.op import OPS, Op, Sample, normal_axes, op, shape_error
from ztorch.graph.value import Value

Axes = int | tuple[int, ...] | None


def _infer(x: Value, axes: tuple[int, ...]) -> tuple[tuple[int, ...], DType]:
    if x.dtype.kind == "b":
        raise shape_error("a bool tensor cannot be reduced", fix="cast it to a number first")
    return tuple(n for k, n in enumerate(x.shape) if k not in axes), x.dtype


def _spread(o: Any, g: Value, x: Value, axes: tuple[int, ...]) -> Value:
    kept = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    return o.broadcast_to(o.reshape(g, kept), x.shape)


def _extreme_grad(o: Any, g: Value, y: Value, x: Value, axes: tuple[int, ...]) -> tuple:
    """Shared equally among the elements that reach the extreme."""
    hit = o.cast(o.equal(x, _spread(o, y, x, axes)), x.dtype)
    share = g / o.sum(hit, axis=axes)
    return (hit * _spread(o, share, x, axes),)


def _prod_grad(o: Any, g: Value, y: Value, x: Value, axes: tuple[int, ...]) -> tuple:
    """The product of all others, right also where an element is zero."""
    zero = o.equal(x, o.zeros_like(x))
    others = o.prod(o.where(zero, o.ones_like(x), x), axis=axes)
    zeros = o.sum(o.cast(zero, x.dtype), axis=axes)
    one_zero, none = o.equal(zeros, o.ones_like(zeros)), o.equal(zeros, o.zeros_like(zeros))
    lone = _spread(o, g * o.where(one_zero, others, o.zeros_like(others)), x, axes)
    plain = _spread(o, g * o.where(none, y, o.zeros_like(y)), x, axes)
    return (o.where(zero, lone, plain / o.where(zero, o.ones_like(x), x)),)


def _reduce_op(name: str, opcode: str, numpy: Any, grad: Any) -> Op:
    return Op(name, "reduce", _infer, lambda x, axes: numpy(x, axis=axes), grad, opcode=opcode)


_OPS = {
    "sum": _reduce_op("sum", "add", np.sum, lambda o, g, y, x, axes: (_spread(o, g, x, axes),)),
    "prod": _reduce_op("prod", "mul", np.prod, _prod_grad),
    "max": _reduce_op("max", "max", np.max, _extreme_grad),
    "min": _reduce_op("min", "min", np.min, _extreme_grad),
}
_SAMPLES = (Sample(((3, 5),), {"axis": 1}), Sample(((4, 3, 5),), {"axis": (0, 2)}),
            Sample(((3, 17),), {"axis": 0, "keepdims": True}), Sample(((3, 5),)))


def _reduce(which: str, x: Value, axis: Axes, keepdims: bool) -> Value:
    axes = normal_axes(axis, x.rank)
    if math.prod(x.shape[a] for a in axes) == 0 and which in ("max", "min"):
        raise shape_error(f"ops.{which} of no elements is undefined; got", x.shape)
    y = _OPS[which](x, axes=axes) if axes else x
    kept = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    return OPS.reshape(y, kept) if keepdims else y


@op(*_SAMPLES, name="sum", primitive=_OPS["sum"], numpy=np.sum)
def sum_(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The sum along axes."""
    return _reduce("sum", x, axis, keepdims)


@op(*_SAMPLES, primitive=_OPS["prod"], numpy=np.prod)
def prod(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The product along axes."""
    return _reduce("prod", x, axis, keepdims)


@op(*_SAMPLES, name="max", primitive=_OPS["max"], numpy=np.max)
def max_(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The largest along axes; NaN if one is NaN."""
    return _reduce("max", x, axis, keepdims)


@op(*_SAMPLES, name="min", primitive=_OPS["min"], numpy=np.min)
def min_(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The smallest along axes; NaN if one is NaN."""
    return _reduce("min", x, axis, keepdims)


@op(*_SAMPLES, numpy=np.mean)
def mean(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The mean along axes."""
    count = math.prod(x.shape[a] for a in normal_axes(axis, x.rank))
    return sum_(x, axis, keepdims) * (1.0 / max(count, 1))


@op(*_SAMPLES, numpy=np.var)
def var(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The variance along axes, by two passes: exact for large means."""
    centred = x - mean(x, axis, True)
    return mean(centred * centred, axis, keepdims)


def _arg_extreme(x: Value, axis: int, extreme: Any) -> Value:
    [a] = normal_axes(axis, x.rank)
    n = x.shape[a]
    position = OPS.iota(x.shape, a, "int32")
    hit = OPS.equal(x, OPS.broadcast_to(extreme(x, a, True), x.shape))
    first = min_(OPS.where(hit, position, OPS.full(x.shape, n, "int32")), a)
    return OPS.minimum(first, n - 1)  # rows of NaN have no hit


@op(Sample(((3, 5),), {"axis": 1}), Sample(((5, 4),), {"axis": 0}),
    numpy=lambda x, axis=-1: np.argmax(x, axis))
def argmax(x: Value, axis: int = -1) -> Value:
    """The first position of the largest element along an axis, as int32."""
    return _arg_extreme(x, axis, max_)


@op(Sample(((3, 5),), {"axis": 1}), numpy=lambda x, axis=-1: np.argmin(x, axis))
def argmin(x: Value, axis: int = -1) -> Value:
    """The first position of the smallest element along an axis, as int32."""
    return _arg_extreme(x, axis, min_)


_BOOLS = (Sample(((3, 5),), {"axis": 1}, dtypes="b"), Sample(((3, 1),), dtypes="b"))


@op(*_BOOLS, name="all", numpy=np.all)
def all_(x: Value, axis: Axes = None) -> Value:
    """Whether every element along axes is true."""
    return OPS.equal(min_(OPS.cast(x, dtypes.u8), axis), 1)


@op(*_BOOLS, name="any", numpy=np.any)
def any_(x: Value, axis: Axes = None) -> Value:
    """Whether some element along axes is true."""
    return OPS.equal(max_(OPS.cast(x, dtypes.u8), axis), 1)
