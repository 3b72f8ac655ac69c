"""Logarithms with other bases and of sums, and the hypotenuse."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, op
from ztorch.graph.value import Value
from ztorch.ir.floating import step
from ztorch.ops.formulas import as_floats, formula


def _logaddexp(b: Any, x: Any, y: Any) -> Any:
    gap = b.select(b.eq(x, y), 0.0, b.abs(b.sub(x, y)))
    return b.add(b.max(x, y), b.log1p(b.exp(b.neg(gap))))


def _hypot(b: Any, x: Any, y: Any) -> Any:
    """The larger magnitude times the root of 1 plus a square below 1. Infinite even with NaN."""
    x, y = b.abs(x), b.abs(y)
    large, small = b.max(x, y), b.min(x, y)
    ratio = b.div(small, b.select(b.eq(large, 0.0), 1.0, large))
    length = b.mul(large, b.sqrt(step(b, ratio, ratio, 1.0)))
    return b.select(b.or_(b.eq(x, inf), b.eq(y, inf)), inf, length)


def _hypot_gradient(o: Any, g: Value, length: Value, x: Value, y: Value) -> tuple:
    share = g / o.where(length > 0.0, length, 1.0)  # 0 at 0
    return share * x, share * y


_LOGADDEXP = formula("logaddexp", _logaddexp, np.logaddexp, 45,
                     lambda o, g, z, x, y: (g * o.sigmoid(x - y), g * o.sigmoid(y - x)))
_HYPOT = formula("hypot", _hypot, np.hypot, 30, _hypot_gradient)


@op(Sample(((3, 5),), {}, 0.1, 4.0), numpy=np.log10)
def log10(x: Value) -> Value:
    """The logarithm to base 10.

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.log10(np.array([1.0, 10.0, 1e-300]))
        array([   0.,    1., -300.])
    """
    [x] = as_floats(x)
    return OPS.log(x) * 0.4342944819032518


@op(Sample(((3, 5), (3, 5))), primitive=_LOGADDEXP, numpy=np.logaddexp)
def logaddexp(a: Value | float, b: Value | float) -> Value:
    """`log(e ** a + e ** b)`, without overflow.

    Args:
        a: Tensor of numbers, or a number.
        b: Tensor of numbers, or a number.

    Returns:
        A tensor of the broadcast shape and the dtype of the floats; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.logaddexp(np.array([0.0, 1000.0]), np.array([0.0, 1000.0]))
        array([6.93147181e-01, 1.00069315e+03])
    """
    return _LOGADDEXP(*as_floats(a, b))


@op(Sample(((3, 5), (3, 5))), primitive=_HYPOT, numpy=np.hypot)
def hypot(a: Value | float, b: Value | float) -> Value:
    """`sqrt(a * a + b * b)`, without overflow or underflow. Its gradient is 0 at 0.

    Args:
        a: Tensor of numbers, or a number.
        b: Tensor of numbers, or a number.

    Returns:
        A tensor of the broadcast shape and the dtype of the floats; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.hypot(np.array([3e200]), np.array([4e200]))
        array([5.e+200])
    """
    return _HYPOT(*as_floats(a, b))
