"""The memory of a device, as `Device` offers it, written once for all drivers."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.abi import BUFFER_ALIGN
from ztorch.backends.driver_calls import DriverCalls
from ztorch.backends.handles import DeviceBuffer, LentBuffer, Recording
from ztorch.errors import DeviceError


class DeviceMemory(DriverCalls):
    """Buffers, and copies between them and the host."""

    id: str
    _guard: threading.RLock
    _buffers: set[DeviceBuffer]
    _recordings: list[Recording]

    @abstractmethod
    def drop(self, recording: Recording) -> None: ...

    @abstractmethod
    def _need_open(self) -> None: ...

    def alloc(self, nbytes: int) -> DeviceBuffer:
        """A buffer of unspecified contents; `OutOfMemory` where there is no room for it."""
        if nbytes < 1:
            raise DeviceError(f"{self.id}: a buffer of {nbytes} bytes; it needs at least one")
        with self._guard:
            self._need_open()
            buffer = DeviceBuffer(self, nbytes, self._alloc(nbytes))
            self._buffers.add(buffer)
            return buffer

    def free(self, buffer: DeviceBuffer) -> None:
        """Frees a buffer once all submitted work is done. Recordings that use it are dropped."""
        with self._guard:
            self._need(buffer, 0, 0)
            self._buffers.remove(buffer)
            for recording in [r for r in self._recordings if buffer in r.buffers]:
                self.drop(recording)
            if isinstance(buffer, LentBuffer):
                self._synchronise()
                buffer.give_back()
            else:
                self._free(buffer.handle)

    def borrow(self, handle: Any, nbytes: int, give_back: Callable[[], None]) -> DeviceBuffer:
        """A buffer in memory that something else owns. Freeing it calls `give_back`."""
        with self._guard:
            self._need_open()
            buffer = LentBuffer(self, nbytes, handle, give_back)
            self._buffers.add(buffer)
            return buffer

    def adopt(self, block: np.ndarray) -> DeviceBuffer | None:
        """A buffer that is the bytes of an array, without a copy, for launches that read it. None
        if this device cannot work in memory of the host, or not at the address of the array. The
        buffer keeps the array alive."""
        with self._guard:
            self._need_open()
            if not block.nbytes or block.__array_interface__["data"][0] % BUFFER_ALIGN:
                return None  # compiled code loads whole vectors
            handle = self._adopt(block)
            if handle is None:
                return None
            buffer = DeviceBuffer(self, block.nbytes, handle)
            self._buffers.add(buffer)
            return buffer

    def seen(self, buffer: DeviceBuffer, nbytes: int) -> np.ndarray | None:
        """The beginning of a buffer as bytes of the host's memory, without a copy, once the work
        that computes them is done. None if the device has separate memory. The memory stays, but
        a view of it keeps the buffer from being written again."""
        with self._guard:
            self._need(buffer, 0, nbytes)
            seen = self._seen(buffer.handle)
            return None if seen is None else seen[:nbytes]

    def write(self, buffer: DeviceBuffer, data: np.ndarray, at: int = 0) -> None:
        """Copies the bytes of an array into a buffer, from byte `at` on."""
        data = np.ascontiguousarray(data)
        with self._guard:
            self._need(buffer, at, data.nbytes)
            if data.nbytes:
                self._write(buffer.handle, at, data.reshape(-1).view(np.uint8))

    def read(self, buffer: DeviceBuffer, out: np.ndarray, at: int = 0) -> None:
        """Copies bytes of a buffer, from byte `at` on, into a contiguous array, once the work that
        computes them is done."""
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise DeviceError(f"{self.id}: reads go into contiguous arrays that can be written")
        with self._guard:
            self._need(buffer, at, out.nbytes)
            if out.nbytes:
                self._read(buffer.handle, at, out.reshape(-1).view(np.uint8))

    def copy(self, source: DeviceBuffer, target: DeviceBuffer, nbytes: int, source_at: int = 0,
             target_at: int = 0) -> None:
        """Copies bytes from one buffer to another of this device; within one buffer the two ranges
        must not overlap."""
        with self._guard:
            self._need(source, source_at, nbytes)
            self._need(target, target_at, nbytes)
            if source is target and abs(source_at - target_at) < nbytes:
                raise DeviceError(f"{self.id}: a copy within one buffer onto itself")
            if nbytes:
                self._copy(source.handle, source_at, target.handle, target_at, nbytes)

    def memory(self) -> tuple[int, int]:
        """(free bytes, all bytes), as far as the driver knows."""
        with self._guard:
            self._need_open()
            return self._memory()

    @property
    def allocated(self) -> int:
        """Bytes of all buffers that were not freed."""
        return sum(b.nbytes for b in self._buffers)

    def _need(self, buffer: DeviceBuffer, at: int, nbytes: int) -> None:
        self._need_open()
        if buffer.device is not self:
            raise DeviceError(f"{self.id}: this buffer belongs to {buffer.device.id}")
        if buffer not in self._buffers:
            raise DeviceError(f"{self.id}: this buffer of {buffer.nbytes} bytes was freed")
        if at < 0 or nbytes < 0 or at + nbytes > buffer.nbytes:
            raise DeviceError(f"{self.id}: bytes {at} to {at + nbytes} of a buffer of "
                              f"{buffer.nbytes}")
