"""Powers and norms of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, normal_axes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import Axes


@op(Sample((np.array([[0.1, 2.0], [3.0, 0.5]]),), {"n": 3}), numpy=np.linalg.matrix_power)
def matrix_power(x: Value, n: int) -> Value:
    """Powers of matrices.

    Args:
        x: Square matrices of floats.
        n: Exponent; 0 gives the identity. A negative one uses the inverse, for up to 512 columns.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise shape_error("ops.matrix_power needs square matrices, not", x.shape)
    x, n = (OPS.inv(x), -n) if n < 0 else (x, n)
    y = None
    while n:
        if n & 1:
            y = x if y is None else OPS.matmul(y, x)
        n >>= 1
        x = OPS.matmul(x, x) if n else x
    return y if y is not None else OPS.broadcast_to(OPS.eye(x.shape[-1], dtype=x.dtype), x.shape)


def _norm_numpy(x: Any, ord: Any = "fro", keepdims: bool = False) -> Any:
    return np.linalg.norm(x, ord, (-2, -1), keepdims)


@op(Sample(((2, 3, 4),), {"ord": 1, "keepdims": True}), Sample(((2, 3),), {"ord": "nuc"}),
    numpy=_norm_numpy)
def matrix_norm(x: Value, ord: float | str = "fro", keepdims: bool = False) -> Value:
    """The norm of each matrix.

    Args:
        x: Float tensor, with two axes or more.
        ord: `"fro"` for the root of the sum of squares, 1 for the largest sum of absolute values of
            a column, `math.inf` for that of a row, -1 and `-math.inf` for the smallest ones, 2 and
            -2 for the largest and smallest singular value, `"nuc"` for the sum of singular values.
            Default: `"fro"`.
        keepdims: Whether to keep the last two axes, with size 1. Default: `False`.

    Returns:
        A tensor without the last two axes.
    """
    if x.rank < 2:
        raise shape_error("ops.matrix_norm needs matrices, not", x.shape)
    if ord == "fro":
        return OPS.vector_norm(x, 2, (-2, -1), keepdims)
    if ord in (2, -2, "nuc"):
        s = OPS.svdvals(x)
        y = OPS.sum(s, axis=-1) if ord == "nuc" else s[..., 0 if ord == 2 else -1]
        return OPS.reshape(y, (*y.shape, 1, 1)) if keepdims else y
    if ord not in (1, -1, math.inf, -math.inf):
        raise shape_error(f"ops.matrix_norm(ord={ord!r}) must be one of 'fro', 'nuc', 1, -1, 2, "
                          "-2, math.inf or -math.inf")
    along, across = (-2, -1) if ord in (1, -1) else (-1, -2)
    sums = OPS.vector_norm(x, 1, along, True)
    y = (OPS.max if ord in (1, math.inf) else OPS.min)(sums, across, True)
    return y if keepdims else OPS.reshape(y, x.shape[:-2])


@composition(Sample(((3, 4),), {"axis": 1}), Sample(((2, 3, 4),), {"ord": 1, "axis": (0, 2)}))
def norm(x: Value, ord: float | str | None = None, axis: Axes = None, keepdims: bool = False
         ) -> Value:
    """The norm of vectors, or with an order and two axes that of matrices, as in NumPy.

    Args:
        x: Tensor of numbers.
        ord: The order: that of `vector_norm` or `matrix_norm`. `None` means the root of the sum of
            squares, for any number of axes. Default: `None`.
        axis: Axis of vectors, two axes of matrices, or `None` for all axes. Default: `None`.
        keepdims: Whether to keep these axes, with size 1. Default: `False`.

    Returns:
        A tensor of the dtype of `x` without these axes; float64 for integers.

    Examples:
        >>> import ztorch as zt
        >>> x = np.array([[3.0, 0.0], [4.0, 1.0]])
        >>> zt.ops.norm(x, axis=0), zt.ops.norm(x, ord=1)
        (array([5., 1.]), array(7.))
    """
    axes = axes_of_matrices(ord, axis, x.rank)
    if axes is None:
        return OPS.vector_norm(x, ord, axis, keepdims)
    [x] = as_floats(x)
    y = OPS.matrix_norm(OPS.moveaxis(x, axes, (-2, -1)), ord)
    return OPS.expand_dims(y, axes) if keepdims else y


def axes_of_matrices(ord: Any, axis: Axes, rank: int) -> tuple[int, ...] | None:
    """The axes of the rows and columns of matrices, if these arguments of `norm` mean matrices.

    >>> axes_of_matrices(1, None, 2), axes_of_matrices(1, (2, 0), 3), axes_of_matrices(1, 0, 2)
    ((0, 1), (2, 0), None)
    """
    axes = normal_axes(axis, rank)
    if ord is None or len(axes) != 2:
        return None
    return axes if axis is None else tuple(a % rank for a in axis)  # type: ignore[union-attr]
