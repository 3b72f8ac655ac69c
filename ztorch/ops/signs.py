"""The sign bit of floats, and their neighbors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean, dtype, from_storage, to_storage
from ztorch.graph.op import OPS, Sample, op, shape_error
from ztorch.graph.value import Value
from ztorch.ir.floating import bits_of, with_sign_of
from ztorch.ops.formulas import as_floats, formula

_COPYSIGN = formula("copysign", lambda b, x, y: with_sign_of(b, b.abs(x), y), np.copysign, 4,
                    lambda o, g, y, a, b: (g * o.sign(a) * o.copysign(o.ones_like(b), b), None))
_SIGNBIT = formula("signbit", lambda b, x: b.lt(bits_of(b, x), 0), np.signbit, 2, tests=True)


def _next_after(b: Any, x: Any, y: Any) -> Any:
    """The bits of a number as an integer, one more or one less."""
    d, ints = x.dtype, dtype(f"i{x.dtype.bits}")
    bits = b.bitcast(x, dtype=ints)
    away = b.xor(b.lt(x, y), b.lt(x, 0.0))
    moved = b.add(bits, b.select(away, b.const(1, ints), -1))
    least = b.or_(b.and_(b.bitcast(y, dtype=ints), -1 << (d.bits - 1)), 1)  # with the sign of y
    moved = b.bitcast(b.select(b.eq(x, 0.0), least, moved), dtype=d)
    unordered = b.or_(b.ne(x, x), b.ne(y, y))
    return b.select(unordered, b.add(x, y), b.select(b.eq(x, y), y, moved))


def _next_numpy(a: Any, b: Any, of: DType | None = None) -> Any:
    if of is None or of.in_numpy:
        return np.nextafter(a, b)
    ints = dtype(f"i{of.bits}").numpy
    bits = to_storage(of, a).view(ints)
    moved = np.where(a == 0, np.where(b < 0, -1 << of.bits - 1 | 1, 1),
                     bits + np.where((a < b) != (a < 0), 1, -1)).astype(ints)
    near = from_storage(of, moved.view(of.numpy))
    return np.where(np.isnan(a + b), np.float32(np.nan), np.where(a == b, b, near))


_NEXT_AFTER = formula("nextafter", _next_after, _next_numpy, 12,
                      lambda o, g, y, a, b, of: (g, None), wide=False)


@op(Sample(((3, 5), (3, 5))), primitive=_COPYSIGN, numpy=np.copysign)
def copysign(a: Value | float, b: Value | float) -> Value:
    """The absolute value of a with the sign of b, also of zeros and NaN.

    Args:
        a: Tensor of numbers, or a number.
        b: Tensor of numbers, or a number.

    Returns:
        A tensor of the broadcast shape and the dtype of the floats; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.copysign(np.array([1.0, -2.0]), -0.0)
        array([-1., -2.])
    """
    return _COPYSIGN(*as_floats(a, b))


@op(Sample(((3, 5),)), primitive=_SIGNBIT, numpy=np.signbit)
def signbit(x: Value) -> Value:
    """Whether the sign of each element is minus, also that of -0.0 and of NaN.

    Args:
        x: Tensor of numbers.

    Returns:
        A bool tensor of the shape of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.signbit(np.array([-1.0, -0.0, 0.0]))
        array([ True,  True, False])
    """
    return _SIGNBIT(x) if x.dtype.is_float else OPS.less(x, 0)


@op(Sample(((3, 5), (3, 5))), primitive=_NEXT_AFTER, numpy=_next_numpy)
def nextafter(a: Value | float, b: Value | float) -> Value:
    """The number next to a in the direction of b, among those that the dtype holds.

    Args:
        a: Tensor of floats, or a number.
        b: Tensor of the same dtype, or a number.

    Returns:
        A tensor of the broadcast shape and the same dtype.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.nextafter(np.array([1.0]), 2.0) - 1.0
        array([2.22044605e-16])
    """
    a, b = as_floats(a, b)
    return _NEXT_AFTER(a, b, of=a.dtype)


@op(Sample(((3, 5),), dtypes="fsu"), numpy=np.positive)
def positive(x: Value) -> Value:
    """`+x`: x unchanged.

    Args:
        x: Tensor of numbers.

    Returns:
        `x`.

    Raises:
        ShapeError: `x` is a bool tensor.
    """
    if x.dtype is boolean:
        raise shape_error("ops.positive does not take bool", fix="cast it to a number first")
    return x
