"""Movement: ops that only select which element to read. Fusion makes most of them free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.batching import Examples
from ztorch.graph.op import Sample, broadcast_shapes, normal_axes, op, shape_error
from ztorch.graph.value import Op, Value

Shape = tuple[int, ...]


def _sizes(shape: Any) -> Shape:
    """A shape, which for a vector may be a number."""
    return tuple(int(n) for n in (shape if np.ndim(shape) else (shape,)))


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[k + 1:]) for k in range(len(shape))]


# -- broadcast -------------------------------------------------------------------------------------


def _broadcast_infer(x: Value, shape: Shape) -> tuple[Shape, DType]:
    if broadcast_shapes(x.shape, shape) != shape:
        raise shape_error("cannot broadcast", x.shape, shape)
    return shape, x.dtype


def _broadcast_body(e: Any, index: Any, shape: Shape) -> Any:
    inner = e.shape(0)
    inner_index = index[len(index) - len(inner):]
    return e.read(0, tuple(0 if n == 1 else i for i, n in zip(inner_index, inner, strict=True)))


def _broadcast_grad(o: Any, g: Value, y: Value, x: Value, shape: Shape) -> tuple:
    extra = len(shape) - x.rank
    axes = tuple(k for k in range(len(shape))
                 if k < extra or (x.shape[k - extra] == 1 and shape[k] != 1))
    return (o.reshape(o.sum(g, axis=axes), x.shape),)


def _broadcast_batch(one: Value, many: Examples, shape: Shape) -> Value:
    [x] = many.args
    aligned = reshape(x, (many.count, *(1,) * (len(shape) - x.rank + 1), *x.shape[1:]))
    return broadcast_to(aligned, (many.count, *shape))


_BROADCAST = Op("broadcast_to", "map", _broadcast_infer,
                numpy=lambda x, shape: np.broadcast_to(x, shape),
                grad=_broadcast_grad, body=_broadcast_body, movement=True, batch=_broadcast_batch)


@op(Sample(((3, 1),), {"shape": (2, 3, 4)}, dtypes="fsub"), primitive=_BROADCAST,
    numpy=lambda x, shape: np.broadcast_to(x, shape))
def broadcast_to(x: Value, shape: int | Shape) -> Value:
    """x repeated along axes of size 1 and along new leading axes.

    Args:
        x: Tensor of any dtype.
        shape: Shape of the result, or the length of a vector.

    Returns:
        A tensor of this shape and the dtype of `x`.
    """
    shape = _sizes(shape)
    return x if x.shape == shape else _BROADCAST(x, shape=shape)


# -- reshape and transpose -------------------------------------------------------------------------


def _reshape_body(e: Any, index: Any, shape: Shape) -> Any:
    flat = sum((i * s for i, s in zip(index, _strides(shape), strict=True)), e.zero)
    inner = e.shape(0)
    return e.read(0, tuple((flat // s) % n for s, n in zip(_strides(inner), inner, strict=True)))


RESHAPE = Op("reshape", "map", lambda x, shape: (shape, x.dtype),
              numpy=lambda x, shape: np.reshape(x, shape),
              grad=lambda o, g, y, x, shape: (o.reshape(g, x.shape),),
              body=_reshape_body, movement=True,
              batch=lambda one, many, shape: reshape(many.args[0], (many.count, *shape)))


@op(Sample(((4, 6),), {"shape": (3, -1)}, dtypes="fsub"), Sample(((2, 3, 4),), {"shape": (24,)}),
    primitive=RESHAPE, numpy=lambda x, shape: np.reshape(x, shape))
def reshape(x: Value, shape: int | Shape) -> Value:
    """The same elements in another shape.

    Args:
        x: Tensor of any dtype.
        shape: Shape of the result, or the length of a vector. One axis may be -1; its size is
            inferred.

    Returns:
        A tensor of this shape and the dtype of `x`.
    """
    shape = _sizes(shape)
    if shape.count(-1) == 1:
        product = math.prod(n for n in shape if n != -1)
        rest = x.size // product if product and x.size % product == 0 else -1
        shape = tuple(rest if n == -1 else n for n in shape)
    if math.prod(shape) != x.size or any(n < 0 for n in shape):
        rows_differ = x.rank > 1 < len(shape) and math.prod(shape[1:]) == math.prod(x.shape[1:])
        raise shape_error(f"cannot reshape {x.shape} to", shape, fix=(
            f"write -1 in place of {shape[0]}, the number of rows, which varies" if rows_differ else
            f"the {x.size} elements must stay {x.size}"))
    return x if x.shape == shape else RESHAPE(x, shape=shape)


def _transpose_infer(x: Value, axes: Shape) -> tuple[Shape, DType]:
    return tuple(x.shape[a] for a in axes), x.dtype


def _transpose_body(e: Any, index: Any, axes: Shape) -> Any:
    return e.read(0, tuple(index[axes.index(k)] for k in range(len(axes))))


_TRANSPOSE = Op("transpose", "map", _transpose_infer,
                numpy=lambda x, axes: np.transpose(x, axes),
                grad=lambda o, g, y, x, axes: (
                    o.transpose(g, tuple(axes.index(k) for k in range(len(axes)))),),
                body=_transpose_body, movement=True,
                batch=lambda one, many, axes: transpose(
                    many.args[0], (0, *(a + 1 for a in axes))))


@op(Sample(((2, 3, 4),), {"axes": (2, 0, 1)}, dtypes="fsub"), Sample(((5, 7),)),
    primitive=_TRANSPOSE, numpy=lambda x, axes=None: np.transpose(x, axes),
    aliases=("permute_dims", "permute"))
def transpose(x: Value, axes: Shape | None = None) -> Value:
    """Permutes the axes of x.

    Args:
        x: Tensor of any dtype.
        axes: The axis of `x` at each axis of the result. `None` reverses the order. Default:
            `None`.

    Returns:
        A tensor of the dtype of `x`.
    """
    order = tuple(reversed(range(x.rank))) if axes is None else tuple(
        normal_axes(a, x.rank)[0] for a in axes)
    if sorted(order) != list(range(x.rank)):
        raise shape_error(f"axes {axes} are not a permutation of the axes of", x.shape)
    return x if order == tuple(range(x.rank)) else _TRANSPOSE(x, axes=order)


@op(Sample(((3, 4),), {"axis": 1}, dtypes="fsub"), numpy=np.expand_dims, aliases=("unsqueeze",))
def expand_dims(x: Value, axis: int | tuple[int, ...]) -> Value:
    """Inserts axes of size 1.

    Args:
        x: Tensor of any dtype.
        axis: Position of the new axis in the result, or a tuple of positions.

    Returns:
        A tensor of the dtype of `x`.
    """
    count = len(axis) if isinstance(axis, (list, tuple)) else 1
    new = normal_axes(axis, x.rank + count)
    sizes = iter(x.shape)
    return reshape(x, tuple(1 if k in new else next(sizes) for k in range(x.rank + count)))
