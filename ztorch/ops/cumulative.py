"""Cumulative sums and products, in blocks: a scan of each block, then a scan of their ends.

Within a block, each result is reduced from all elements before it, which vectorizes. The depth, and
so the rounding error, grows with the logarithm of the length. No order depends on threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, as_value, normal_axes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ir.opcodes import identity
from ztorch.ops.reduction import widened

BLOCK = 16  # elements: the work within a block grows with the square of its size
# A block that divides the axis needs no padding, and padding takes as long as the sums.
SIZES = (BLOCK, BLOCK // 2)

_SAMPLES = (Sample(((3, 5),), {"axis": -1}, dtypes="fsu"),
            Sample(((1, 40, 2),), {"axis": 1}, 0.5, 1.25),
            Sample(((3, 5),), {"axis": 0, "include_initial": True}, 0.5, 1.25),
            Sample(((2, 3),), {}, 0.5, 1.25))


def _scan_numpy(function: Callable[..., Any], first: int) -> Callable[..., Any]:
    def scanned(x: Any, axis: int | None = None, dtype: Any = None,
                include_initial: bool = False) -> Any:
        y = function(x, axis, dtype or x.dtype)
        start = np.full_like(np.take(y, [0], axis), first)
        return np.concatenate([start, y], axis) if include_initial else y

    return scanned


@op(*_SAMPLES, numpy=_scan_numpy(np.cumsum, 0), aliases=("cumulative_sum",))
def cumsum(x: Value, axis: int | None = None, dtype: DType | str | None = None,
           include_initial: bool = False) -> Value:
    """The sum of each element and all before it along an axis.

    Args:
        x: Tensor of numbers; bool is not accepted. Integers wrap.
        axis: Axis of the sum. `None` means that of the flattened tensor. Default: `None`.
        dtype: Dtype of the elements and of the result. `None` means that of `x`. Default: `None`.
        include_initial: Whether to prepend 0, so that the result is longer by one. Default:
            `False`.

    Returns:
        A tensor of the shape of `x`, a vector without an axis; or longer by one along the axis.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.cumsum(np.array([1.0, 2.0, 3.0]))
        array([1., 3., 6.])
    """
    return _along("cumsum", x, axis, dtype, include_initial, OPS.sum, OPS.add, "add")


@op(*_SAMPLES, numpy=_scan_numpy(np.cumprod, 1), aliases=("cumulative_prod",))
def cumprod(x: Value, axis: int | None = None, dtype: DType | str | None = None,
            include_initial: bool = False) -> Value:
    """The product of each element and all before it along an axis.

    Args:
        x: Tensor of numbers; bool is not accepted. Integers wrap.
        axis: Axis of the product. `None` means that of the flattened tensor. Default: `None`.
        dtype: Dtype of the elements and of the result. `None` means that of `x`. Default: `None`.
        include_initial: Whether to prepend 1, so that the result is longer by one. Default:
            `False`.

    Returns:
        A tensor of the shape of `x`, a vector without an axis; or longer by one along the axis.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.cumprod(np.array([1.0, 2.0, 3.0, 4.0]))
        array([ 1.,  2.,  6., 24.])
    """
    return _along("cumprod", x, axis, dtype, include_initial, OPS.prod, OPS.mul, "mul")


@op(Sample(((3, 5),), {"axis": 0, "n": 2}, dtypes="fs"), numpy=lambda x, n=1, axis=-1: np.diff(
    x, n, axis))
def diff(x: Value, n: int = 1, axis: int = -1, prepend: Value | float | None = None,
         append: Value | float | None = None) -> Value:
    """The difference of each element and the one before it along an axis; of bools, whether they
    differ.

    Args:
        x: Tensor of any dtype. Integers wrap.
        n: Number of times to take differences. Default: `1`.
        axis: Axis of the differences. Default: `-1`.
        prepend: Number, or a tensor, to prepend to x along the axis. Default: `None`.
        append: Number, or a tensor, to append to x along the axis. Default: `None`.

    Returns:
        A tensor of the dtype of `x`, shorter by `n` along the axis.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.diff(np.array([1, 4, 9, 16]), prepend=0)
        array([1, 3, 5, 7])
    """
    [a] = normal_axes(axis, x.rank)
    if n < 0:
        raise shape_error(f"ops.diff(n={n}) is negative for", x.shape)
    end_shape = tuple(1 if k == a else m for k, m in enumerate(x.shape))
    ends = [y if y is None or (isinstance(y, Value) and y.rank) else
            OPS.broadcast_to(as_value(y, x), end_shape) for y in (prepend, append)]
    x = OPS.concat(*(y for y in (ends[0], x, ends[1]) if y is not None), axis=a)
    before = (slice(None),) * a
    difference = OPS.not_equal if x.dtype.kind == "b" else OPS.sub
    for _ in range(n):
        x = difference(OPS.slice_by(x, (*before, slice(1, None))),
                       OPS.slice_by(x, (*before, slice(None, -1))))
    return x


def _along(name: str, x: Value, axis: int | None, dtype: DType | str | None, initial: bool,
           reduce: Callable[..., Value], combine: Callable[..., Value], opcode: str) -> Value:
    x = x if dtype is None else OPS.cast(x, dtype)
    if axis is None:
        x, axis = OPS.reshape(x, (x.size,)), 0
    [a] = normal_axes(axis, x.rank)
    if initial:
        y = _along(name, x, a, None, False, reduce, combine, opcode)
        before = tuple(int(k == a) for k in range(x.rank))
        return OPS.pad(y, before, (0,) * x.rank, identity(opcode, x.dtype))
    if x.dtype is boolean:
        raise shape_error(f"ops.{name} does not take bool", fix="cast it to a number first")
    if x.size == 0:
        return x
    rows = OPS.reshape(widened(x), (math.prod(x.shape[:a]), x.shape[a],
                                    math.prod(x.shape[a + 1:])))
    y = (_totals(rows) if opcode == "add" and x.dtype.is_float else
         _scan(rows, reduce, combine, identity(opcode, x.dtype)))
    return OPS.reshape(OPS.cast(y, x.dtype), x.shape)


def _totals(x: Value, backward: bool = False) -> Value:
    """The sums along the second of three axes. Their gradient is that of the upstream gradient,
    from the other end: as fast as the sums themselves."""
    y = _scan(OPS.stop_gradient(x), OPS.sum, OPS.add, identity("add", x.dtype), backward)
    return with_gradient([y], [x], [], lambda upstreams, args, shared: [
        _totals(upstreams[0], not backward)])[0]


def _scan(x: Value, reduce: Callable[..., Value], combine: Callable[..., Value],
          neutral: Any, backward: bool = False) -> Value:
    """The scan along the second of three axes, from its last element to the first if `backward`."""
    outer, n, inner = x.shape
    if n <= BLOCK:  # axes: outer, element, result, inner
        shape = (outer, n, n, inner)
        element, result = OPS.iota((1, n, 1, 1), 1), OPS.iota((1, 1, n, 1), 2)
        counts = (OPS.less_equal(result, element) if backward else
                  OPS.less_equal(element, result))
        copies = OPS.broadcast_to(OPS.expand_dims(x, 2), shape)
        return reduce(OPS.where(counts, copies, neutral), axis=1)
    size = next((size for size in SIZES if n % size == 0), BLOCK)
    blocks = -(-n // size)
    filled = OPS.pad(x, (0, 0, 0), (0, blocks * size - n, 0), neutral)
    scanned = _scan(OPS.reshape(filled, (outer * blocks, size, inner)), reduce, combine, neutral,
                    backward)
    scanned = OPS.reshape(scanned, (outer, blocks, size, inner))
    last = scanned[:, 1:, :1] if backward else scanned[:, :-1, -1:]
    ends = _scan(OPS.reshape(last, (outer, blocks - 1, inner)), reduce, combine, neutral, backward)
    sides = [(0, int(backward == at_end), 0) for at_end in (False, True)]
    before = OPS.pad(ends, *sides, neutral)
    y = OPS.reshape(combine(scanned, OPS.expand_dims(before, 2)), (outer, blocks * size, inner))
    return y[:, :n]
