"""Sums of overlapping windows: the inverse of taking windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.windows import PLACE, Shape, Sizes, for_each, spans

# Terms of a sum over all positions, for each term of one by phases, from which the latter pays if
# the windows must be padded to whole strides: padding is a test for each element.
PHASES_PAY = 4


def _fold_numpy(x: Any, axes: Shape, lengths: Shape, stride: Sizes = 1, dilation: Sizes = 1) -> Any:
    rank = x.ndim - len(axes)
    strides, gaps = ((n,) * len(axes) if isinstance(n, int) else n for n in (stride, dilation))
    shape = list(x.shape[:rank])
    for axis, n in zip(axes, lengths, strict=True):
        shape[axis] = n
    out = np.zeros(shape, x.dtype)
    for at in np.ndindex(x.shape):
        to = list(at[:rank])
        for axis, k, s, d in zip(axes, at[rank:], strides, gaps, strict=True):
            to[axis] = to[axis] * s + k * d
        out[tuple(to)] += x[at]
    return out


@op(Sample(((2, 5, 3),), {"axes": (1,), "lengths": (8,)}),
    Sample(((3, 2, 2, 3, 2),), {"axes": (0, 1), "lengths": (7, 5), "stride": (2, 1),
                                "dilation": (1, 2)}),
    Sample(((2, 3, 2, 4, 2),), {"axes": (0, 1), "lengths": (7, 12), "stride": (2, 2)}),
    Sample(((3, 16),), {"axes": (0,), "lengths": (30,), "stride": 5}), numpy=_fold_numpy)
def overlap_add(x: Value, axes: Shape, lengths: Shape, stride: Sizes = 1,
                dilation: Sizes = 1) -> Value:
    """Adds up windows, in the form of `windows`, at the positions that they come from.

    Args:
        x: Tensor of numbers: windows, their elements as last axes.
        axes: Axes along which windows move.
        lengths: Sizes of these axes in the result.
        stride: Step of the window: an integer, or one for each axis. Default: `1`.
        dilation: Distance between the elements that a window reads: an integer, or one for each
            axis. Default: `1`.

    Returns:
        A tensor without the axes of window elements, of the dtype of `x`.

    Examples:
        >>> from ztorch.graph.evaluate import evaluate
        >>> from ztorch.graph.op import constant
        >>> evaluate([overlap_add(constant(np.ones((3, 3))), (0,), (5,))], {})[0].tolist()
        [1.0, 2.0, 3.0, 2.0, 1.0]
    """
    stride, dilation = (for_each(label, sizes, len(axes))
                        for label, sizes in (("stride", stride), ("dilation", dilation)))
    span = spans(x.shape[-len(axes):], dilation)
    for axis, n, k, s in zip(axes, lengths, span, stride, strict=True):
        if (x.shape[axis] - 1) * s + k > n:
            raise shape_error(f"{n} elements along axis {axis} are too few to fold", x.shape,
                              fix=f"they must be {(x.shape[axis] - 1) * s + k} at least")
    size = x.shape[x.rank - len(axes):]
    turns = tuple(-(-k // s) for k, s in zip(size, stride, strict=True))
    even = all(k % s == 0 for k, s in zip(size, stride, strict=True))
    if set(stride) != {1} == set(dilation) and (
            even or PHASES_PAY * math.prod(turns) <= math.prod(size)):
        return _by_phases(x, axes, lengths, stride, turns)
    placed = PLACE(x, axes=axes, lengths=lengths, stride=stride, dilation=dilation)
    return OPS.sum(placed, axis=tuple(range(len(axes))))


def _by_phases(x: Value, axes: Shape, lengths: Shape, stride: Shape, turns: Shape) -> Value:
    """The sum of windows that are a stride apart. An element is in `turns` of them at most, at
    positions that are a stride apart, so that no other position is added."""
    count, rank = len(axes), x.rank - len(axes)
    whole = tuple(t * s for t, s in zip(turns, stride, strict=True))
    x = OPS.pad(x, (0,) * x.rank, (*(0,) * rank, *(
        n - k for n, k in zip(whole, x.shape[rank:], strict=True))))
    x = OPS.reshape(x, (*x.shape[:rank], *(n for pair in zip(turns, stride, strict=True)
                                           for n in pair)))
    order: list[int] = []  # each axis of windows, and behind it that of its phases
    moving: list[int] = []
    ends = list(x.shape[:rank])
    for axis in range(rank):
        order.append(axis)
        if axis in axes:
            k = axes.index(axis)
            moving.append(len(order) - 1)
            order.append(rank + 2 * k + 1)
            ends[axis] = (x.shape[axis] + turns[k] - 1) * stride[k]
    windows = OPS.transpose(x, (*order, *(
        rank + 2 * axes.index(order[axis]) for axis in moving)))
    reach = tuple(windows.shape[a] + n - 1 for a, n in zip(moving, windows.shape[-count:],
                                                           strict=True))
    placed = PLACE(windows, axes=tuple(moving), lengths=reach, stride=(1,) * count,
                    dilation=(1,) * count)
    total = OPS.reshape(OPS.sum(placed, axis=tuple(range(count))), tuple(ends))
    shape = tuple(lengths[axes.index(a)] if a in axes else n for a, n in enumerate(ends))
    total = OPS.slice(total, (0,) * rank, (1,) * rank, tuple(map(min, total.shape, shape)))
    return OPS.pad(total, (0,) * rank, tuple(
        n - m for n, m in zip(shape, total.shape, strict=True)))
