"""Ops that stack, split and broadcast several tensors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, broadcast_shapes, normal_axes, op, shape_error
from ztorch.graph.value import Value

_PARTS = ("first", "second")  # the results in samples


def _several(xs: tuple[Any, ...]) -> tuple[Value, ...]:
    """Tensors passed one by one or as one list."""
    return tuple(xs[0]) if len(xs) == 1 and isinstance(xs[0], (list, tuple)) else xs


@op(Sample(((2, 3), (2, 3)), {"axis": 1}, dtypes="fs"),
    numpy=lambda *xs, axis=0: np.stack(xs, axis))
def stack(*xs: Value, axis: int = 0) -> Value:
    """Tensors joined along a new axis.

    Args:
        *xs: Tensors of one shape and dtype, or one list of them.
        axis: Position of the new axis in the result. Default: `0`.

    Returns:
        A tensor with one more axis.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.stack(np.array([1, 2]), np.array([3, 4]))
        array([[1, 2],
               [3, 4]])
    """
    xs = _several(xs)
    if not xs:
        raise shape_error("ops.stack needs at least one tensor")
    for x in xs[1:]:
        if x.shape != xs[0].shape:
            raise shape_error("ops.stack needs tensors of one shape, not", xs[0].shape, x.shape,
                              fix="ops.concat joins along an existing axis")
    return OPS.concat(*(OPS.expand_dims(x, axis) for x in xs), axis=axis)


@op(Sample(((2, 3),)), results=_PARTS, numpy=lambda x, axis=0: tuple(np.moveaxis(x, axis, 0)),
    aliases=("unbind",))
def unstack(x: Value, axis: int = 0, num: int | None = None) -> tuple[Value, ...]:
    """The slices of x along an axis, without that axis.

    Args:
        x: Tensor of any dtype.
        axis: Axis to split. Default: `0`.
        num: Its size, as Keras has it; another size is an error. `None` accepts any. Default:
            `None`.

    Returns:
        A tuple with one tensor per element of the axis.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.unstack(np.array([[1, 2], [3, 4]]), axis=1)
        (array([1, 3]), array([2, 4]))
    """
    [a] = normal_axes(axis, x.rank)
    if num not in (None, x.shape[a]):
        raise shape_error(f"ops.unstack(num={num}) does not fit axis {axis} of", x.shape)
    return tuple(x[(slice(None),) * a + (k,)] for k in range(x.shape[a]))


@op(Sample(((5, 3),), {"indices_or_sections": (2,)}),
    Sample(((2, 6),), {"indices_or_sections": 2, "axis": 1}), results=_PARTS,
    numpy=np.split, aliases=("array_split",))
def split(x: Value, indices_or_sections: int | tuple[int, ...],
          axis: int = 0) -> tuple[Value, ...]:
    """Splits x along an axis.

    Args:
        x: Tensor of any dtype.
        indices_or_sections: Number of parts, or the positions where parts after the first start. If
            the axis does not divide evenly, the first parts are longer by one.
        axis: Axis to split. Default: `0`.

    Returns:
        A tuple of tensors of the dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.split(np.array([1, 2, 3, 4, 5]), 2)
        (array([1, 2, 3]), array([4, 5]))
    """
    [a] = normal_axes(axis, x.rank)
    n = x.shape[a]
    if isinstance(indices_or_sections, (list, tuple)):
        cuts = [0, *indices_or_sections, n]
    else:
        parts = indices_or_sections
        if parts < 1:
            raise shape_error(f"ops.split cannot make {parts} parts of", x.shape)
        size, longer = divmod(n, parts)
        cuts = [0, *itertools.accumulate(size + (k < longer) for k in range(parts))]
    before = (slice(None),) * a
    return tuple(OPS.slice_by(x, (*before, slice(low, high)))
                 for low, high in itertools.pairwise(cuts))


@op(Sample(((3,), (3,))), numpy=lambda *xs: np.hstack(xs))
def hstack(*xs: Value) -> Value:
    """Joins tensors along their second axis, or vectors along their first.

    Args:
        *xs: Tensors of one dtype, or one list of them.

    Returns:
        A tensor of the dtype of the tensors.
    """
    xs = tuple(OPS.reshape(x, (1,)) if x.rank == 0 else x for x in _several(xs))
    return OPS.concat(*xs, axis=0 if xs and xs[0].rank == 1 else 1)


@op(Sample(((3,), (3,))), numpy=lambda *xs: np.vstack(xs))
def vstack(*xs: Value) -> Value:
    """Joins tensors along their first axis; vectors become rows.

    Args:
        *xs: Tensors of one dtype, or one list of them.

    Returns:
        A tensor of the dtype of the tensors.
    """
    return OPS.concat(*(OPS.reshape(x, (1, x.size)) if x.rank < 2 else x for x in _several(xs)),
                      axis=0)


@op(Sample(((2, 1), (3,))), results=_PARTS, numpy=lambda *xs: tuple(np.broadcast_arrays(*xs)))
def broadcast_arrays(*xs: Value) -> tuple[Value, ...]:
    """Broadcasts tensors to a common shape.

    Args:
        *xs: Tensors of any dtype, or one list of them.

    Returns:
        A tuple of tensors, each of its own dtype.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.broadcast_arrays(np.array([1, 2]), np.array([[3], [4]]))[0]
        array([[1, 2],
               [1, 2]])
    """
    xs = _several(xs)
    shape = broadcast_shapes(*(x.shape for x in xs))
    return tuple(OPS.broadcast_to(x, shape) for x in xs)


@op(Sample(((3,), (2,))), results=_PARTS,
    numpy=lambda *xs, indexing="xy": tuple(np.meshgrid(*xs, indexing=indexing)))
def meshgrid(*xs: Value, indexing: str = "xy") -> tuple[Value, ...]:
    """The coordinates of a grid: one tensor per axis.

    Args:
        *xs: Vectors, one for each axis of the grid, or one list of them.
        indexing: `"xy"` if the first vector varies along the second axis, as in images; `"ij"` if
            each vector varies along its own axis. Default: `"xy"`.

    Returns:
        A tuple with one tensor per vector, all of the shape of the grid.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.meshgrid(np.array([1, 2]), np.array([3, 4]))[1]
        array([[3, 3],
               [4, 4]])
    """
    xs = _several(xs)
    if indexing not in ("xy", "ij"):
        raise shape_error(f"ops.meshgrid(indexing={indexing!r}) is neither 'xy' nor 'ij'")
    if any(x.rank > 1 for x in xs):
        raise shape_error("ops.meshgrid needs vectors, not", *(x.shape for x in xs))
    places = list(range(len(xs)))
    if indexing == "xy":
        places[:2] = places[:2][::-1]
    shape = tuple(xs[k].size for k in places)
    return tuple(OPS.broadcast_to(
        OPS.reshape(x, tuple(x.size if k == at else 1 for k in range(len(xs)))), shape)
        for x, at in zip(xs, places, strict=True))
