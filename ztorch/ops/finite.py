"""Tests for infinity and NaN, by the bits of a float."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType
from ztorch.graph.op import Sample, op, shape_error
from ztorch.graph.value import Op, Value

# The exponent bits of a float: also the bits of infinity.
_EXPONENT = {"f32": 0x7F800000, "f64": 0x7FF << 52}
_ODD = Sample((np.array([1.0, -2.0, np.nan, 0.0, np.inf, -np.inf], np.float32),))


def _by_bits(name: str, compare: str, numpy: Callable) -> Op:
    """A test that compares the bits of |x| with those of infinity, as integers.

    Shader compilers may assume that there is no NaN and remove float comparisons that test for it.
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
        return e.b.emit(compare, size, _EXPONENT[of.name])

    return Op(name, "map", infer, lambda x, of: numpy(x), lambda o, g, y, x, of: (None,), body,
              cost=3)


_FINITE = _by_bits("isfinite", "lt", np.isfinite)
_NAN = _by_bits("isnan", "gt", np.isnan)


@op(Sample(((3, 5),)), _ODD, primitive=_FINITE, numpy=np.isfinite)
def isfinite(x: Value) -> Value:
    """Whether each element is neither infinite nor NaN.

    Args:
        x: Float tensor.

    Returns:
        A bool tensor of the shape of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.isfinite(np.array([1.0, np.inf, np.nan]))
        array([ True, False, False])
    """
    return _FINITE(x, of=x.dtype)


@op(Sample(((3, 5),)), _ODD, primitive=_NAN, numpy=np.isnan)
def isnan(x: Value) -> Value:
    """Whether each element is NaN, such as the result of 0 / 0.

    Args:
        x: Float tensor.

    Returns:
        A bool tensor of the shape of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.isnan(np.array([1.0, np.inf, np.nan]))
        array([False, False,  True])
    """
    return _NAN(x, of=x.dtype)
