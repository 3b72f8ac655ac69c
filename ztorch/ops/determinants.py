"""Determinants of small matrices, by elimination with the largest pivot of each column."""

from __future__ import annotations

import numpy as np

from ztorch.graph.op import OPS, Sample, op
from ztorch.graph.value import Value
from ztorch.ops.control import scan
from ztorch.ops.formulas import as_floats
from ztorch.ops.linear_algebra import (
    beside,
    column_at,
    columns_of,
    largest_unused,
    matrices,
    row_at,
)

_POSITIVE = np.array([[[4.0, 1.0], [1.0, 3.0]], [[2.0, 0.2], [0.2, 1.0]]])
_REGULAR = np.array([[0.1, 2.0], [3.0, 0.5]])


def _pivots(name: str, x: Value) -> tuple[Value, Value]:
    """The pivots of elimination as the last axis, and the sign of the order of their rows."""
    wide = matrices(name, x)
    *batch, n, _ = wide.shape

    def turn(state: tuple[Value, Value, Value], j: Value
             ) -> tuple[tuple[Value, Value, Value], Value]:
        rest, used, odd = state
        column = column_at(rest, j)
        at, here = largest_unused(column, used)
        before = OPS.bitwise_and(OPS.bitwise_not(used), OPS.less(OPS.iota((n, 1), 0), at))
        odd = odd + OPS.sum(OPS.cast(before, "int32"), axis=-2, keepdims=True)
        row = row_at(rest, here)
        pivot = column_at(row, j)
        used = OPS.bitwise_or(used, here)
        over = OPS.where(OPS.bitwise_or(used, OPS.equal(pivot, 0.0)), 0.0, column)
        rest = rest - over / OPS.where(OPS.equal(pivot, 0.0), 1.0, pivot) * row
        return (rest, used, odd), pivot

    if not n:
        return OPS.full((*batch, 0), 1, wide.dtype), OPS.full(tuple(batch), 1, wide.dtype)
    unused = OPS.full((*batch, n, 1), False, "bool")
    even = OPS.full((*batch, 1, 1), 0, "int32")
    (_, _, odd), pivots = scan(turn, (wide, unused, even), columns_of(wide))
    sign = OPS.cast(1 - OPS.bitwise_and(odd, 1) * 2, wide.dtype)
    return OPS.reshape(beside(pivots), (*batch, n)), OPS.reshape(sign, tuple(batch))


@op(Sample((_POSITIVE,)), numpy=np.linalg.det)
def det(x: Value) -> Value:
    """The determinant of each matrix.

    Args:
        x: Matrices `(..., n, n)` with n up to 512.

    Returns:
        A tensor without the last two axes.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.det(np.array([[0.0, 2.0], [3.0, 1.0]]))
        array(-6.)
    """
    [x] = as_floats(x)
    pivots, sign = _pivots("det", x)
    return OPS.cast(OPS.prod(pivots, axis=-1) * sign, x.dtype)


@op(Sample((_REGULAR,)), results=("sign", "logabsdet"), numpy=lambda x: tuple(np.linalg.slogdet(x)))
def slogdet(x: Value) -> tuple[Value, Value]:
    """The sign of the determinant of each matrix, and the logarithm of its absolute value.

    Args:
        x: Matrices `(..., n, n)` with n up to 512.

    Returns:
        `(sign, logabsdet)`: tensors without the last two axes. Singular matrices give 0 and
        minus infinity.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.slogdet(np.array([[0.0, 1.0], [1.0, 0.0]]))
        (array(-1.), array(0.))
    """
    [x] = as_floats(x)
    pivots, sign = _pivots("slogdet", x)
    sign = OPS.prod(OPS.sign(pivots), axis=-1) * sign
    size = OPS.sum(OPS.log(OPS.abs(pivots)), axis=-1)
    return OPS.cast(sign, x.dtype), OPS.cast(size, x.dtype)
