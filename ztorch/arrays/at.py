"""`x.at[key].set(values)`: a copy of a tensor with other values at the indexed positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.arrays.indexing import for_each_axis, placed, plain
from ztorch.errors import ShapeError


class At:
    """The result of `x.at`. Index it with the same keys as the tensor.

    Args:
        x: The tensor.
    """

    __slots__ = ("x",)

    def __init__(self, x: Any):
        self.x = x

    def __getitem__(self, key: Any) -> Places:
        return Places(self.x, key)


class Places:
    """The positions of a tensor that a key selects.

    Args:
        x: The tensor.
        key: A key as in `x[key]`: integers, slices, None, Ellipsis, arrays of integers or bools.
    """

    __slots__ = ("key", "x")

    def __init__(self, x: Any, key: Any):
        self.x, self.key = x, key

    def set(self, values: Any) -> Any:
        """Returns the tensor with these positions replaced, like NumPy's `x[key] = values`. If a
        position occurs more than once, its last value stays.

        Args:
            values: The new values, which broadcast to the shape of `x[key]`.

        Returns:
            Another tensor of the same shape and dtype.

        Examples:
            >>> import ztorch as zt
            >>> zt.tensor([1, 2, 3]).at[1:].set(0).tolist()
            [1, 0, 0]
        """
        return self._changed(values, None)

    def add(self, values: Any) -> Any:
        """Returns the tensor with values added at these positions. If a position occurs more than
        once, all its values are added.

        Args:
            values: The values to add, which broadcast to the shape of `x[key]`.

        Returns:
            Another tensor of the same shape and dtype.

        Examples:
            >>> import ztorch as zt
            >>> zt.tensor([1, 2, 3]).at[[0, 0, 2]].add(10).tolist()
            [21, 2, 13]
        """
        return self._changed(values, "add")

    def _changed(self, values: Any, reduction: str | None) -> Any:
        x, call = self.x, self.x.apply_op
        if x.dtype.kind == "c":
            numbers = values if hasattr(values, "real") else np.asarray(values)
            return type(x)(Places(x.real, self.key)._changed(numbers.real, reduction),
                           Places(x.imag, self.key)._changed(numbers.imag, reduction))
        values = call("cast", _tensor_of(values, x), x.dtype)
        mask = _mask_of(self.key, x)
        if mask is not None and len(values.shape) <= len(x.shape) - len(mask.shape):
            mask = call("reshape", mask, (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))
            return call("where", mask, call("add", x, values) if reduction else values, x)
        block = _block(self.key, x)
        if block is not None and not (reduction and x.dtype.kind == "b"):
            start, counts, shape = block
            old = x[self.key] if reduction else None
            new = _broadcast(values, shape) if old is None else call("add", old, values)
            if not np.prod(counts):
                return x
            return call("slice_update", x, placed(np.array(start, np.int32), x),
                        call("reshape", new, counts))
        count = int(np.prod(x.shape))
        numbers = call("cast", x, "int32") if x.dtype.kind == "b" else x
        places = _tensor_of(np.arange(count, dtype=np.int32), x).reshape(x.shape)[self.key]
        values = call("cast", _broadcast(values, places.shape), numbers.dtype)
        if not np.prod(places.shape):
            return x
        y = call("scatter_update", numbers.reshape((count,)), places.reshape((-1, 1)),
                 values.reshape((-1,)), reduction)
        return call("cast", y.reshape(x.shape), x.dtype)


def _tensor_of(data: Any, x: Any) -> Any:
    """Numbers as a tensor in the memory of x."""
    return data if hasattr(data, "apply_op") else type(x)(data, None, x.device)


def _broadcast(values: Any, shape: tuple[int, ...]) -> Any:
    """Values broadcast to a shape; extra leading axes of size 1 are dropped, as in NumPy."""
    extra = len(values.shape) - len(shape)
    if extra > 0 and set(values.shape[:extra]) == {1}:
        values = values.reshape(values.shape[extra:])
    return values if values.shape == shape else values.apply_op("broadcast_to", values, shape)


def _mask_of(key: Any, x: Any) -> Any:
    """The key as a tensor, if it is one bool array that masks leading axes of x."""
    if isinstance(key, list):
        key = np.asarray(key)
    kind = getattr(getattr(key, "dtype", None), "kind", "")
    if kind != "b" or not key.shape:
        return None
    if tuple(key.shape) != x.shape[:len(key.shape)]:
        raise ShapeError(f"an array of bools of shape {tuple(key.shape)} for axes of sizes "
                         f"{x.shape[:len(key.shape)]}")
    return _tensor_of(key, x)


def _block(key: Any, x: Any) -> tuple[Sequence[int], tuple[int, ...], tuple[int, ...]] | None:
    """If the key selects a contiguous block: the start of the block, its size along each axis, and
    the shape of `x[key]`. Else None."""
    parts = [plain(k, lambda k: hasattr(k, "apply_op"))
             for k in (key if isinstance(key, tuple) else (key,))]
    if not all(k is None or k is Ellipsis or isinstance(k, (int, slice)) for k in parts):
        return None
    start: list[int] = []
    counts: list[int] = []
    shape: list[int] = []
    for k in for_each_axis(parts, x.shape)[0]:
        if k is None:
            shape.append(1)
            continue
        size = x.shape[len(start)]
        span = range(k % size, k % size + 1) if isinstance(k, int) else range(size)[k]
        if span.step != 1 and len(span) > 1:
            return None
        start.append(span.start if len(span) else 0)
        counts.append(len(span))
        if not isinstance(k, int):
            shape.append(len(span))
    return start, tuple(counts), tuple(shape)
