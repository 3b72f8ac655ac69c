"""Sums of overlapping windows: the inverse of taking windows."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.windows import PLACE, Shape, Sizes, for_each, spans

# Terms of a sum over all positions, for each term of one by phases, from which the latter pays if
# the windows must be padded to whole strides: padding is a test for each element.
PHASES_PAY = 4
PHASES_MAX = 9  # phases that are summed by themselves, each by a kernel


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
    if set(stride) != {1} == set(dilation):
        if even or PHASES_PAY * math.prod(turns) <= math.prod(size):
            return _by_phases(x, axes, lengths, stride, turns)
        if math.prod(stride) <= PHASES_MAX:
            return _phase_by_phase(x, axes, lengths, stride)
    placed = PLACE(x, axes=axes, lengths=lengths, stride=stride, dilation=dilation)
    return OPS.sum(placed, axis=tuple(range(len(axes))))


def _phase_by_phase(x: Value, axes: Shape, lengths: Shape, stride: Shape) -> Value:
    """The sum of windows, for each phase of the stride by itself: elements of different phases are
    in different numbers of windows. The phases then take turns."""
    count, rank = len(axes), x.rank - len(axes)
    size, ones = x.shape[rank:], (1,) * len(axes)
    counts = tuple(-(-n // s) for n, s in zip(lengths, stride, strict=True))
    shape = [counts[axes.index(a)] if a in axes else n for a, n in enumerate(x.shape[:rank])]
    parts = []
    for phase in itertools.product(*map(range, stride)):
        turns = tuple(len(range(p, k, s)) for p, k, s in zip(phase, size, stride, strict=True))
        if not all(turns):
            parts.append(OPS.zeros(tuple(shape), x.dtype))
            continue
        windows = OPS.slice(x, (*(0,) * rank, *phase), (*(1,) * rank, *stride),
                            (*x.shape[:rank], *turns))
        reach = tuple(max(n, x.shape[a] + t - 1)
                      for n, a, t in zip(counts, axes, turns, strict=True))
        placed = PLACE(windows, axes=axes, lengths=reach, stride=ones, dilation=ones)
        total = OPS.sum(placed, axis=tuple(range(count)))
        parts.append(OPS.slice(total, (0,) * rank, (1,) * rank, tuple(shape)))
    for axis, s in reversed([*zip(axes, stride, strict=True)]):
        joined = tuple(n * s if a == axis else m for a, (n, m) in enumerate(
            zip(shape, parts[0].shape, strict=True)))
        parts = [OPS.reshape(OPS.stack(parts[k:k + s], axis=axis + 1), joined)
                 for k in range(0, len(parts), s)]
    ends = tuple(lengths[axes.index(a)] if a in axes else n for a, n in enumerate(shape))
    return OPS.slice(parts[0], (0,) * rank, (1,) * rank, ends)


def _by_phases(x: Value, axes: Shape, lengths: Shape, stride: Shape, turns: Shape) -> Value:
    """The sum of windows that are a stride apart. An element is in `turns` of them at most, at
    positions that are a stride apart, so that no other position is added."""
    count, rank = len(axes), x.rank - len(axes)
    padded = tuple(t * s for t, s in zip(turns, stride, strict=True))
    x = OPS.pad(x, (0,) * x.rank, (*(0,) * rank, *(
        n - k for n, k in zip(padded, x.shape[rank:], strict=True))))
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
