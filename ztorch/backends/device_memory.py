"""The part of `Device` that manages memory: buffers, and copies to and from them."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.abi import BUFFER_ALIGN
from ztorch.backends.driver_calls import DriverCalls
from ztorch.backends.handles import BorrowedBuffer, DeviceBuffer, Recording
from ztorch.errors import DeviceError


class DeviceMemory(DriverCalls):
    """Buffers of a device, and copies between them and the host."""

    id: str
    _guard: threading.RLock
    _buffers: set[DeviceBuffer]
    _recordings: list[Recording]

    @abstractmethod
    def drop(self, recording: Recording) -> None: ...

    @abstractmethod
    def _need_open(self) -> None: ...

    def alloc(self, nbytes: int) -> DeviceBuffer:
        """A new buffer with unspecified contents; `OutOfMemory` if there is no room for it."""
        if nbytes < 1:
            raise DeviceError(f"{self.id}: a buffer of {nbytes} bytes; it needs at least one byte")
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
            if isinstance(buffer, BorrowedBuffer):
                self._synchronize()
                buffer.release()
            else:
                self._free(buffer.handle)

    def borrow(self, handle: Any, nbytes: int, release: Callable[[], None]) -> DeviceBuffer:
        """A buffer in memory that another library owns. Freeing the buffer calls `release`."""
        with self._guard:
            self._need_open()
            buffer = BorrowedBuffer(self, nbytes, handle, release)
            self._buffers.add(buffer)
            return buffer

    def adopt(self, block: np.ndarray) -> DeviceBuffer | None:
        """A buffer that shares the memory of an array, for launches that read it.

        Returns None if this device cannot use the host's memory, or not at the array's address.
        The buffer keeps the array alive.
        """
        with self._guard:
            self._need_open()
            if not block.nbytes or block.__array_interface__["data"][0] % BUFFER_ALIGN:
                return None  # compiled code loads aligned vectors
            handle = self._adopt(block)
            if handle is None:
                return None
            buffer = DeviceBuffer(self, block.nbytes, handle)
            self._buffers.add(buffer)
            return buffer

    def host_view(self, buffer: DeviceBuffer, nbytes: int) -> np.ndarray | None:
        """The first bytes of a buffer as an array that shares its memory; None if the device has
        separate memory.

        Waits for the work that computes them. The memory stays valid after the buffer is freed,
        but the buffer must not be written while the view is in use.
        """
        with self._guard:
            self._need(buffer, 0, nbytes)
            view = self._host_view(buffer.handle)
            return None if view is None else view[:nbytes]

    def write(self, buffer: DeviceBuffer, data: np.ndarray, at: int = 0) -> None:
        """Copies the bytes of an array into a buffer, starting at byte `at`."""
        data = np.ascontiguousarray(data)
        with self._guard:
            self._need(buffer, at, data.nbytes)
            if data.nbytes:
                self._write(buffer.handle, at, data.reshape(-1).view(np.uint8))

    def read(self, buffer: DeviceBuffer, out: np.ndarray, at: int = 0) -> None:
        """Copies bytes of a buffer, starting at byte `at`, into a contiguous array. Waits for the
        work that computes them."""
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise DeviceError(f"{self.id}: a read needs an array that is contiguous and writable")
        with self._guard:
            self._need(buffer, at, out.nbytes)
            if out.nbytes:
                self._read(buffer.handle, at, out.reshape(-1).view(np.uint8))

    def copy(self, source: DeviceBuffer, target: DeviceBuffer, nbytes: int, source_at: int = 0,
             target_at: int = 0) -> None:
        """Copies bytes between two buffers of this device. Within one buffer the ranges must not
        overlap."""
        with self._guard:
            self._need(source, source_at, nbytes)
            self._need(target, target_at, nbytes)
            if source is target and abs(source_at - target_at) < nbytes:
                raise DeviceError(f"{self.id}: a copy within one buffer whose ranges overlap")
            if nbytes:
                self._copy(source.handle, source_at, target.handle, target_at, nbytes)

    def memory(self) -> tuple[int, int]:
        """The free bytes and all bytes, as far as the driver knows."""
        with self._guard:
            self._need_open()
            return self._memory()

    @property
    def allocated(self) -> int:
        """The total bytes of all buffers that are not freed."""
        return sum(b.nbytes for b in self._buffers)

    def _need(self, buffer: DeviceBuffer, at: int, nbytes: int) -> None:
        self._need_open()
        if buffer.device is not self:
            raise DeviceError(f"{self.id}: this buffer belongs to {buffer.device.id}")
        if buffer not in self._buffers:
            raise DeviceError(f"{self.id}: this buffer of {buffer.nbytes} bytes was freed before")
        if at < 0 or nbytes < 0 or at + nbytes > buffer.nbytes:
            raise DeviceError(f"{self.id}: bytes {at} to {at + nbytes} are outside a buffer of "
                              f"{buffer.nbytes} bytes")
