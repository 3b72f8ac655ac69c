"""Reductions along axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType, f32
from ztorch.graph.op import OPS, Sample, normal_axes, op, shape_error
from ztorch.graph.value import Op, Value
from ztorch.ir.halves import HALVES

Axes = int | tuple[int, ...] | None


def _infer(x: Value, axes: tuple[int, ...]) -> tuple[tuple[int, ...], DType]:
    if x.dtype.kind == "b":
        raise shape_error("a bool tensor cannot be reduced", fix="cast it to a number first")
    return tuple(n for k, n in enumerate(x.shape) if k not in axes), x.dtype


def ones_in(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with size 1 along axes.

    >>> ones_in((4, 3, 5), (0, 2))
    (1, 3, 1)
    """
    return tuple(1 if k in axes else n for k, n in enumerate(shape))


def _spread(o: Any, g: Value, x: Value, axes: tuple[int, ...]) -> Value:
    return o.broadcast_to(o.reshape(g, ones_in(x.shape, axes)), x.shape)


def _extreme_grad(o: Any, g: Value, y: Value, x: Value, axes: tuple[int, ...]) -> tuple:
    """The gradient of max and min, shared equally by all elements that reach the extreme."""
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
REDUCTION_SAMPLES = (Sample(((3, 5),), {"axis": 1}), Sample(((4, 3, 5),), {"axis": (0, 2)}),
                     Sample(((3, 17),), {"axis": 0, "keepdims": True}), Sample(((3, 5),)))
_WHOLE = Sample(((3, 5),), {"axis": 1}, dtypes="su")


def _reduce(name: str, x: Value, axis: Axes, keepdims: bool) -> Value:
    axes = normal_axes(axis, x.rank)
    y = _OPS[name](x, axes=axes) if axes else x
    return OPS.reshape(y, ones_in(x.shape, axes)) if keepdims else y


def _extreme(name: str, x: Value, axis: Axes, keepdims: bool, initial: float | None) -> Value:
    empty = math.prod(x.shape[a] for a in normal_axes(axis, x.rank)) == 0
    if empty and initial is None:
        raise shape_error(f"ops.{name} of no elements is undefined; got", x.shape)
    if empty:
        return _reduce("sum", x, axis, keepdims) + initial
    y = _reduce(name, x, axis, keepdims)
    return y if initial is None else (OPS.maximum if name == "max" else OPS.minimum)(y, initial)


@op(*REDUCTION_SAMPLES, _WHOLE, name="sum", primitive=_OPS["sum"], numpy=np.sum)
def sum_(x: Value, axis: Axes = None, keepdims: bool = False,
         dtype: DType | str | None = None) -> Value:
    """The sum along axes. Integers wrap.

    Args:
        x: Tensor of numbers; bool is accepted only with a dtype.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        dtype: Dtype of the elements and of the result. `None` for that of `x`, also for small
            integers, which NumPy widens. Default: `None`.

    Returns:
        A tensor without these axes.
    """
    return _reduce("sum", x if dtype is None else OPS.cast(x, dtype), axis, keepdims)


@op(*REDUCTION_SAMPLES, _WHOLE, primitive=_OPS["prod"], numpy=np.prod)
def prod(x: Value, axis: Axes = None, keepdims: bool = False,
         dtype: DType | str | None = None) -> Value:
    """The product along axes. Integers wrap.

    Args:
        x: Tensor of numbers; bool is accepted only with a dtype.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        dtype: Dtype of the elements and of the result. `None` for that of `x`, also for small
            integers, which NumPy widens. Default: `None`.

    Returns:
        A tensor without these axes.
    """
    return _reduce("prod", x if dtype is None else OPS.cast(x, dtype), axis, keepdims)


@op(*REDUCTION_SAMPLES, _WHOLE, name="max", primitive=_OPS["max"], numpy=np.max,
    aliases=("amax",))
def max_(x: Value, axis: Axes = None, keepdims: bool = False,
         initial: float | None = None) -> Value:
    """The largest element along axes; NaN if one is NaN.

    Args:
        x: Tensor of numbers; bool is not accepted.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        initial: A number that counts as one more element, also where there are none. `None` for no
            such number. Default: `None`.

    Returns:
        A tensor of the dtype of `x` without these axes.
    """
    return _extreme("max", x, axis, keepdims, initial)


@op(*REDUCTION_SAMPLES, _WHOLE, name="min", primitive=_OPS["min"], numpy=np.min,
    aliases=("amin",))
def min_(x: Value, axis: Axes = None, keepdims: bool = False,
         initial: float | None = None) -> Value:
    """The smallest element along axes; NaN if one is NaN.

    Args:
        x: Tensor of numbers; bool is not accepted.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.
        initial: A number that counts as one more element, also where there are none. `None` for no
            such number. Default: `None`.

    Returns:
        A tensor of the dtype of `x` without these axes.
    """
    return _extreme("min", x, axis, keepdims, initial)


def widened(x: Value) -> Value:
    """16-bit floats as float32, for computations that would lose digits or overflow."""
    return OPS.cast(x, f32) if x.dtype in HALVES else x


_BOOLS = (Sample(((3, 5),), {"axis": 1}, dtypes="b"), Sample(((3, 1),), dtypes="b"),
          Sample(((3, 5, 2),), {"axis": (0, 2), "keepdims": True}, dtypes="bfs"))


def _flags(x: Value) -> Value:
    """Bools that reductions take; a number is true unless it is zero."""
    return OPS.cast(OPS.cast(x, dtypes.boolean), dtypes.u8)


@op(*_BOOLS, name="all", numpy=np.all)
def all_(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """Whether all elements along axes are true. True for no elements.

    Args:
        x: Tensor of any dtype; a number is true unless it is zero.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.

    Returns:
        A bool tensor without these axes.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.all(np.array([[True, False], [True, True]]), axis=1)
        array([False,  True])
    """
    return OPS.equal((min_ if x.size else prod)(_flags(x), axis, keepdims), 1)


@op(*_BOOLS, name="any", numpy=np.any)
def any_(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """Whether any element along axes is true. False for no elements.

    Args:
        x: Tensor of any dtype; a number is true unless it is zero.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.

    Returns:
        A bool tensor without these axes.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.any(np.array([[True, False], [False, False]]), axis=1)
        array([ True, False])
    """
    return OPS.equal((max_ if x.size else sum_)(_flags(x), axis, keepdims), 1)


@op(Sample(((3, 5),), {"axis": 1}, dtypes="s"), numpy=np.count_nonzero)
def count_nonzero(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The number of elements along axes that are not zero.

    Args:
        x: Tensor of any dtype.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.

    Returns:
        An int32 tensor without these axes.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.count_nonzero(np.array([[1, 0], [2, 3]]), axis=0)
        array([2, 1], dtype=int32)
    """
    return sum_(OPS.cast(OPS.cast(x, dtypes.boolean), dtypes.i32), axis, keepdims)
