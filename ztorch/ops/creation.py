"""Tensors created from numbers, besides `full` and `iota`.

They have no tensor argument, so they always create graph nodes and never NumPy arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType
from ztorch.graph.op import OPS, Sample, constant, op, shape_error
from ztorch.graph.value import Value

Shape = int | tuple[int, ...]


def _full(shape: Shape, value: Any, dtype: DType | str) -> Value:
    return OPS.full(shape, value, dtype)


@op(Sample((), {"shape": (2, 3)}), numpy=np.zeros, aliases=("empty",))
def zeros(shape: Shape, dtype: DType | str = "float32") -> Value:
    """A graph tensor of zeros.

    Args:
        shape: Shape of the result, or the length of a vector.
        dtype: Dtype of the result. Default: `"float32"`.

    Returns:
        A value of the graph.

    Examples:
        >>> zeros((2, 3))
        <full f32[2x3]>
    """
    return _full(shape, 0, dtype)


@op(Sample((), {"shape": (2, 3)}), numpy=np.ones)
def ones(shape: Shape, dtype: DType | str = "float32") -> Value:
    """A graph tensor of ones.

    Args:
        shape: Shape of the result, or the length of a vector.
        dtype: Dtype of the result. Default: `"float32"`.

    Returns:
        A value of the graph.

    Examples:
        >>> ones((2, 3))
        <full f32[2x3]>
    """
    return _full(shape, 1, dtype)


@op(Sample((), {"rows": 3, "columns": 4, "k": 1}),
    numpy=lambda rows, columns=None, k=0, dtype=float: np.eye(rows, columns, k, dtype),
    aliases=("identity",))
def eye(rows: int, columns: int | None = None, k: int = 0,
        dtype: DType | str = "float32") -> Value:
    """A graph matrix with ones on a diagonal and zeros elsewhere.

    Args:
        rows: Number of rows.
        columns: Number of columns. `None` means `rows`. Default: `None`.
        k: The diagonal: 0 is the main one, positive ones are above it. Default: `0`.
        dtype: Dtype of the result. Default: `"float32"`.

    Returns:
        A value of the graph.

    Examples:
        >>> eye(3)
        <cast f32[3x3]>
    """
    columns = rows if columns is None else columns
    k = max(-rows, min(k, columns))  # beyond these, there is no diagonal
    on = OPS.equal(OPS.iota((rows, columns), 0) + k, OPS.iota((rows, columns), 1))
    return OPS.cast(on, dtype)


@op(Sample((), {"start": 2, "stop": 11, "step": 3}), Sample((), {"start": 1.0, "step": -0.25,
    "stop": -0.1}), numpy=lambda start, stop=None, step=1: np.arange(
        0 if stop is None else start, start if stop is None else stop, step))
def arange(start: float, stop: float | None = None, step: float = 1,
           dtype: DType | str | None = None) -> Value:
    """A graph vector of equally spaced numbers up to an exclusive end.

    Args:
        start: First number; the end, if `stop` is omitted.
        stop: The end. `None` counts from 0 to `start`. Default: `None`.
        step: Distance between numbers; may be negative. Default: `1`.
        dtype: Dtype of the result. `None` means int32 if all three are Python integers, otherwise
            float32. Default: `None`.

    Returns:
        A vector of the graph.

    Examples:
        >>> arange(5)
        <iota i32[5]>
    """
    are_ints = all(isinstance(n, (int, np.integer))
                   for n in (start, stop, step) if n is not None)
    low, high = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise shape_error("ops.arange has a step of 0", fix="use another step")
    n = max(0, math.ceil((high - low) / step))
    to = dtypes.dtype(dtype if dtype is not None else "int32" if are_ints else "float32")
    numbers = OPS.iota((n,), 0, "int32" if are_ints and to.is_float else to)
    if are_ints:
        return OPS.cast(_moved(numbers, low, step), to)
    return _moved(numbers, low, step)


def _moved(numbers: Value, low: float, step: float) -> Value:
    numbers = numbers if step == 1 else numbers * step
    return numbers if low == 0 else numbers + low


@op(Sample((), {"start": -1.0, "stop": 2.0, "num": 7}),
    Sample((), {"start": 0.0, "stop": 1.0, "num": 5, "endpoint": False}), numpy=np.linspace)
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True,
             dtype: DType | str = "float32", axis: int = 0, retstep: bool = False) -> Any:
    """A given number of equally spaced points, as a graph tensor.

    Args:
        start: First point, or an array of such.
        stop: Last point, or the exclusive end; or an array of such.
        num: Number of points. Default: `50`.
        endpoint: Whether the last point is `stop`. Default: `True`.
        dtype: Dtype of the result. Points are rounded down to integers, as in NumPy. Default:
            `"float32"`.
        axis: Where the points lie, for arrays. Default: `0`.
        retstep: Whether to return the distance of two points as well. Default: `False`.

    Returns:
        A vector of the graph; for arrays, a tensor with one axis more than they have. With
        `retstep`, a pair: the points and their distance, a float, NaN for a single point.

    Examples:
        >>> linspace(0.0, 1.0, 5)
        <where f32[5]>
    """
    to = dtypes.dtype(dtype)
    if retstep:
        parts = num - endpoint
        step = (np.subtract(stop, start) / parts if parts > 0 else
                np.full(np.broadcast_shapes(np.shape(start), np.shape(stop)), math.nan))
        points = linspace(start, stop, num, endpoint, dtype, axis)
        return points, constant(np.asarray(step), to if to.is_float else dtypes.f64)
    if num < 0:
        raise shape_error(f"ops.linspace(num={num}) is negative")
    if np.ndim(start) or np.ndim(stop):
        return constant(np.linspace(start, stop, num, endpoint, axis=axis, dtype=(
            np.float64 if to.is_float else to.numpy)), to)
    if not to.is_float:
        points = linspace(start, stop, num, endpoint, "float64")
        return OPS.cast(OPS.floor(points) if to.is_int else points, to)
    parts = num - endpoint
    step = (stop - start) / parts if parts > 0 else 0.0
    at = OPS.iota((num,), 0, to)
    # From the nearer end, so that both ends are exact.
    first, last = at * step + start, (at - float(parts)) * step + stop
    return OPS.where(OPS.less(at, parts / 2 + 0.25), first, last)
