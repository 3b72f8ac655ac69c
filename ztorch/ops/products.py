"""Products of vectors and tensors: all are `matmul` or a product of elements, and a sum."""

from __future__ import annotations

import math

import numpy as np

from ztorch.graph.op import OPS, Sample, as_value, broadcast_together, normal_axes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.reduction import widened

Axes = int | tuple[int, ...]


@op(Sample(((3,), (4,)), dtypes="fs"), numpy=np.outer)
def outer(a: Value, b: Value) -> Value:
    """The product of each element of a with each of b. Both are flattened.

    Args:
        a: Tensor of numbers.
        b: Tensor of the same dtype.

    Returns:
        A matrix with a row for each element of `a` and a column for each of `b`.
    """
    return OPS.reshape(a, (a.size, 1)) * OPS.reshape(b, (1, b.size))


@op(Sample(((2, 1, 4), (3, 4)), dtypes="fs"), numpy=lambda a, b, axis=-1: np.sum(
    a * b, axis, dtype=a.dtype))
def vecdot(a: Value, b: Value, axis: int = -1) -> Value:
    """The sum of products along an axis. The other axes broadcast.

    Args:
        a: Tensor of numbers.
        b: Tensor of the same dtype.
        axis: Axis of the sum, counted in the broadcast shape. Default: `-1`.

    Returns:
        A tensor of the broadcast shape without the axis.

    Raises:
        ShapeError: The axis has different sizes.
    """
    last = [x.shape[axis] if -x.rank <= axis < x.rank else 1 for x in (a, b)]
    if axis < 0 and last[0] != last[1]:
        raise shape_error(f"ops.vecdot needs as many elements along axis {axis}, not", a.shape,
                          b.shape)
    a, b = broadcast_together(a, b)
    return OPS.cast(OPS.sum(widened(a) * widened(b), axis=axis), a.dtype)


@op(Sample(((2, 4), (3, 4))), numpy=np.inner)
def inner(a: Value, b: Value) -> Value:
    """The sums of products along the last axes of both.

    Args:
        a: Tensor of floats.
        b: Tensor of the same dtype, with as many elements along its last axis.

    Returns:
        A tensor with the axes of `a` but its last, and those of `b` but its last.
    """
    return tensordot(a, b, ((-1,), (-1,))) if a.rank and b.rank else a * b


@op(Sample(((2, 3, 4), (4, 2))), numpy=np.dot)
def dot(a: Value, b: Value) -> Value:
    """The sums of products along the last axis of a and the second-last of b, or its only one.

    Args:
        a: Tensor of floats.
        b: Tensor of the same dtype.

    Returns:
        A tensor with the other axes of `a`, and then those of `b`.
    """
    return tensordot(a, b, ((-1,), (max(-2, -b.rank),))) if a.rank and b.rank else a * b


@op(Sample(((2, 3, 4), (4, 3, 2)), {"axes": ((1, 2), (1, 0))}), Sample(((2, 3), (3, 4)), {
    "axes": 1}), numpy=np.tensordot)
def tensordot(a: Value, b: Value, axes: int | tuple[Axes, Axes] = 2) -> Value:
    """The sums of products along several axes of both.

    Args:
        a: Tensor of floats.
        b: Tensor of the same dtype.
        axes: Axes of `a` and axes of `b`, in pairs; or a number: so many last axes of `a`, and as
            many first axes of `b`. Default: `2`.

    Returns:
        A tensor with the other axes of `a`, and then those of `b`.
    """
    if isinstance(axes, int):
        pairs: list[tuple[int, ...]] = [tuple(range(a.rank - axes, a.rank)), tuple(range(axes))]
        if not 0 <= axes <= min(a.rank, b.rank):
            raise shape_error(f"ops.tensordot(axes={axes}) needs as many axes of", a.shape, b.shape)
    else:
        pairs = [tuple(normal_axes(k, x.rank)[0] for k in ((some,) if isinstance(some, int) else
                                                           some))
                 for x, some in zip((a, b), axes, strict=True)]
    mine, theirs = pairs
    sizes = [a.shape[k] for k in mine]
    if sizes != [b.shape[k] for k in theirs]:
        raise shape_error(f"ops.tensordot sums over axes {mine} and {theirs}, which differ in",
                          a.shape, b.shape)
    rows = tuple(k for k in range(a.rank) if k not in mine)
    columns = tuple(k for k in range(b.rank) if k not in theirs)
    left = OPS.reshape(OPS.transpose(a, (*rows, *mine)), (
        math.prod(a.shape[k] for k in rows), math.prod(sizes)))
    right = OPS.reshape(OPS.transpose(b, (*theirs, *columns)), (
        math.prod(sizes), math.prod(b.shape[k] for k in columns)))
    return OPS.reshape(OPS.matmul(left, right), (*(a.shape[k] for k in rows),
                                                 *(b.shape[k] for k in columns)))


@op(Sample(((2, 3), (3, 2)), dtypes="fs"), numpy=np.kron)
def kron(a: Value, b: Value) -> Value:
    """The Kronecker product: a with each element replaced by its product with b.

    Args:
        a: Tensor of numbers.
        b: Tensor of the same dtype.

    Returns:
        A tensor whose sizes are the products of those of both.
    """
    rank = max(a.rank, b.rank)
    mine, theirs = ((1,) * (rank - x.rank) + x.shape for x in (a, b))
    y = (OPS.reshape(a, tuple(m for n in mine for m in (n, 1)))
         * OPS.reshape(b, tuple(m for n in theirs for m in (1, n))))
    return OPS.reshape(y, tuple(n * m for n, m in zip(mine, theirs, strict=True)))


@op(Sample(((2, 3), (1, 3)), dtypes="fs"), numpy=lambda a, b, axis=-1: np.cross(a, b, axis=axis))
def cross(a: Value, b: Value, axis: int = -1) -> Value:
    """The cross product of vectors of three elements.

    Args:
        a: Tensor of numbers, with three elements along the axis.
        b: Tensor of the same dtype, with three elements along the axis. The other axes broadcast.
        axis: Axis of the vectors. Default: `-1`.

    Returns:
        A tensor of the broadcast shape.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.cross(np.array([1, 0, 0]), np.array([0, 1, 0]))
        array([0, 0, 1])
    """
    a, b = as_value(a), as_value(b)
    for x in (a, b):
        if x.rank == 0 or x.shape[normal_axes(axis, x.rank)[0]] != 3:
            raise shape_error(f"ops.cross needs three elements along axis {axis}, not", a.shape,
                              b.shape)
    a, b = broadcast_together(a, b)
    return (OPS.roll(a, -1, axis) * OPS.roll(b, -2, axis)
            - OPS.roll(a, -2, axis) * OPS.roll(b, -1, axis))
