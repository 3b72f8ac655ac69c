"""Logical ops on tensors of any dtype, and comparisons of whole tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.dtypes import boolean
from ztorch.graph.op import OPS, Sample, as_value, broadcast_together, op
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats

_BOOLS = (Sample(((3, 5), (3, 5)), dtypes="bs"),)


def _truth(*xs: Value | float) -> list[Value]:
    """Tensors as bools; nonzero numbers are true."""
    return [OPS.cast(as_value(x), boolean) for x in xs]


@op(*_BOOLS, numpy=np.logical_and)
def logical_and(a: Value | float, b: Value | float) -> Value:
    """Whether both are true.

    Args:
        a: Tensor of any dtype, or a number; a number is true unless it is zero.
        b: Tensor of any dtype, or a number.

    Returns:
        A bool tensor of the broadcast shape.
    """
    return OPS.bitwise_and(*_truth(a, b))


@op(*_BOOLS, numpy=np.logical_or)
def logical_or(a: Value | float, b: Value | float) -> Value:
    """Whether one or both are true.

    Args:
        a: Tensor of any dtype, or a number; a number is true unless it is zero.
        b: Tensor of any dtype, or a number.

    Returns:
        A bool tensor of the broadcast shape.
    """
    return OPS.bitwise_or(*_truth(a, b))


@op(*_BOOLS, numpy=np.logical_xor)
def logical_xor(a: Value | float, b: Value | float) -> Value:
    """Whether one is true and the other is not.

    Args:
        a: Tensor of any dtype, or a number; a number is true unless it is zero.
        b: Tensor of any dtype, or a number.

    Returns:
        A bool tensor of the broadcast shape.
    """
    return OPS.bitwise_xor(*_truth(a, b))


@op(Sample(((3, 5),), dtypes="bs"), numpy=np.logical_not)
def logical_not(x: Value) -> Value:
    """Whether each element is false.

    Args:
        x: Tensor of any dtype; a number is true unless it is zero.

    Returns:
        A bool tensor of the shape of `x`.
    """
    return OPS.bitwise_not(*_truth(x))


@op(Sample((np.array([1.0, 2.0, np.inf, np.nan], np.float32),
            np.array([1.000001, 2.1, np.inf, np.nan], np.float32))), numpy=np.isclose)
def isclose(a: Value | float, b: Value | float, rtol: float = 1e-5, atol: float = 1e-8,
            equal_nan: bool = False) -> Value:
    """Whether `|a - b| <= atol + rtol * |b|`, or both are the same infinity.

    Args:
        a: Tensor of numbers, or a number.
        b: Tensor of numbers, or a number: the reference.
        rtol: Relative tolerance. Default: `1e-5`.
        atol: Absolute tolerance. Default: `1e-8`.
        equal_nan: Whether two NaN are close. Default: `False`.

    Returns:
        A bool tensor of the broadcast shape.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.isclose(np.array([1.0, 2.0]), np.array([1.000001, 2.1]))
        array([ True, False])
    """
    a, b = as_floats(a, b)
    near = OPS.less_equal(OPS.abs(a - b), OPS.abs(b) * rtol + atol)
    close = OPS.bitwise_or(OPS.equal(a, b), OPS.bitwise_and(near, OPS.isfinite(b)))
    both_nan = OPS.bitwise_and(OPS.isnan(a), OPS.isnan(b))
    return OPS.bitwise_or(close, both_nan) if equal_nan else close


@op(Sample(((3, 4), (3, 1))), numpy=np.allclose)
def allclose(a: Value | float, b: Value | float, rtol: float = 1e-5, atol: float = 1e-8,
             equal_nan: bool = False) -> Value:
    """Whether all elements are close, as defined by `isclose`.

    Args:
        a: Tensor of numbers, or a number.
        b: Tensor of numbers, or a number: the reference.
        rtol: Relative tolerance. Default: `1e-5`.
        atol: Absolute tolerance. Default: `1e-8`.
        equal_nan: Whether two NaN are close. Default: `False`.

    Returns:
        A bool tensor of shape `()`.
    """
    return OPS.all(isclose(a, b, rtol, atol, equal_nan))


@op(Sample(((3, 4), (3, 4)), dtypes="s"), numpy=np.array_equal)
def array_equal(a: Value, b: Value) -> Value:
    """Whether two tensors have the same shape and equal elements.

    Args:
        a: Tensor of any dtype.
        b: Tensor of the same dtype.

    Returns:
        A bool tensor of shape `()`.
    """
    return OPS.all(OPS.equal(a, b)) if a.shape == b.shape else OPS.full((), False, boolean)


def _isin_numpy(x: Any, elements: Any, invert: bool = False) -> Any:
    return np.isin(x, elements, invert=invert)


@op(Sample(((3, 5), (2,)), dtypes="s"), numpy=_isin_numpy)
def isin(x: Value | float, elements: Value | float, invert: bool = False) -> Value:
    """Whether each element is among others, by comparison with all of them.

    Args:
        x: Tensor of any dtype, or a number.
        elements: The elements to search: a number, or a tensor of the same dtype and any shape.
        invert: Whether to return which elements are not among them. Default: `False`.

    Returns:
        A bool tensor of the shape of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.isin(np.array([1, 2, 3]), np.array([3, 1]))
        array([ True, False,  True])
    """
    like = x if isinstance(x, Value) else elements if isinstance(elements, Value) else None
    x, elements = as_value(x, like), as_value(elements, like)
    mine, theirs = broadcast_together(OPS.expand_dims(x, -1),
                                      OPS.reshape(elements, (elements.size,)))
    y = OPS.any(OPS.equal(mine, theirs), axis=-1)
    return OPS.bitwise_not(y) if invert else y
