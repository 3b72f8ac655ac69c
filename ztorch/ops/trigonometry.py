"""Trigonometric functions beside `sin`, `cos` and `atan`, which are opcodes."""

from __future__ import annotations

from math import inf, pi
from typing import Any

import numpy as np

from ztorch.dtypes import f32, f64
from ztorch.graph.op import Sample, op
from ztorch.graph.value import Value
from ztorch.ir.floating import FORMATS, bits_of, with_sign_of
from ztorch.ops.formulas import as_floats, formula

_PI_REST = {f32: -8.742278e-08, f64: 1.2246467991473532e-16}  # pi less its rounding


def _tan(b: Any, x: Any) -> Any:
    return b.div(b.sin(x), b.cos(x))


def _asin(b: Any, x: Any) -> Any:
    """2 atan(x / (1 + sqrt(1 - x^2))), where nothing is divided by zero."""
    y = b.abs(x)
    cosine = b.sqrt(b.mul(b.sub(1.0, y), b.add(y, 1.0)))
    return with_sign_of(b, b.mul(b.atan(b.div(y, b.add(cosine, 1.0))), 2.0), x)


def _acos(b: Any, x: Any) -> Any:
    """2 atan(sqrt((1 - x) / (1 + x)))."""
    under = b.add(x, 1.0)
    under = b.select(b.eq(under, 0.0), FORMATS[x.dtype].smallest, under)
    return b.mul(b.atan(b.sqrt(b.div(b.sub(1.0, x), under))), 2.0)


def _atan2(b: Any, y: Any, x: Any) -> Any:
    """The arctangent of the smaller by the larger, and then the right eighth of a turn."""
    up, right = b.abs(y), b.abs(x)
    large, small = b.max(up, right), b.min(up, right)
    ratio = b.div(small, b.select(b.eq(large, 0.0), 1.0, large))
    angle = b.atan(b.select(b.eq(small, inf), 1.0, ratio))
    rest = _PI_REST[x.dtype]
    angle = b.select(b.gt(up, right), b.add(b.sub(rest / 2, angle), pi / 2), angle)
    left = b.lt(bits_of(b, x), 0)
    return with_sign_of(b, b.select(left, b.add(b.sub(rest, angle), pi), angle), y)


def _atan2_gradient(o: Any, g: Value, z: Value, y: Value, x: Value) -> tuple:
    length = o.hypot(x, y)
    length = o.where(length > 0.0, length, 1.0)  # 0 at 0
    return g * (x / length) / length, -(g * (y / length) / length)


_TAN = formula("tan", _tan, np.tan, 60, lambda o, g, y, x: (g * (y * y + 1.0),))
_ASIN = formula("asin", _asin, np.arcsin, 70,
                lambda o, g, y, x: (g * o.rsqrt((1.0 - x) * (x + 1.0)),))
_ACOS = formula("acos", _acos, np.arccos, 70,
                lambda o, g, y, x: (-(g * o.rsqrt((1.0 - x) * (x + 1.0))),))
_ATAN2 = formula("atan2", _atan2, np.arctan2, 60, _atan2_gradient)


@op(Sample(((3, 5),), {}, -1.5, 1.5), primitive=_TAN, numpy=np.tan)
def tan(x: Value) -> Value:
    """The tangent of angles in radians.

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.tan(np.array([0.0, np.pi / 4])).round(6)
        array([0., 1.])
    """
    return _TAN(*as_floats(x))


@op(Sample(((3, 5),), {}, -0.9, 0.9), primitive=_ASIN, numpy=np.arcsin, aliases=("arcsin",))
def asin(x: Value) -> Value:
    """The inverse sine in radians, from -pi/2 to pi/2; NaN outside of [-1, 1].

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.asin(np.array([0.0, 1.0]))
        array([0.        , 1.57079633])
    """
    return _ASIN(*as_floats(x))


@op(Sample(((3, 5),), {}, -0.9, 0.9), primitive=_ACOS, numpy=np.arccos, aliases=("arccos",))
def acos(x: Value) -> Value:
    """The inverse cosine in radians, from 0 to pi; NaN outside of [-1, 1].

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.acos(np.array([1.0, 0.0, -1.0]))
        array([0.        , 1.57079633, 3.14159265])
    """
    return _ACOS(*as_floats(x))


@op(Sample(((3, 5), (3, 5))), primitive=_ATAN2, numpy=np.arctan2, aliases=("arctan2",))
def atan2(y: Value | float, x: Value | float) -> Value:
    """The angle in radians of the point `(x, y)`, from -pi to pi, with the signs of zeros.

    Args:
        y: Tensor of numbers, or a number: the second coordinate.
        x: Tensor of numbers, or a number: the first coordinate. Both broadcast.

    Returns:
        A tensor of the broadcast shape and the dtype of the floats; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.atan2(np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.0, -1.0]))
        array([0.        , 1.57079633, 3.14159265])
    """
    return _ATAN2(*as_floats(y, x))
