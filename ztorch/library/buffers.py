"""Raw memory of a device, and descriptions of the tensors that are in it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ztorch.dtypes import DType
from ztorch.dtypes import dtype as dtype_named
from ztorch.errors import ConfigError, DeviceError, ShapeError

Shape = tuple[int, ...]


class Buffer:
    """Bytes of a device, made by `alloc` or `wrap`. They are freed when nothing refers to them.

    Attributes:
        owner: Name of the device.
        nbytes: Size in bytes.
        handle: On the CPU an array of bytes, on a device its `DeviceBuffer`; None once freed.
        finalizer: Frees the memory; None if it belongs to something else.
    """

    __slots__ = ("__weakref__", "finalizer", "handle", "nbytes", "owner")

    def __init__(self, owner: str, nbytes: int, handle: Any):
        self.owner = owner
        self.nbytes = nbytes
        self.handle = handle
        self.finalizer: Callable[[], Any] | None = None

    def at(self, offset: int) -> BufferPart:
        """The part that begins at a byte, as an operand of products.

        Args:
            offset: The first byte.
        """
        return part_of(self, offset)

    def tensor(self, shape: Sequence[int], dtype: DType | str = "float32",
               strides: Sequence[int] | None = None, offset: int = 0) -> Strided:
        """A tensor that is in this buffer.

        Args:
            shape: The size of each axis.
            dtype: The dtype of its elements. Default: `"float32"`.
            strides: The distance between neighbors on each axis, in elements. 0 repeats an element
                along the axis; `None` means C order without gaps. Default: `None`.
            offset: Its first byte, a multiple of the size of an element. Default: `0`.

        Returns:
            The description; nothing is copied.

        Examples:
            >>> import ztorch as zt
            >>> buffer = zt.backends.get("cpu").alloc(64)
            >>> buffer.tensor((2, 3), strides=(8, 1)).elements
            11
        """
        return Strided(self, shape, dtype, strides, offset)

    def __repr__(self) -> str:
        state = "" if self.handle is not None else ", freed"
        return f"<buffer of {self.nbytes:,} bytes on {self.owner}{state}>"


class BufferPart(NamedTuple):
    """A buffer from a byte on."""

    buffer: Buffer
    offset: int  # in bytes

    @property
    def nbytes(self) -> int:
        """The bytes from there to the buffer's end."""
        return self.buffer.nbytes - self.offset


def part_of(place: Buffer | BufferPart, offset: int = 0) -> BufferPart:
    """A place in memory, moved by an offset in bytes."""
    buffer = place
    [offset] = whole_numbers("an offset", (offset,))
    if isinstance(place, BufferPart):
        buffer, offset = place.buffer, place.offset + offset
    if not isinstance(buffer, Buffer):
        raise ConfigError(f"a routine takes buffers, not {buffer!r}; make one with alloc")
    if not 0 <= offset <= buffer.nbytes:
        raise DeviceError(f"byte {offset} is outside a buffer of {buffer.nbytes} bytes")
    return BufferPart(buffer, offset)


class Strided:
    """A tensor in a buffer: shape, dtype, strides and first byte."""

    __slots__ = ("dtype", "part", "shape", "strides")

    def __init__(self, place: Buffer | BufferPart, shape: Sequence[int], dtype: DType | str,
                 strides: Sequence[int] | None = None, offset: int = 0):
        self.shape: Shape = whole_numbers("a shape", shape)
        self.dtype = dtype_named(dtype)
        self.strides: Shape = (dense(self.shape) if strides is None else
                               whole_numbers("strides", strides))
        self.part = part_of(place, offset)
        if any(n < 0 for n in self.shape):
            raise ConfigError(f"a tensor of shape {self.shape}: sizes are zero or more")
        if len(self.strides) != len(self.shape) or any(n < 0 for n in self.strides):
            raise ConfigError(f"strides {self.strides} for a tensor of shape {self.shape}: there "
                              "is one for each axis, zero or more")
        if self.part.offset % self.dtype.bytes:
            raise ConfigError(f"a tensor of {self.dtype} cannot begin at byte {self.part.offset}: "
                              f"its elements take {self.dtype.bytes} bytes")
        if self.nbytes > self.part.nbytes:
            raise DeviceError(f"{self!r} takes {self.nbytes:,} bytes, and the buffer has "
                              f"{self.part.nbytes:,} from there on")

    @property
    def elements(self) -> int:
        """The elements from the first to the last, with the gaps between them."""
        return span(self.shape, self.strides)

    @property
    def nbytes(self) -> int:
        """The bytes from the first element to the last."""
        return self.elements * self.dtype.bytes

    @property
    def size(self) -> int:
        """The number of elements, without gaps."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        gaps = "" if self.strides == dense(self.shape) else f", strides {list(self.strides)}"
        return f"{self.dtype}{list(self.shape)}{gaps}"


def whole_numbers(label: str, numbers: Sequence[int]) -> Shape:
    """Numbers as a tuple of ints, or a ConfigError that starts with the label."""
    try:
        return tuple(map(operator.index, numbers))
    except TypeError:
        raise ConfigError(f"{label} has whole numbers, not {numbers!r}") from None


def need_tensors(name: str, *optional: str, **operands: Strided | None) -> None:
    """Raises a ConfigError for an operand that is not a tensor in a buffer. Only those whose labels
    are `optional` may be None."""
    for label, t in operands.items():
        if not isinstance(t, Strided) and not (t is None and label in optional):
            raise ConfigError(f"{name}: {label} is not a tensor in a buffer: make one with "
                              f"buffer.tensor(shape), not {type(t).__name__}")


def need_dtypes(name: str, d: DType, **operands: Strided | None) -> None:
    """Raises a ConfigError for an operand of another dtype."""
    for label, t in operands.items():
        if t is not None and t.dtype is not d:
            raise ConfigError(f"{name}: {label} is {t.dtype}, and must be {d}")


def need_shape(name: str, label: str, t: Strided, shape: Sequence[int]) -> None:
    """Raises a ShapeError for an operand of another shape."""
    if t.shape != tuple(shape):
        raise ShapeError(f"{name}: {label} has shape {t.shape}, and must have {tuple(shape)}")


def dense(shape: Sequence[int]) -> Shape:
    """The strides of a tensor in C order without gaps.

    >>> dense((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(math.prod(shape[k + 1:]) for k in range(len(shape)))


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The elements from the first to the last.

    >>> span((2, 3), (8, 1)), span((2, 0), (8, 1)), span((), ())
    (11, 0, 1)
    """
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
