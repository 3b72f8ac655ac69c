"""Cumulative sums and products, in blocks: a scan of each block, then a scan of their ends.

Within a block, each result is reduced from all elements before it, which fills vectors. The depth
grows with the logarithm of the length, and so does the rounding error. No order depends on threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.dtypes import boolean
from ztorch.graph.op import OPS, Sample, normal_axes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ir.opcodes import identity
from ztorch.ops.reduction import widened

BLOCK = 16  # elements: the work within a block grows with its square

_SAMPLES = (Sample(((3, 5),), dtypes="fsu"), Sample(((1, 40, 2),), {"axis": 1}, 0.5, 1.25))


@op(*_SAMPLES, numpy=lambda x, axis=-1: np.cumsum(x, axis, x.dtype))
def cumsum(x: Value, axis: int = -1) -> Value:
    """The sum of each element and all before it along an axis.

    Args:
        x: Tensor of numbers; bool is not accepted. Integers wrap.
        axis: Axis of the sum. Default: `-1`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.cumsum(np.array([1.0, 2.0, 3.0]))
        array([1., 3., 6.])
    """
    return _along("cumsum", x, axis, OPS.sum, OPS.add, "add")


@op(*_SAMPLES, numpy=lambda x, axis=-1: np.cumprod(x, axis, x.dtype))
def cumprod(x: Value, axis: int = -1) -> Value:
    """The product of each element and all before it along an axis.

    Args:
        x: Tensor of numbers; bool is not accepted. Integers wrap.
        axis: Axis of the product. Default: `-1`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.cumprod(np.array([1.0, 2.0, 3.0, 4.0]))
        array([ 1.,  2.,  6., 24.])
    """
    return _along("cumprod", x, axis, OPS.prod, OPS.mul, "mul")


def _along(name: str, x: Value, axis: int, reduce: Callable[..., Value],
           combine: Callable[..., Value], opcode: str) -> Value:
    [a] = normal_axes(axis, x.rank)
    if x.dtype is boolean:
        raise shape_error(f"ops.{name} does not take bool", fix="cast it to a number first")
    if x.size == 0:
        return x
    rows = OPS.reshape(widened(x), (math.prod(x.shape[:a]), x.shape[a],
                                    math.prod(x.shape[a + 1:])))
    y = _scan(rows, reduce, combine, identity(opcode, x.dtype))
    return OPS.reshape(OPS.cast(y, x.dtype), x.shape)


def _scan(x: Value, reduce: Callable[..., Value], combine: Callable[..., Value],
          neutral: Any) -> Value:
    """The scan along the middle one of three axes."""
    outer, n, inner = x.shape
    if n <= BLOCK:  # axes: outer, element, result, inner
        shape = (outer, n, n, inner)
        goes = OPS.less_equal(OPS.iota((1, n, 1, 1), 1), OPS.iota((1, 1, n, 1), 2))
        each = OPS.broadcast_to(OPS.expand_dims(x, 2), shape)
        return reduce(OPS.where(goes, each, neutral), axis=1)
    blocks = -(-n // BLOCK)
    filled = OPS.pad(x, (0, 0, 0), (0, blocks * BLOCK - n, 0), neutral)
    scanned = _scan(OPS.reshape(filled, (outer * blocks, BLOCK, inner)), reduce, combine, neutral)
    scanned = OPS.reshape(scanned, (outer, blocks, BLOCK, inner))
    ends = OPS.reshape(scanned[:, :-1, -1:], (outer, blocks - 1, inner))
    before = OPS.pad(_scan(ends, reduce, combine, neutral), (0, 1, 0), (0, 0, 0), neutral)
    y = OPS.reshape(combine(scanned, OPS.expand_dims(before, 2)), (outer, blocks * BLOCK, inner))
    return y[:, :n]
