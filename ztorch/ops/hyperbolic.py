"""Hyperbolic functions except `tanh`, which is an opcode, and all inverses.

All are accurate next to zero and do not overflow before their result does.
"""

from __future__ import annotations

from math import log, nan
from typing import Any

import numpy as np

from ztorch.dtypes import f32, f64
from ztorch.graph.op import Sample, op
from ztorch.graph.value import Value
from ztorch.ir.floating import with_sign_of
from ztorch.ops.formulas import as_floats, formula

_LARGE = 20.0  # above it, e ** -x is negligible next to e ** x
_HUGE = {f32: 2.0**13, f64: 2.0**28}  # above it, 1 is negligible next to x ** 2


def _beyond(b: Any, size: Any) -> Any:
    """e ** x / 2 as a square, because e ** x may overflow where its half does not."""
    half = b.exp(b.mul(size, 0.5))
    return b.mul(half, b.mul(half, 0.5))


def _sinh(b: Any, x: Any) -> Any:
    size = b.abs(x)
    e = b.expm1(b.min(size, _LARGE))
    near = b.mul(b.add(e, b.div(e, b.add(e, 1.0))), 0.5)
    return with_sign_of(b, b.select(b.gt(size, _LARGE), _beyond(b, size), near), x)


def _cosh(b: Any, x: Any) -> Any:
    size = b.abs(x)
    e = b.mul(b.exp(b.min(size, _LARGE)), 0.5)
    near = b.add(e, b.div(0.25, e))
    return b.select(b.gt(size, _LARGE), _beyond(b, size), near)


def _asinh(b: Any, x: Any) -> Any:
    size, huge = b.abs(x), _HUGE[x.dtype]
    y = b.min(size, huge)
    square = b.mul(y, y)
    more = b.div(square, b.add(b.sqrt(b.add(square, 1.0)), 1.0))
    far = b.add(b.log(b.max(size, huge)), log(2.0))
    return with_sign_of(b, b.select(b.gt(size, huge), far, b.log1p(b.add(y, more))), x)


def _acosh(b: Any, x: Any) -> Any:
    huge = _HUGE[x.dtype]
    t = b.sub(b.min(x, huge), 1.0)
    near = b.log1p(b.add(t, b.sqrt(b.mul(t, b.add(t, 2.0)))))
    far = b.add(b.log(b.max(x, huge)), log(2.0))
    return b.select(b.lt(x, 1.0), nan, b.select(b.gt(x, huge), far, near))


def _atanh(b: Any, x: Any) -> Any:
    size = b.abs(x)
    ratio = b.div(b.add(size, size), b.sub(1.0, size))
    return with_sign_of(b, b.mul(b.log1p(ratio), 0.5), x)


_SINH = formula("sinh", _sinh, np.sinh, 60, lambda o, g, y, x: (g * o.cosh(x),))
_COSH = formula("cosh", _cosh, np.cosh, 60, lambda o, g, y, x: (g * o.sinh(x),))
_ASINH = formula("asinh", _asinh, np.arcsinh, 80, lambda o, g, y, x: (g / o.hypot(x, 1.0),))
_ACOSH = formula("acosh", _acosh, np.arccosh, 80,
                 lambda o, g, y, x: (g * o.rsqrt(x - 1.0) * o.rsqrt(x + 1.0),))
_ATANH = formula("atanh", _atanh, np.arctanh, 40,
                 lambda o, g, y, x: (g / ((1.0 - x) * (x + 1.0)),))


@op(Sample(((3, 5),)), primitive=_SINH, numpy=np.sinh)
def sinh(x: Value) -> Value:
    """The hyperbolic sine.

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.sinh(np.array([0.0, 1e-20]))
        array([0.e+00, 1.e-20])
    """
    return _SINH(*as_floats(x))


@op(Sample(((3, 5),)), primitive=_COSH, numpy=np.cosh)
def cosh(x: Value) -> Value:
    """The hyperbolic cosine.

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.cosh(np.array([0.0, 1.0]))
        array([1.        , 1.54308063])
    """
    return _COSH(*as_floats(x))


@op(Sample(((3, 5),)), primitive=_ASINH, numpy=np.arcsinh, aliases=("arcsinh",))
def asinh(x: Value) -> Value:
    """The inverse hyperbolic sine.

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.asinh(np.array([0.0, 1.0, 1e300]))
        array([  0.        ,   0.88137359, 691.46867508])
    """
    return _ASINH(*as_floats(x))


@op(Sample(((3, 5),), {}, 1.1, 4.0), primitive=_ACOSH, numpy=np.arccosh, aliases=("arccosh",))
def acosh(x: Value) -> Value:
    """The inverse hyperbolic cosine; NaN below 1.

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.acosh(np.array([1.0, 2.0]))
        array([0.       , 1.3169579])
    """
    return _ACOSH(*as_floats(x))


@op(Sample(((3, 5),), {}, -0.9, 0.9), primitive=_ATANH, numpy=np.arctanh, aliases=("arctanh",))
def atanh(x: Value) -> Value:
    """The inverse hyperbolic tangent; infinite at 1 and -1, and NaN beyond.

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.atanh(np.array([0.0, 0.5, 1.0]))
        array([0.        , 0.54930614,        inf])
    """
    return _ATANH(*as_floats(x))
