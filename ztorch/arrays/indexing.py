"""NumPy's indexing: integers, slices, None and Ellipsis select; integer arrays gather; bool arrays
select the elements that they mark.

The number of elements that a bool array marks determines the result's shape, so a bool array must
have values. In a function that is being compiled, it cannot be a tensor that the function computes.

Integers and slices are compiled in. A loop over rows or batches uses a different position each
time, so after a few positions the start on the leading axis becomes an input.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.arrays.cells import is_tracing
from ztorch.arrays.elements import node_of_array
from ztorch.arrays.exchange import dtype_of
from ztorch.arrays.node import Handle
from ztorch.errors import ShapeError

Compute = Callable[..., Any]  # compute(op, args, attrs) applies an op

STATIC = 4  # positions on the leading axis that are compiled in, for each pattern
PATTERNS = 4096  # cached patterns of keys


def indexed(x: Any, key: Any, compute: Compute, is_tensor: Callable[[Any], bool]) -> Any:
    """The elements of a tensor that a key selects.

    Args:
        x: The tensor.
        key: The index expression in the brackets.
        compute: Applies an op.
        is_tensor: Whether an object is a tensor.

    Raises:
        ShapeError: The key does not fit the tensor's shape, or a position is out of range.
    """
    if not isinstance(key, (tuple, np.bool_)) and getattr(key, "shape", None) == () and (
            key.dtype == bool or getattr(key.dtype, "kind", "") == "b"):  # selects all or nothing
        return indexed(x, (None,), compute, is_tensor)[:int(bool(key))]
    parts = [plain(k, is_tensor) for k in (key if isinstance(key, tuple) else (key,))]
    keys, split = for_each_axis(parts, x.shape)
    if any(isinstance(k, np.ndarray) or is_tensor(k) for k in keys):
        return _gathered(x, keys, split, compute, is_tensor)
    return _chosen(x, keys, compute)


def plain(k: Any, is_tensor: Callable[[Any], bool]) -> Any:
    """A normalized part of a key: integer, slice, None, Ellipsis, array, or integer tensor."""
    if k is None or k is Ellipsis or type(k) is int:
        return k
    if isinstance(k, slice):
        return slice(*(None if bound is None else operator.index(bound)
                       for bound in (k.start, k.stop, k.step)))
    if isinstance(k, (bool, np.bool_)):
        raise ShapeError("a tensor cannot be indexed by one bool; use ops.where to choose")
    if is_tensor(k) and k.dtype.kind != "b":
        _need_positions(k.dtype, k.dtype.is_int)
        return k
    if not hasattr(k, "__array__"):
        if hasattr(k, "__index__"):
            return operator.index(k)
        if not isinstance(k, (list, tuple, range)):
            raise ShapeError(f"a tensor cannot be indexed by {k!r}; use integers, slices, None, "
                             "Ellipsis, and arrays of integers or bools")
    array = np.asarray(k)
    if not array.size and not hasattr(k, "dtype"):
        array = array.astype(np.int64)  # an empty list
    _need_positions(array.dtype, array.dtype.kind in "iub")
    if array.dtype == bool and not array.ndim:
        raise ShapeError("a tensor cannot be indexed by one bool; use ops.where to choose")
    return array.item() if isinstance(k, np.integer) else array


def _need_positions(dtype: Any, fits: bool) -> None:
    if not fits:
        raise ShapeError(f"a tensor cannot be indexed by an array of {dtype}; use integers or "
                         "bools")


def for_each_axis(parts: list[Any], shape: tuple[int, ...]) -> tuple[list[Any], int]:
    """The key with a slice for each axis that it leaves out, and integer positions instead of
    bools; also the number of parts before the Ellipsis."""
    sizes = [k.ndim if _is_mask(k) else int(k is not None and k is not Ellipsis) for k in parts]
    used = sum(sizes)
    if used > len(shape):
        raise ShapeError(f"{used} indices for a tensor of shape {shape}")
    dots = sum(k is Ellipsis for k in parts)
    if dots > 1:
        raise ShapeError("a key has one Ellipsis at most")
    keys: list[Any] = []
    axis = split = 0
    for k in parts if dots else [*parts, Ellipsis]:
        if k is Ellipsis:
            split = len(keys)
            keys += [slice(None)] * (len(shape) - used)
            axis += len(shape) - used
            continue
        if _is_mask(k):
            if k.shape != shape[axis:axis + k.ndim]:
                raise ShapeError(f"an array of bools of shape {k.shape} for axes of sizes "
                                 f"{shape[axis:axis + k.ndim]}")
            keys += k.nonzero()
            axis += k.ndim
            continue
        if isinstance(k, int) and not -shape[axis] <= k < shape[axis]:
            raise ShapeError(f"index {k} is out of range for axis {axis} of shape {shape}")
        keys.append(k)
        axis += k is not None
    return keys, split


def _is_mask(k: Any) -> bool:
    return isinstance(k, np.ndarray) and k.dtype == bool


# -- integers and slices ---------------------------------------------------------------------------


def _chosen(x: Any, keys: list[Any], compute: Compute) -> Any:
    """The elements that integers, slices and None select."""
    size = x.shape[0] if x.shape else 0
    first, *rest = keys or [None]
    if isinstance(first, int):
        positions = np.asarray(first % size, np.int32)
    elif isinstance(first, slice) and 0 < len(part := range(size)[first]) < size:
        positions = np.arange(part.start, part.stop, part.step, dtype=np.int32)
    else:
        return _sliced(x, keys, compute)
    pattern = x.shape, x.dtype, positions.shape, getattr(first, "step", None), repr(rest)
    if size >= 1 << 31 or is_tracing() or not varies(pattern, int(positions.flat[0])):
        return _sliced(x, keys, compute)
    x = compute("take", (x, placed(positions, x)), {"axis": 0})
    return _sliced(x, [slice(None)] * positions.ndim + rest, compute)


def _sliced(x: Any, keys: list[Any], compute: Compute) -> Any:
    """The elements that integers, slices and None select, computed by a strided slice and a
    reshape. Their attributes are hashable, so the recorded call is found quickly."""
    shape = x.shape
    start, step, size, result = [], [], [], []
    axis = 0
    for k in keys:
        if k is None:
            result.append(1)
            continue
        if isinstance(k, int):
            first, by, count = k % shape[axis], 1, 1
        else:
            chosen = range(shape[axis])[k]
            count = len(chosen)
            first, by = (chosen.start if count else 0), chosen.step
            result.append(count)
        start.append(first)
        step.append(by)
        size.append(count)
        axis += 1
    if tuple(size) != shape or any(by != 1 for by in step):
        x = compute("slice", (x, tuple(start), tuple(step), tuple(size)), {})
    return x if x.shape == tuple(result) else compute("reshape", (x, tuple(result)), {})


def placed(positions: np.ndarray, x: Any) -> Handle:
    """Positions as a tensor in the memory of x."""
    handle = Handle()
    handle.node = node_of_array(positions, dtype_of(positions.dtype), x.device, copy=False)
    return handle


_starts: dict[Any, set[Any]] = {}  # the first few positions of each pattern of keys


def varies(pattern: Any, start: Any) -> bool:
    """Whether a pattern has occurred with many positions."""
    if len(_starts) >= PATTERNS:
        _starts.clear()
    starts = _starts.setdefault(pattern, set())
    if len(starts) < STATIC:
        starts.add(start)
    return start not in starts


# -- arrays ----------------------------------------------------------------------------------------


def _gathered(x: Any, keys: list[Any], split: int, compute: Compute,
              is_tensor: Callable[[Any], bool]) -> Any:
    """The elements that arrays select, together with integers, slices and None. If another part
    separates the arrays, even an Ellipsis for no axis, their axes come first in the result."""
    gathers = [isinstance(k, (int, np.ndarray)) or is_tensor(k) for k in keys]
    basic = [slice(None) if gather else k for k, gather in zip(keys, gathers, strict=True)]
    x = _sliced(x, basic, compute)
    axes = [at for at, gather in enumerate(gathers) if gather]
    arrays = [keys[at] for at in axes]
    sizes = [x.shape[at] for at in axes]
    flat = _flat(arrays, sizes, compute) if any(map(is_tensor, arrays)) else (
        placed(_flat_of_arrays(arrays, sizes), x))
    adjacent = axes == list(range(axes[0], axes[-1] + 1)) and not axes[0] < split <= axes[-1]
    first = axes[0] if adjacent else 0
    rest = [at for at in range(len(x.shape)) if at not in axes]
    order = (*rest[:first], *axes, *rest[first:])
    if order != tuple(range(len(order))):
        x = compute("transpose", (x, order), {})
    if len(axes) > 1:
        joined = math.prod(x.shape[first:first + len(axes)])
        x = compute("reshape", (x, (*x.shape[:first], joined, *x.shape[first + len(axes):])), {})
    return compute("take", (x, flat), {"axis": first})


def _flat_of_arrays(arrays: list[Any], sizes: list[int]) -> np.ndarray:
    """Positions along several axes as positions along the flattened axes."""
    narrow = np.int32 if math.prod(sizes) < 1 << 31 else np.int64
    if len(arrays) == 1:
        return np.array(_checked(arrays[0], sizes[0]), narrow)  # a copy: users may change theirs
    try:
        arrays = list(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = " and ".join(str(np.shape(a)) for a in arrays)
        raise ShapeError(f"indices of shapes {shapes} cannot be broadcast together") from None
    checked = tuple(_checked(a, n) for a, n in zip(arrays, sizes, strict=True))
    flat = np.ravel_multi_index(checked, sizes) if checked[0].size else checked[0]
    return np.asarray(flat, narrow)


def _checked(positions: np.ndarray, size: int) -> np.ndarray:
    """Positions counted from the start; raises if one is out of range."""
    lowest = positions.min() if positions.size else 0
    if lowest < -size or (positions.size and positions.max() >= size):
        outside = (positions < -size) | (positions >= size)
        raise ShapeError(f"index {positions[outside][0]} is out of range for an axis of size "
                         f"{size}")
    wide = positions.astype(np.int64, copy=False)
    return np.where(wide < 0, wide + size, wide) if lowest < 0 else wide


def _flat(arrays: list[Any], sizes: list[int], compute: Compute) -> Any:
    """Like `_flat_of_arrays`, if some of the arrays are tensors. These are not checked: positions
    out of range are clamped to the axis."""
    flat: Any = None
    narrow = "int32" if math.prod(sizes) < 1 << 31 else "int64"
    for k, n in zip(arrays, sizes, strict=True):
        if isinstance(k, (int, np.ndarray)):
            k = _checked(np.asarray(k), n).astype(narrow)
        else:
            wide = "int64" if k.dtype.bits == 64 or k.dtype.long == "uint32" else "int32"
            k = compute("clip", (compute("cast", (k, wide), {}), -n, n - 1), {})
            k = compute("cast", (k, narrow), {})
            k = compute("where", (compute("less", (k, 0), {}), compute("add", (k, n), {}), k), {})
        flat = k if flat is None else compute(
            "add", (compute("mul", (flat, n), {}), k), {})
    return flat
