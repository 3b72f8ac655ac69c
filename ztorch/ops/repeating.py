"""Tensors repeated as a whole or element by element."""

from __future__ import annotations

import numpy as np

from ztorch.graph.op import OPS, Sample, constant, normal_axes, op, shape_error
from ztorch.graph.value import Value


@op(Sample(((2, 3),), {"repetitions": (2, 1, 2)}, dtypes="fs"),
    numpy=lambda x, repetitions: np.tile(x, repetitions))
def tile(x: Value, repetitions: int | tuple[int, ...]) -> Value:
    """x repeated as a whole along axes: `repeat` of PyTorch's tensors.

    Args:
        x: Tensor of any dtype.
        repetitions: How often along each axis, counted from the last; or one number for the last.
            If there are more than axes, x gets axes of size 1 in front.

    Returns:
        A tensor of the dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.tile(np.array([1, 2]), 2), zt.ops.repeat(np.array([1, 2]), 2)
        (array([1, 2, 1, 2]), array([1, 1, 2, 2]))
    """
    times = tuple(map(int, np.atleast_1d(np.asarray(repetitions))))
    if any(n < 0 for n in times):
        raise shape_error(f"ops.tile cannot repeat {times} times", x.shape)
    rank = max(x.rank, len(times))
    times = (1,) * (rank - len(times)) + times
    shape = (1,) * (rank - x.rank) + x.shape
    pairs = tuple(zip(times, shape, strict=True))
    spread = OPS.broadcast_to(OPS.reshape(x, tuple(m for n in shape for m in (1, n))),
                              tuple(m for pair in pairs for m in pair))
    return OPS.reshape(spread, tuple(t * n for t, n in pairs))


@op(Sample(((2, 3),), {"repeats": 2, "axis": 1}, dtypes="fs"),
    Sample(((3, 2),), {"repeats": (1, 0, 3), "axis": 0}), numpy=np.repeat,
    aliases=("repeat_interleave",))
def repeat(x: Value, repeats: int | tuple[int, ...], axis: int | None = None) -> Value:
    """Each element of x repeated along an axis.

    Args:
        x: Tensor of any dtype.
        repeats: How often, or a tuple with a number for each position on the axis.
        axis: Axis along which elements are repeated. `None` flattens x first. Default: `None`.

    Returns:
        A tensor of the dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.repeat(np.array([7, 8]), (1, 2))
        array([7, 8, 8])
    """
    if axis is None:
        x, axis = OPS.reshape(x, (x.size,)), 0
    [a] = normal_axes(axis, x.rank)
    n = x.shape[a]
    if isinstance(repeats, (list, tuple)) and len(repeats) == 1:
        [repeats] = repeats
    if isinstance(repeats, (list, tuple)):
        if len(repeats) != n or min(repeats, default=0) < 0:
            raise shape_error(f"ops.repeat got repeats {tuple(repeats)} for the {n} elements along "
                              f"axis {axis} of", x.shape)
        if not sum(repeats):
            return x[(slice(None),) * a + (slice(0, 0),)]
        return OPS.take(x, constant(np.repeat(np.arange(n, dtype=np.int32), repeats)), a)
    if repeats < 0:
        raise shape_error(f"ops.repeat cannot repeat {repeats} times", x.shape)
    wide = (*x.shape[:a + 1], repeats, *x.shape[a + 1:])
    return OPS.reshape(OPS.broadcast_to(OPS.expand_dims(x, a + 1), wide),
                       (*x.shape[:a], n * repeats, *x.shape[a + 1:]))
