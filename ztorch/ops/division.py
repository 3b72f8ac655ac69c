"""Quotients and remainders as in Python and NumPy. The opcodes `div` and `rem` truncate."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, broadcast_together, op
from ztorch.graph.value import Value
from ztorch.ir.floating import with_sign_of
from ztorch.ops.formulas import as_floats, formula


def _opposed(b: Any, rest: Any, y: Any) -> Any:
    """Whether a truncated remainder differs from the floored one: it has the other sign."""
    zero = b.eq(rest, 0)
    return b.and_(b.not_(zero), b.xor(b.lt(rest, 0), b.lt(y, 0)))


def _remainder(b: Any, x: Any, y: Any) -> Any:
    rest = b.rem(x, y)
    rest = b.select(_opposed(b, rest, y), b.add(rest, y), rest)
    if not x.dtype.is_float:
        return rest
    return b.select(b.eq(rest, 0.0), with_sign_of(b, b.const(0.0, x.dtype), y), rest)


def _floor_divide(b: Any, x: Any, y: Any) -> Any:
    """(x - remainder) / y is whole except for rounding."""
    rest = b.rem(x, y)
    if not x.dtype.is_float:
        quotient = b.div(x, y)
        below = b.and_(_opposed(b, rest, y), b.ne(y, 0))
        return b.select(below, b.sub(quotient, 1), quotient)
    plain = b.div(x, y)
    near = b.div(b.sub(x, rest), y)
    near = b.select(_opposed(b, rest, y), b.sub(near, 1.0), near)
    below = b.floor(near)
    near = b.select(b.gt(b.sub(near, below), 0.5), b.add(below, 1.0), below)
    near = b.select(b.eq(near, 0.0), with_sign_of(b, b.abs(near), plain), near)
    return b.select(b.eq(y, 0.0), plain, near)


def _remainder_numpy(x: Any, y: Any) -> Any:
    return np.remainder(x, y) if np.asarray(x).dtype.kind == "f" else np.where(
        y == 0, x, np.remainder(x, np.where(y == 0, 1, y))).astype(x.dtype)


_REMAINDER = formula("remainder", _remainder, _remainder_numpy, 30, kinds="fsu",
                     grad=lambda o, g, y, a, b: (g, -(g * o.floor_divide(a, b))))
_FLOOR_DIVIDE = formula("floor_divide", _floor_divide, np.floor_divide, 40, kinds="fsu")


@op(Sample(((3, 5), (3, 5)), {}, 0.5, 2.0, "fs"), numpy=np.divide, aliases=("true_divide",))
def divide(a: Value | float, b: Value | float) -> Value:
    """a / b as a float, also for integers.

    Args:
        a: Tensor of numbers, or a number.
        b: Tensor of numbers, or a number.

    Returns:
        A tensor of the broadcast shape and the dtype of the floats; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.divide(np.array([1, -7]), 2)
        array([ 0.5, -3.5])
    """
    return OPS.div(*as_floats(a, b))


@op(Sample(((3, 5), (3, 5)), {}, 0.5, 9.0, "fsu"), primitive=_FLOOR_DIVIDE, numpy=np.floor_divide)
def floor_divide(a: Value | float, b: Value | float) -> Value:
    """a / b rounded down, Python's `//`. Integers divided by zero give 0.

    Args:
        a: Tensor of numbers, or a number.
        b: Tensor of the same dtype, or a number.

    Returns:
        A tensor of the broadcast shape and the same dtype.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.floor_divide(np.array([7, -7]), 2)
        array([ 3, -4])
    """
    return _FLOOR_DIVIDE(*broadcast_together(a, b))


@op(Sample(((3, 5), (3, 5)), {}, 0.5, 2.0, "fsu"), primitive=_REMAINDER, numpy=_remainder_numpy,
    aliases=("mod", "floor_mod"))
def remainder(a: Value | float, b: Value | float) -> Value:
    """The remainder of `floor_divide`, with the sign of b, Python's `%`.

    An integer divided by zero gives itself. `rem` has the sign of a instead.

    Args:
        a: Tensor of numbers, or a number.
        b: Tensor of the same dtype, or a number.

    Returns:
        A tensor of the broadcast shape and the same dtype.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.remainder(np.array([7, -7]), 4), zt.ops.rem(np.array([7, -7]), 4)
        (array([3, 1]), array([ 3, -3]))
    """
    return _REMAINDER(*broadcast_together(a, b))


@op(Sample(((3, 5),), {}, 0.5, 2.0), numpy=np.reciprocal)
def reciprocal(x: Value) -> Value:
    """`1 / x`.

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.
    """
    [x] = as_floats(x)
    return 1.0 / x
