"""The properties of a tensor that are known before it is computed: shape, dtype and memory."""

from __future__ import annotations

import math
import operator
import weakref
from typing import Any

from ztorch.arrays.device_dtypes import need_dtype
from ztorch.dtypes import DType
from ztorch.errors import ShapeError


class Count(int):
    """The number of elements. A call, as in PyTorch, raises an error that names `x.shape`."""

    def __call__(self, axis: int | None = None) -> int:
        raise TypeError("x.size is the number of elements, as in NumPy; use x.shape"
                        + ("" if axis is None else f"[{axis}]"))


class Spec:
    """The shape, dtype and memory of a tensor. Equal specs are one object: `is` compares them."""

    __slots__ = ("__weakref__", "dtype", "kind", "memory", "nbytes", "shape", "size")

    def __init__(self, shape: tuple[int, ...], dtype: DType, memory: str, number: bool):
        self.shape = shape
        self.dtype = dtype
        self.memory = memory  # "cpu", or a device such as "vulkan:0"
        self.kind = float if number else dtype  # for promotion; `float`: a Python float
        self.size = math.prod(shape)  # elements
        self.nbytes = self.size * dtype.bytes

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


_specs: weakref.WeakValueDictionary[tuple[tuple[int, ...], DType, str, bool], Spec] = (
    weakref.WeakValueDictionary())


def spec(shape: tuple[int, ...], dtype: DType, memory: str, number: bool = False) -> Spec:
    """The unique Spec of a shape, a dtype and a memory.

    Args:
        shape: The size of each axis.
        dtype: The dtype.
        memory: "cpu", or a device such as "vulkan:0".
        number: Whether it represents a Python float. Default: `False`.

    Raises:
        Unsupported: The device lacks the dtype.

    Examples:
        >>> from ztorch.dtypes import f32
        >>> spec((2, 3), f32, "cpu") is spec((2, 3), f32, "cpu")
        True
    """
    key = shape, dtype, memory, number
    cached = _specs.get(key)
    if cached is None:
        need_dtype(memory, dtype, "hold a tensor")
        cached = _specs.setdefault(key, Spec(*key))
    return cached


def sizes_of(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of sizes.

    Raises:
        ShapeError: The argument is not an integer or a tuple of integers, or one is negative.
    """
    try:
        sizes = (operator.index(shape),) if hasattr(shape, "__index__") and not getattr(
            shape, "ndim", 0) else tuple(operator.index(n) for n in shape)
    except TypeError:
        raise ShapeError(f"a shape is an integer or a tuple of them, not {shape!r}") from None
    if any(n < 0 for n in sizes):
        raise ShapeError(f"{sizes} is not a shape: a size is negative")
    return sizes
