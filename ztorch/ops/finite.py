"""Tests for infinity and NaN, on the bits of a float."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType
from ztorch.graph.batching import pointwise
from ztorch.graph.op import OPS, Sample, op, shape_error
from ztorch.graph.value import Op, Value
from ztorch.ops.fills import full

_ODD = Sample((np.array([1.0, -2.0, np.nan, 0.0, np.inf, -np.inf], np.float32),))


def _by_bits(name: str, compare: str, numpy: Callable) -> Op:
    """A test that compares the bits of |x| with those of infinity, as integers.

    Shader compilers may assume that there are no NaNs, and remove float comparisons that test for
    them.
    """

    def infer(x: Value, of: DType) -> tuple[tuple[int, ...], DType]:
        if not x.dtype.is_float:
            raise shape_error(f"ops.{name} does not take {x.dtype}, which has neither infinities "
                              "nor NaN")
        return x.shape, dtypes.boolean

    def body(e: Any, index: Any, of: DType) -> Any:
        x = e.read(0, index)
        if of.bits == 16:
            x, of = e.b.cast(x, dtype=dtypes.f32), dtypes.f32
        size = e.b.and_(e.b.bitcast(x, dtype=dtypes.dtype(f"u{of.bits}")), (1 << (of.bits - 1)) - 1)
        infinity = (1 << of.bits - of.significand) - 1 << of.significand - 1  # its bits
        return e.b.emit(compare, size, infinity)

    return Op(name, "map", infer, lambda x, of: numpy(x), lambda o, g, y, x, of: (None,), body,
              cost=3, batch=pointwise)


_FINITE = _by_bits("isfinite", "lt", np.isfinite)
_NAN = _by_bits("isnan", "gt", np.isnan)
_INFINITE = _by_bits("isinf", "eq", np.isinf)


def _of(primitive: Op, x: Value, of_integers: bool) -> Value:
    """The test for floats. Integers and bools all have the same answer."""
    if x.dtype.is_float:
        return primitive(x, of=x.dtype)
    return full(x.shape, of_integers, dtypes.boolean)


@op(Sample(((3, 5),)), _ODD, primitive=_FINITE, numpy=np.isfinite)
def isfinite(x: Value) -> Value:
    """Whether each element is neither infinite nor NaN.

    Args:
        x: Tensor of any dtype.

    Returns:
        A bool tensor of the shape of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.isfinite(np.array([1.0, np.inf, np.nan]))
        array([ True, False, False])
    """
    return _of(_FINITE, x, True)


@op(Sample(((3, 5),)), _ODD, primitive=_NAN, numpy=np.isnan)
def isnan(x: Value) -> Value:
    """Whether each element is NaN, such as the result of 0 / 0.

    Args:
        x: Tensor of any dtype.

    Returns:
        A bool tensor of the shape of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.isnan(np.array([1.0, np.inf, np.nan]))
        array([False, False,  True])
    """
    return _of(_NAN, x, False)


@op(_ODD, primitive=_INFINITE, numpy=np.isinf)
def isinf(x: Value) -> Value:
    """Whether each element is infinity or minus infinity.

    Args:
        x: Tensor of any dtype.

    Returns:
        A bool tensor of the shape of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.isinf(np.array([1.0, -np.inf, np.nan]))
        array([False,  True, False])
    """
    return _of(_INFINITE, x, False)


@op(Sample((_ODD.shapes[0].astype(np.float64),), {"posinf": 9.0, "neginf": -7.0}),
    numpy=np.nan_to_num)
def nan_to_num(x: Value, nan: float = 0.0, posinf: float | None = None,
               neginf: float | None = None) -> Value:
    """Replaces NaN and infinities by numbers, with gradient 0.

    Args:
        x: Tensor of any dtype.
        nan: Replacement of NaN. Default: `0.0`.
        posinf: Replacement of infinity. `None` means the largest number of the dtype. Default:
            `None`.
        neginf: Replacement of minus infinity. `None` means the smallest number of the dtype.
            Default: `None`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.nan_to_num(np.array([1.0, np.nan, np.inf]), posinf=9.0)
        array([1., 0., 9.])
    """
    if not x.dtype.is_float:
        return x
    largest = x.dtype.largest
    least, most = -largest if neginf is None else neginf, largest if posinf is None else posinf
    y = OPS.where(isinf(x), OPS.where(x > 0.0, most, OPS.full((), least, x.dtype)), x)
    return OPS.where(isnan(x), nan, y)
