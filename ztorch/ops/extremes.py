"""The positions of the largest and the smallest elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.graph.op import OPS, Sample, normal_axes, op
from ztorch.graph.value import Value
from ztorch.ops.reduction import Axes, max_, min_, ones_in


def _arg_extreme(x: Value, axis: Axes, keepdims: bool, extreme: Any) -> Value:
    x = OPS.cast(x, dtypes.u8) if x.dtype == dtypes.boolean else x
    axes = normal_axes(axis, x.rank)
    if len(axes) != 1:  # move these axes to the end and flatten them
        others = tuple(k for k in range(x.rank) if k not in axes)
        rows = OPS.reshape(OPS.transpose(x, (*others, *axes)), (
            *(x.shape[k] for k in others), math.prod(x.shape[k] for k in axes)))
        y = _arg_extreme(rows, -1, False, extreme)
        return OPS.reshape(y, ones_in(x.shape, axes)) if keepdims else y
    [a] = axes
    n = x.shape[a]
    position = OPS.iota(x.shape, a, "int32")
    hit = OPS.equal(x, OPS.broadcast_to(extreme(x, a, True), x.shape))
    if x.dtype.is_float:  # NaN is the extreme if there is one, but equals nothing
        hit = OPS.bitwise_or(hit, OPS.not_equal(x, x))
    return min_(OPS.where(hit, position, OPS.full(x.shape, n - 1, "int32")), a, keepdims)


def _arg_numpy(function: Any) -> Any:
    def positions(x: Any, axis: Axes = None, keepdims: bool = False) -> Any:
        axes = normal_axes(axis, x.ndim)
        rows = np.moveaxis(x, axes, range(-len(axes), 0)).reshape(
            *(n for k, n in enumerate(x.shape) if k not in axes), -1)
        y = function(rows, -1)
        return y.reshape(ones_in(x.shape, axes)) if keepdims else y

    return positions


_ARGS = (Sample(((3, 5),), {"axis": 1}, dtypes="fsub"),
         Sample(((5, 4),), {"axis": 0, "keepdims": True}),
         Sample(((2, 3, 4),), {"axis": (0, 2), "keepdims": True}),
         Sample(((3, 5),), {"axis": None}))


@op(*_ARGS, numpy=_arg_numpy(np.argmax))
def argmax(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The first position of the largest element along an axis, or of NaN if there is one.

    Args:
        x: Tensor of numbers or bools.
        axis: Axis; a tuple of axes, or `None` for all, counts as one flattened axis. Default:
            `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.

    Returns:
        An int32 tensor without these axes.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.argmax(np.array([[1.0, 3.0, 3.0], [5.0, 2.0, 4.0]]), axis=1)
        array([1, 0], dtype=int32)
    """
    return _arg_extreme(x, axis, keepdims, max_)


@op(*_ARGS, numpy=_arg_numpy(np.argmin))
def argmin(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The first position of the smallest element along an axis, or of NaN if there is one.

    Args:
        x: Tensor of numbers or bools.
        axis: Axis; a tuple of axes, or `None` for all, counts as one flattened axis. Default:
            `None`.
        keepdims: Whether to keep the reduced axes, with size 1. Default: `False`.

    Returns:
        An int32 tensor without these axes.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.argmin(np.array([3.0, 1.0, 1.0]))
        array(1, dtype=int32)
    """
    return _arg_extreme(x, axis, keepdims, min_)
