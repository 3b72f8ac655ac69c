"""NumPy's indexing: integers, slices, None and Ellipsis choose; arrays of integers gather; arrays
of bools gather what they mark.

How many elements bools mark is part of the result's shape, so an array of bools must have values;
in a function that is being compiled it cannot be a tensor that the function computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.errors import ShapeError

Compute = Callable[..., Any]  # compute(op, args, attrs): calls an op


def indexed(x: Any, key: Any, compute: Compute, is_tensor: Callable[[Any], bool]) -> Any:
    """The elements of a tensor that a key chooses.

    Args:
        x: The tensor.
        key: What is between the brackets.
        compute: Calls an op.
        is_tensor: Whether something is a tensor.

    Raises:
        ShapeError: The key does not fit the tensor's shape, or a position is out of range.
    """
    keys = [_plain(k, is_tensor) for k in (key if isinstance(key, tuple) else (key,))]
    keys = [part for k in keys for part in _positions(k)]
    if not any(_is_array(k, is_tensor) for k in keys):
        return compute("slice_by", (x, tuple(keys)), {})
    keys = _without_ellipsis(keys, x.shape)
    gathers = [_is_array(k, is_tensor) or isinstance(k, int) for k in keys]
    basic = tuple(slice(None) if gather else k for k, gather in zip(keys, gathers, strict=True))
    x = compute("slice_by", (x, basic), {})
    axes = [at for at, gather in enumerate(gathers) if gather]
    arrays = [keys[at] for at in axes]
    if not any(map(is_tensor, arrays)):
        arrays = list(np.broadcast_arrays(*arrays))
        sizes = [x.shape[at] for at in axes]
        arrays = [_checked(a, n) for a, n in zip(arrays, sizes, strict=True)]
        flat = np.ravel_multi_index(arrays, sizes) if arrays[0].size else arrays[0]
    else:
        flat = _flat(arrays, [x.shape[at] for at in axes], compute)
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    rest = [at for at in range(len(x.shape)) if at not in axes]
    order = (*rest[:first], *axes, *rest[first:])
    if order != tuple(range(len(order))):
        x = compute("transpose", (x, order), {})
    if len(axes) > 1:
        joined = math.prod(x.shape[first:first + len(axes)])
        x = compute("reshape", (x, (*x.shape[:first], joined, *x.shape[first + len(axes):])), {})
    return compute("take", (x, flat), {"axis": first})


def _plain(k: Any, is_tensor: Callable[[Any], bool]) -> Any:
    """A part of a key: an array for a list, and for a tensor of bools, which must have values."""
    if is_tensor(k):
        return k.numpy() if k.dtype.kind == "b" else k
    if isinstance(k, (list, np.ndarray)):
        array = np.asarray(k)
        if array.dtype.kind not in "iub" and array.size:
            raise ShapeError(f"a tensor cannot be indexed by an array of {array.dtype}; use "
                             "integers or bools")
        return array if array.size else array.astype(np.int64)
    return int(k) if isinstance(k, np.integer) else k


def _positions(k: Any) -> list[Any]:
    """An array of bools as an array of positions for each of its axes."""
    if isinstance(k, np.ndarray) and k.dtype == bool:
        if not k.ndim:
            raise ShapeError("a tensor cannot be indexed by one bool; use ops.where to choose")
        return list(k.nonzero())
    return [k]


def _is_array(k: Any, is_tensor: Callable[[Any], bool]) -> bool:
    return isinstance(k, np.ndarray) or is_tensor(k)


def _without_ellipsis(keys: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Keys with a slice for each axis that they leave out."""
    used = sum(k is not None and k is not Ellipsis for k in keys)
    if used > len(shape):
        raise ShapeError(f"{used} indices for a tensor of shape {shape}")
    missing = [slice(None)] * (len(shape) - used)
    dots = [at for at, k in enumerate(keys) if k is Ellipsis]
    at = dots[0] if dots else len(keys)
    return [*keys[:at], *missing, *keys[at + len(dots):]]


def _checked(positions: np.ndarray, size: int) -> np.ndarray:
    """Positions counted from the start; an error if one is out of range."""
    outside = (positions < -size) | (positions >= size)
    if outside.any():
        raise ShapeError(f"index {positions[outside][0]} is out of range for an axis of size "
                         f"{size}")
    return np.where(positions < 0, positions + size, positions)


def _flat(arrays: list[Any], sizes: list[int], compute: Compute) -> Any:
    """Positions along several axes as positions along all of them joined. Those of tensors are not
    checked: what is out of range is taken to the nearest end of each axis."""
    flat: Any = None
    for k, n in zip(arrays, sizes, strict=True):
        k = compute("cast", (k, "int32"), {}) if not isinstance(k, (int, np.ndarray)) else (
            np.asarray(k, np.int32))
        k = compute("where", (compute("less", (k, 0), {}), compute("add", (k, n), {}), k), {})
        k = compute("clip", (k, 0, n - 1), {})
        flat = k if flat is None else compute(
            "add", (compute("mul", (flat, n), {}), k), {})
    return flat
