"""Triangles and diagonals of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, normal_axes, op, shape_error
from ztorch.graph.value import Value


def _below(x: Value, k: int) -> Value:
    """Which elements of matrices are on the k-th diagonal or below."""
    if x.rank < 2:
        raise shape_error("triangles are parts of matrices, not of", x.shape)
    rows, columns = x.shape[-2:]
    k = max(-rows - 1, min(k, columns))  # all of them or none, beyond these
    return OPS.less_equal(OPS.iota((1, columns), 1), OPS.iota((rows, 1), 0) + k)


@op(Sample(((2, 3, 4),), {"k": 1}, dtypes="fs"), numpy=np.tril)
def tril(x: Value, k: int = 0) -> Value:
    """The lower triangle of each matrix, with zeros above a diagonal.

    Args:
        x: Tensor of numbers, with two axes or more.
        k: The last diagonal that stays: 0 for the main one, positive above it. Default: `0`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.where(_below(x, k), x, OPS.zeros_like(x))


@op(Sample(((2, 3, 4),), {"k": -1}, dtypes="fs"), numpy=np.triu)
def triu(x: Value, k: int = 0) -> Value:
    """The upper triangle of each matrix, with zeros below a diagonal.

    Args:
        x: Tensor of numbers, with two axes or more.
        k: The first diagonal that stays: 0 for the main one, positive above it. Default: `0`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return OPS.where(_below(x, k - 1), OPS.zeros_like(x), x)


def _diagonal_numpy(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return np.diagonal(x, offset, axis1, axis2)


@op(Sample(((2, 3, 4),), {"offset": 1}), Sample(((3, 2, 3),), {"axis1": 0, "axis2": -1}),
    numpy=_diagonal_numpy)
def diagonal(x: Value, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """A diagonal of each matrix, as the last axis.

    Args:
        x: Tensor of any dtype, with two axes or more.
        offset: The diagonal: 0 is the main one, positive ones are above it. Default: `0`.
        axis1: Axis of the rows. Default: `0`.
        axis2: Axis of the columns. Default: `1`.

    Returns:
        A tensor without these two axes, with the diagonal as its last.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.diagonal(np.array([[1, 2], [3, 4]]))
        array([1, 4])
    """
    [a], [b] = normal_axes(axis1, x.rank), normal_axes(axis2, x.rank)
    if a == b:
        raise shape_error(f"ops.diagonal needs two axes, not {axis1} and {axis2} of", x.shape)
    rest = tuple(k for k in range(x.rank) if k not in (a, b))
    x = OPS.transpose(x, (*rest, a, b))
    *batch, rows, columns = x.shape
    low, right = max(0, -offset), max(0, offset)
    n = max(0, min(rows - low, columns - right))
    if not n:
        return OPS.full((*batch, 0), 0, x.dtype)
    # The flattened matrix, from the first element on: each next one is a row and a column further.
    flat = OPS.reshape(x, (*batch, rows * columns))
    start = low * columns + right
    return flat[..., start:start + (n - 1) * (columns + 1) + 1:columns + 1]


@op(Sample(((3,),), {"k": -1}), Sample(((3, 4),)), numpy=np.diag)
def diag(x: Value, k: int = 0) -> Value:
    """A matrix with the vector x as a diagonal, or the diagonal of the matrix x.

    Args:
        x: Vector or matrix.
        k: The diagonal: 0 is the main one, positive ones are above it. Default: `0`.

    Returns:
        A tensor of the dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.diag(np.array([1, 2]))
        array([[1, 0],
               [0, 2]])
    """
    if x.rank == 2:
        return diagonal(x, k)
    if x.rank != 1:
        raise shape_error("ops.diag takes a vector or a matrix, not", x.shape)
    n, low, right = x.size, max(0, -k), max(0, k)
    on = OPS.equal(OPS.iota((n, 1), 0), OPS.iota((1, n), 1))
    square = OPS.where(on, OPS.reshape(x, (1, n)), OPS.full((n, n), 0, x.dtype))
    return OPS.pad(square, (low, right), (right, low))


@op(Sample(((2, 3, 4),), {"offset": 1}, dtypes="fs"),
    numpy=lambda x, offset=0, axis1=0, axis2=1: np.trace(x, offset, axis1, axis2, x.dtype))
def trace(x: Value, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The sum of a diagonal of each matrix. Integers wrap.

    Args:
        x: Tensor of numbers, with two axes or more.
        offset: The diagonal: 0 is the main one, positive ones are above it. Default: `0`.
        axis1: Axis of the rows. Default: `0`.
        axis2: Axis of the columns. Default: `1`.

    Returns:
        A tensor without these two axes.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.trace(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array(5.)
    """
    return OPS.sum(diagonal(x, offset, axis1, axis2), axis=-1)
