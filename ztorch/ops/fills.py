"""Tensors filled by a rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType
from ztorch.graph.op import OPS, Sample, constant, normal_axes, op, shape_error
from ztorch.graph.value import Op, Value

_FULL = Op(
    "full", "map", lambda shape, value, dtype: (shape, dtype),
    numpy=lambda shape, value, dtype: np.full(shape, value, dtype.working),
    grad=lambda o, g, y, **attrs: (),
    body=lambda e, index, shape, value, dtype: e.b.const(value, dtype))
_IOTA = Op(
    "iota", "map", lambda shape, axis, dtype: (shape, dtype),
    numpy=lambda shape, axis, dtype: np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))]), shape
    ).astype(dtype.working),
    grad=lambda o, g, y, **attrs: (),
    body=lambda e, index, shape, axis, dtype: e.b.cast(e.value(index[axis]), dtype=dtype))


def sizes(shape: Any) -> tuple[int, ...]:
    """The sizes of a shape, or of a vector of this length; a ShapeError for anything else.

    >>> sizes([2, 3]), sizes(4)
    ((2, 3), (4,))
    """
    several = isinstance(shape, Iterable) and not isinstance(shape, str) and not _is_scalar(shape)
    axes = tuple(n.item() if _is_scalar(n) else n for n in (shape if several else (shape,)))
    if any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0 for n in axes):
        raise shape_error(f"{shape!r} is not a shape", fix="use a tuple such as (2, 3)")
    return axes


def _is_scalar(x: Any) -> bool:
    """Whether x is an array of one number without axes, which an op computed from sizes."""
    return isinstance(x, np.ndarray) and x.ndim == 0


@op(Sample((), {"shape": (2, 3), "value": 1.5}), primitive=_FULL,
    numpy=lambda shape, value, dtype="float32": np.full(shape, value))
def full(shape: tuple[int, ...], value: Any, dtype: DType | str = "float32") -> Value:
    """A graph tensor with one number everywhere, or with numbers that broadcast to its shape.

    It has no tensor argument, so it always creates a graph node and never a NumPy array.

    Args:
        shape: Shape of the result.
        value: The number, or an array or list of numbers.
        dtype: Dtype of the result: a `DType` or a name such as `"float32"`. Default: `"float32"`.

    Returns:
        A value of the graph.

    Examples:
        >>> full((2, 3), 1.5)
        <full f32[2x3]>
    """
    if np.ndim(value):
        return OPS.broadcast_to(constant(value, dtype), sizes(shape))
    return _FULL(shape=sizes(shape), value=value, dtype=dtypes.dtype(dtype))


@op(Sample((), {"shape": (2, 3)}), Sample((), {"shape": (2, 3), "axis": 0}), primitive=_IOTA,
    numpy=lambda shape, axis=-1, dtype="int32": np.indices(shape, np.int32)[axis])
def iota(shape: tuple[int, ...], axis: int = -1, dtype: DType | str = "int32") -> Value:
    """A graph tensor with the position of each element along an axis.

    It has no tensor argument, so it always creates a graph node and never a NumPy array.

    Args:
        shape: Shape of the result.
        axis: Axis along which positions are counted from 0. Default: `-1`.
        dtype: Dtype of the result: a `DType` or a name such as `"float32"`. Default: `"int32"`.

    Returns:
        A value of the graph.

    Examples:
        >>> iota((2, 3))
        <iota i32[2x3]>
    """
    shape = sizes(shape)
    [at] = normal_axes(axis, len(shape))
    return _IOTA(shape=shape, axis=at, dtype=dtypes.dtype(dtype))


def _like(x: Value, value: Any, d: DType | str | None) -> Value:
    return full(x.shape, value, x.dtype if d is None else d)


@op(Sample(((2, 3),)), numpy=np.zeros_like, aliases=("empty_like",))
def zeros_like(x: Value, dtype: DType | str | None = None) -> Value:
    """Zeros of the shape of x.

    Args:
        x: Tensor of any dtype.
        dtype: Dtype of the result. `None` means that of `x`. Default: `None`.

    Returns:
        A tensor of the shape of `x`.
    """
    return _like(x, 0, dtype)


@op(Sample(((2, 3),)), numpy=np.ones_like)
def ones_like(x: Value, dtype: DType | str | None = None) -> Value:
    """Ones of the shape of x.

    Args:
        x: Tensor of any dtype.
        dtype: Dtype of the result. `None` means that of `x`. Default: `None`.

    Returns:
        A tensor of the shape of `x`.
    """
    return _like(x, 1, dtype)


@op(Sample(((2, 3),), {"value": 2.5}), numpy=lambda x, value: np.full_like(x, value))
def full_like(x: Value, value: Any, dtype: DType | str | None = None) -> Value:
    """One number everywhere, or numbers that broadcast, in the shape of x.

    Args:
        x: Tensor of any dtype.
        value: The number, or an array or list of numbers.
        dtype: Dtype of the result. `None` means that of `x`. Default: `None`.

    Returns:
        A tensor of the shape of `x`.
    """
    return _like(x, value, dtype)
