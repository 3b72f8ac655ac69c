"""Ops that remove, move, swap or rotate axes."""

from __future__ import annotations

import numpy as np

from ztorch.graph.op import OPS, Sample, normal_axes, op, shape_error
from ztorch.graph.value import Value

Axes = int | tuple[int, ...]


def _order(x: Value, axes: Axes) -> tuple[int, ...]:
    """Non-negative axes, in the given order."""
    axes = tuple(axes) if isinstance(axes, (list, tuple)) else (axes,)
    order = tuple(normal_axes(a, x.rank)[0] for a in axes)
    if len(set(order)) < len(order):
        raise shape_error(f"an axis is named twice in {axes} for", x.shape)
    return order


@op(Sample(((3, 1, 4, 1),), {"axis": (1, 3)}, dtypes="fsub"), numpy=np.squeeze)
def squeeze(x: Value, axis: Axes | None = None) -> Value:
    """x without axes of size 1.

    Args:
        x: Tensor of any dtype.
        axis: Axis, a tuple of axes, or `None` for all axes of size 1. Default: `None`.

    Returns:
        A tensor of the dtype of `x`.

    Raises:
        ShapeError: A named axis has another size.
    """
    gone = [k for k, n in enumerate(x.shape) if n == 1] if axis is None else _order(x, axis)
    if any(x.shape[k] != 1 for k in gone):
        raise shape_error(f"ops.squeeze(axis={axis}) removes only axes of size 1; got", x.shape)
    return OPS.reshape(x, tuple(n for k, n in enumerate(x.shape) if k not in gone))


@op(Sample(((2, 3, 4),), {"source": 0, "destination": -1}), numpy=np.moveaxis)
def moveaxis(x: Value, source: Axes, destination: Axes) -> Value:
    """x with axes at other positions; the others keep their order.

    Args:
        x: Tensor of any dtype.
        source: Axis, or a tuple of axes.
        destination: The position of each in the result.

    Returns:
        A tensor of the dtype of `x`.
    """
    moved, places = _order(x, source), _order(x, destination)
    if len(moved) != len(places):
        raise shape_error(f"ops.moveaxis moves {len(moved)} axes to {len(places)} places in",
                          x.shape)
    stay = iter(k for k in range(x.rank) if k not in moved)
    source_of = dict(zip(places, moved, strict=True))
    order = (source_of[k] if k in source_of else next(stay) for k in range(x.rank))
    return OPS.transpose(x, tuple(order))


@op(Sample(((2, 3, 4),), {"axis1": 0, "axis2": 2}), numpy=np.swapaxes)
def swapaxes(x: Value, axis1: int, axis2: int) -> Value:
    """Swaps two axes of x: PyTorch's `transpose(dim0, dim1)`.

    Args:
        x: Tensor of any dtype.
        axis1: One axis.
        axis2: The other axis.

    Returns:
        A tensor of the dtype of `x`.
    """
    [a], [b] = normal_axes(axis1, x.rank), normal_axes(axis2, x.rank)
    return OPS.transpose(x, tuple({a: b, b: a}.get(k, k) for k in range(x.rank)))


@op(Sample(((2, 3, 4),)), numpy=lambda x: np.swapaxes(x, -1, -2))
def matrix_transpose(x: Value) -> Value:
    """The transpose of each matrix: swaps the last two axes.

    Args:
        x: Tensor of any dtype, with two axes or more.

    Returns:
        A tensor of the dtype of `x`.
    """
    if x.rank < 2:
        raise shape_error("ops.matrix_transpose needs matrices, not", x.shape)
    return swapaxes(x, -1, -2)


@op(Sample(((2, 3, 4),)), numpy=np.ravel, aliases=("flatten",))
def ravel(x: Value) -> Value:
    """x flattened to one axis, in C order.

    Args:
        x: Tensor of any dtype.

    Returns:
        A tensor of one axis and of the dtype of `x`.
    """
    return OPS.reshape(x, (x.size,))


@op(Sample(((3, 5),), {"shift": (1, -2), "axis": (0, 1)}, dtypes="fs"),
    Sample(((2, 3),), {"shift": 7}), numpy=np.roll)
def roll(x: Value, shift: Axes, axis: Axes | None = None) -> Value:
    """Shifts elements along axes. Elements that leave at one end reappear at the other.

    Args:
        x: Tensor of any dtype.
        shift: The number of positions, or a tuple with one number per axis.
        axis: Axis, or a tuple of axes. `None` shifts the flattened tensor. Default: `None`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.roll(np.array([1, 2, 3, 4]), 1)
        array([4, 1, 2, 3])
    """
    if axis is None:
        return OPS.reshape(roll(ravel(x), shift, 0), x.shape)
    axes = axis if isinstance(axis, (list, tuple)) else (axis,)
    shifts = shift if isinstance(shift, (list, tuple)) else (shift,) * len(axes)
    axes = tuple(axes) * (len(shifts) if len(axes) == 1 else 1)
    if len(shifts) != len(axes):
        raise shape_error(f"ops.roll got {len(shifts)} shifts for {len(axes)} axes of", x.shape)
    for offset, number in zip(shifts, axes, strict=True):
        [a] = normal_axes(number, x.rank)
        n = x.shape[a]
        count = int(offset) % n if n else 0
        if count:
            before = (slice(None),) * a
            end, start = (OPS.slice_by(x, (*before, part)) for part in (
                slice(n - count, n), slice(0, n - count)))
            x = OPS.concat(end, start, axis=a)
    return x


@op(Sample(((2, 3),), {"k": 1}), numpy=np.rot90)
def rot90(x: Value, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Value:
    """Rotates x by quarter turns in the plane of two axes.

    Args:
        x: Tensor of any dtype.
        k: Number of quarter turns from the first axis towards the second. Default: `1`.
        axes: The two axes. Default: `(0, 1)`.

    Returns:
        A tensor of the dtype of `x`.
    """
    a, b = _order(x, axes)
    if k % 4 == 2:
        return OPS.flip(x, (a, b))
    if k % 4 == 1:
        return swapaxes(OPS.flip(x, b), a, b)
    return OPS.flip(swapaxes(x, a, b), b) if k % 4 == 3 else x
