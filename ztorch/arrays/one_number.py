"""Conversions of tensors with one element to Python numbers."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

from ztorch.abi import BUFFER_ALIGN, BYTES_HEAD
from ztorch.arrays.elements import stored_array
from ztorch.arrays.node import Handle
from ztorch.arrays.realize import compute
from ztorch.dtypes import DType, from_storage
from ztorch.errors import ShapeError


class OneNumber(Handle):
    """Base class of tensors: Python's conversions to numbers, for tensors with one element."""

    __slots__ = ()

    def item(self) -> float | int | bool:
        """The only element, as a Python number."""
        node = self.node
        if node.block is None:
            compute(node)
        own = node.spec
        if own.size != 1:
            raise ShapeError(f"item() takes a tensor of one element, not of shape {own.shape}")
        block = node.block
        number: float | int | bool
        if type(block) is bytes and (read := _reader(own.dtype)) is not None:
            number, = read(block, -(id(block) + BYTES_HEAD) % BUFFER_ALIGN)  # `contents_address`
        else:
            number = from_storage(own.dtype, stored_array(node)).item()
        return number

    def __bool__(self) -> bool:
        shape = self.node.spec.shape
        if self.node.block is None:
            compute(self.node)
        if self.node.spec.size != 1:
            raise ShapeError(f"a tensor of shape {shape} is neither true nor false; use any() or "
                             "all()")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        own = self.node.spec.dtype
        if not own.is_int:
            raise TypeError(f"a tensor of {own} is not an index; use an integer")
        return int(self.item())

    def __format__(self, format_spec: str) -> str:
        return format(self.item(), format_spec) if format_spec and not self.node.spec.shape else (
            format(str(self), format_spec))


@functools.cache
def _reader(d: DType) -> Callable[..., tuple[Any, ...]] | None:
    """A function that reads a number of a dtype from a bytes object; None for dtypes that NumPy
    lacks."""
    return struct.Struct(d.numpy.char).unpack_from if d.in_numpy else None
