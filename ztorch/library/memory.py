"""The memory of buffers: the host's, or that of a device with separate memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceBuffer, DevicePiece
from ztorch.backends.streams import Stream
from ztorch.errors import ConfigError, DeviceError, OutOfMemory
from ztorch.host import processor
from ztorch.host.memory import aligned
from ztorch.library.buffers import BufferPart

NUMBER_BYTES = 8  # room for a number of any dtype


class Store(ABC):
    """The memory of one device, and the order of work on it."""

    @abstractmethod
    def alloc(self, nbytes: int) -> Any: ...

    @abstractmethod
    def free(self, handle: Any) -> None: ...

    @abstractmethod
    def write(self, part: BufferPart, array: np.ndarray) -> None: ...

    @abstractmethod
    def read(self, part: BufferPart, out: np.ndarray) -> None: ...

    @abstractmethod
    def copy(self, source: BufferPart, target: BufferPart, nbytes: int) -> None: ...

    @abstractmethod
    def memory(self) -> tuple[int, int]: ...

    @abstractmethod
    def synchronize(self) -> None: ...

    @abstractmethod
    def stream(self) -> Stream: ...

    @abstractmethod
    def run(self, recording: Any) -> None: ...

    # -- numbers that a routine takes at each call

    @abstractmethod
    def number(self) -> Any: ...

    @abstractmethod
    def set_number(self, place: Any, value: np.ndarray) -> None: ...


class HostStore(Store):
    """The CPU's memory. Work is done when its call returns."""

    id = "cpu"

    def alloc(self, nbytes: int) -> np.ndarray:
        if nbytes > processor.memory_bytes():
            raise OutOfMemory(f"cpu: a buffer of {nbytes:,} bytes; this machine has "
                              f"{processor.memory_bytes():,}")
        return aligned(nbytes)

    def free(self, handle: Any) -> None:
        """Its array goes with the last reference to it."""

    def bytes_of(self, part: BufferPart, nbytes: int) -> np.ndarray:
        """The bytes themselves."""
        block: np.ndarray = part.buffer.handle[part.offset:part.offset + nbytes]
        return block

    def address(self, part: BufferPart) -> int:
        """The address of the first byte of a part."""
        base: int = part.buffer.handle.__array_interface__["data"][0]
        return base + part.offset

    def write(self, part: BufferPart, array: np.ndarray) -> None:
        self.bytes_of(part, array.nbytes)[:] = array.reshape(-1).view(np.uint8)

    def read(self, part: BufferPart, out: np.ndarray) -> None:
        out.reshape(-1).view(np.uint8)[:] = self.bytes_of(part, out.nbytes)

    def copy(self, source: BufferPart, target: BufferPart, nbytes: int) -> None:
        self.bytes_of(target, nbytes)[:] = self.bytes_of(source, nbytes)

    def memory(self) -> tuple[int, int]:
        return processor.free_memory_bytes(), processor.memory_bytes()

    def synchronize(self) -> None:
        """Does nothing: work is done when its call returns."""

    def run(self, recording: Any) -> None:
        """Runs a launch that was prepared."""
        recording()

    def stream(self) -> Stream:
        return Stream(self)

    def number(self) -> np.ndarray:
        return aligned(NUMBER_BYTES)

    def set_number(self, place: np.ndarray, value: np.ndarray) -> None:
        place[:value.nbytes] = value.reshape(1).view(np.uint8)

    def number_address(self, place: np.ndarray) -> int:
        """The address of a number."""
        address: int = place.__array_interface__["data"][0]
        return address


class DeviceStore(Store):
    """The memory of a device. Work happens in the order of its calls, which may return before."""

    def __init__(self, device: Device):
        self.device = device

    def alloc(self, nbytes: int) -> Any:
        return self.device.alloc(max(nbytes, 1))

    def free(self, handle: Any) -> None:
        if not self.device.closed:
            self.device.free(handle)

    def piece(self, part: BufferPart, nbytes: int) -> DevicePiece:
        """The first bytes of a part."""
        return DevicePiece(part.buffer.handle, part.offset, nbytes)

    def write(self, part: BufferPart, array: np.ndarray) -> None:
        self.device.write(part.buffer.handle, array, part.offset)

    def read(self, part: BufferPart, out: np.ndarray) -> None:
        self.device.read(part.buffer.handle, out, part.offset)

    def copy(self, source: BufferPart, target: BufferPart, nbytes: int) -> None:
        self.device.copy(source.buffer.handle, target.buffer.handle, nbytes, source.offset,
                         target.offset)

    def memory(self) -> tuple[int, int]:
        return self.device.memory()

    def synchronize(self) -> None:
        self.device.synchronize()

    def stream(self) -> Stream:
        return self.device.stream()

    def run(self, recording: Any) -> None:
        self.device.run(recording)

    def number(self) -> DeviceBuffer:
        return self.device.alloc(NUMBER_BYTES)

    def set_number(self, place: DeviceBuffer, value: np.ndarray) -> None:
        self.device.write(place, value.reshape(1))


def need_live(part: BufferPart, owner: str) -> BufferPart:
    """Raises a DeviceError for a buffer that was freed, or that is another device's."""
    if part.buffer.handle is None:
        raise DeviceError(f"{owner}: this buffer of {part.buffer.nbytes} bytes was freed")
    if part.buffer.owner != owner:
        raise DeviceError(f"{owner}: this buffer is on {part.buffer.owner}; download it there, "
                          "and upload it here")
    return part


def numbers_of(label: str, array: Any) -> np.ndarray:
    """An array of numbers; a ConfigError for text, for Python's objects and for ragged lists."""
    try:
        numbers = np.asarray(array)
    except ValueError as error:
        raise ConfigError(f"{label}: {error}") from None
    if numbers.dtype.kind in "OSUmM":
        raise ConfigError(f"{label} copies numbers, not NumPy's {numbers.dtype}")
    return numbers


def contiguous(label: str, out: Any) -> np.ndarray:
    """An array that bytes can be copied into."""
    if not isinstance(out, np.ndarray) or not out.flags.c_contiguous or not out.flags.writeable:
        raise ConfigError(f"{label} copies into a NumPy array in C order that can be written")
    return out
