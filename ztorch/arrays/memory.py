"""The memory of tensors: blocks of host or device memory, kept for reuse after they are freed.

A new block reuses a freed block of the same size. So a loop allocates nothing after its first
iteration, and the pages of large blocks are not mapped again.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ztorch.abi import BUFFER_ALIGN, align_up
from ztorch.backends import registry
from ztorch.backends.python_calls import contents_address
from ztorch.host.memory import address_of_array, aligned
from ztorch.locks import new_lock

KEPT_BYTES = 1 << 28  # limit on the freed blocks that a pool keeps for reuse
# Small blocks are rounded up to one of eight sizes per power of two, so that blocks of a shape that
# never recurs can be reused for other shapes.
ROUNDED_BYTES = 1 << 20


class Allocation:
    """A block of memory that tensors own. It returns to its pool when nothing refers to it."""

    __slots__ = ("handle", "memory", "nbytes", "place")

    def __init__(self, memory: Pool | LentMemory | None, nbytes: int, handle: Any, place: Any):
        self.memory = memory  # None: the handle's owner frees it
        self.nbytes = nbytes
        self.handle = handle  # host: an array; device: its buffer
        self.place = place  # as programs take it: a host address, or a device buffer

    def detached(self) -> Any:
        """The handle, which does not return to the pool any more."""
        self.memory = None
        return self.handle

    def __del__(self) -> None:
        pool = self.memory
        if pool is not None:
            pool.take_back(self.nbytes, self.handle, self.place)


# The memory of a tensor. A small one on the host is a bytes object, because Python allocates and
# frees those faster than a pool does. Compiled code fills it before anybody else sees it.
Block = Allocation | bytes


def place_of(block: Block) -> Any:
    """The address of a block, as programs take it."""
    return contents_address(block) if type(block) is bytes else block.place  # type: ignore[union-attr]


def is_owned(block: Block) -> bool:
    """Whether a block belongs to a pool here: nobody else writes to it."""
    return type(block) is bytes or isinstance(block.memory, Pool)  # type: ignore[union-attr]


def _block_size(nbytes: int) -> int:
    """The rounded block size for a number of bytes."""
    step = max(BUFFER_ALIGN, 1 << nbytes.bit_length() >> 4) if nbytes < ROUNDED_BYTES else (
        BUFFER_ALIGN)
    return align_up(nbytes, step) or step


class Pool(ABC):
    """The memory of one device."""

    closed = False  # whether it can no longer be used

    def __init__(self, name: str):
        self.name = name
        self._free: dict[int, list[Any]] = {}  # (handle, place) of freed blocks, by size
        self._free_bytes = 0  # total bytes in `_free`

    def alloc(self, nbytes: int) -> Allocation:
        """A block with unspecified contents."""
        return self._take(_block_size(nbytes))

    def allocator(self, nbytes: int) -> Callable[[], Allocation]:
        """A function that returns a new block of `nbytes` bytes, with unspecified contents, at each
        call."""
        return partial(self._take, _block_size(nbytes))

    def _take(self, size: int) -> Allocation:
        try:
            handle, place = self._free[size].pop()
            self._free_bytes -= size
        except (KeyError, IndexError):
            handle = self._alloc(size)
            place = self._place(handle)
        return Allocation(self, size, handle, place)

    def take_back(self, nbytes: int, handle: Any, place: Any) -> None:
        """Keeps a freed block for reuse; above the limit, releases all kept blocks."""
        total = self._free_bytes + nbytes
        if total > KEPT_BYTES:
            self.release()
            if nbytes > KEPT_BYTES:
                self._release(handle)
                return
            total = nbytes
        self._free_bytes = total
        try:
            self._free[nbytes].append((handle, place))
        except KeyError:
            self._free.setdefault(nbytes, []).append((handle, place))

    def release(self) -> None:
        """Returns all freed blocks to the system."""
        free, self._free, self._free_bytes = self._free, {}, 0
        for handles in free.values():
            with contextlib.suppress(IndexError):  # another thread may take the last one
                while True:
                    self._release(handles.pop()[0])

    def upload(self, array: np.ndarray) -> Allocation:
        """A block with a copy of an array's elements, in C order."""
        block = self.alloc(array.nbytes)
        self.write(block, array)
        return block

    def copied(self, block: Allocation, nbytes: int) -> Allocation:
        """A block with a copy of the first `nbytes` bytes of another block in this memory."""
        array = np.empty(nbytes, np.uint8)
        self.download(block, array)
        return self.upload(array)

    @abstractmethod
    def lend(self, array: np.ndarray) -> Allocation | None:
        """A block that shares the array's memory; None if compiled code cannot read it in place."""

    def host_view(self, block: Allocation, nbytes: int) -> np.ndarray | None:
        """The first `nbytes` bytes of a block in host memory; None if the host cannot access it."""
        return None

    @abstractmethod
    def write(self, block: Allocation, array: np.ndarray) -> None:
        """Copies an array's elements, in C order, to the start of a block."""

    @abstractmethod
    def download(self, block: Allocation, out: np.ndarray) -> None:
        """Copies the start of a block into a contiguous array."""

    @abstractmethod
    def _alloc(self, nbytes: int) -> Any: ...

    @abstractmethod
    def _release(self, handle: Any) -> None: ...

    def _place(self, handle: Any) -> Any:
        return handle


class HostPool(Pool):
    """The memory of the CPU."""

    def write(self, block: Allocation, array: np.ndarray) -> None:
        np.copyto(_bytes_of(block)[:array.nbytes].view(array.dtype).reshape(array.shape), array)

    def download(self, block: Allocation, out: np.ndarray) -> None:
        out.reshape(-1).view(np.uint8)[:] = _bytes_of(block)[:out.nbytes]

    def lend(self, array: np.ndarray) -> Allocation | None:
        flags = array.flags
        if not (flags.aligned and flags.c_contiguous and array.dtype.isnative):
            return None
        return Allocation(None, array.nbytes, array, address_of_array(array))

    def _alloc(self, nbytes: int) -> np.ndarray:
        return aligned(nbytes)

    def _release(self, handle: Any) -> None:
        pass  # the array owns the memory

    def _place(self, handle: np.ndarray) -> int:
        return address_of_array(handle)


def _bytes_of(block: Allocation) -> np.ndarray:
    """The bytes of a host block, which may be an array of another dtype that was lent."""
    elements: np.ndarray = block.handle
    return elements.reshape(-1).view(np.uint8)


class DevicePool(Pool):
    """The memory of a device other than the CPU."""

    def __init__(self, name: str):
        super().__init__(name)
        backend, _, ordinal = name.partition(":")
        self.device = registry.open_device(backend, int(ordinal))

    def write(self, block: Allocation, array: np.ndarray) -> None:
        self.device.write(block.handle, array)

    def download(self, block: Allocation, out: np.ndarray) -> None:
        self.device.read(block.handle, out)

    def lend(self, array: np.ndarray) -> Allocation | None:
        if not (array.flags.c_contiguous and array.dtype.isnative):
            return None
        buffer = self.device.adopt(array.reshape(-1).view(np.uint8))
        if buffer is None:
            return None
        return Allocation(LentMemory(self), array.nbytes, buffer, buffer)

    def host_view(self, block: Allocation, nbytes: int) -> np.ndarray | None:
        return self.device.host_view(block.handle, nbytes) if nbytes else None

    def copied(self, block: Allocation, nbytes: int) -> Allocation:
        copy = self.alloc(nbytes)
        if nbytes:
            self.device.copy(block.handle, copy.handle, nbytes)
        return copy

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Whether the device is closed, which freed all of its memory."""
        return self.device.closed

    def _alloc(self, nbytes: int) -> Any:
        return self.device.alloc(nbytes)

    def _release(self, handle: Any) -> None:
        if not self.device.closed:
            self.device.free(handle)


class LentMemory:
    """Takes borrowed blocks back and releases them to their owner."""

    def __init__(self, pool: DevicePool):
        self._device = pool.device

    def take_back(self, nbytes: int, handle: Any, place: Any) -> None:
        """Releases the block."""
        if not self._device.closed:
            self._device.free(handle)


_memories: dict[str, Pool] = {}
_making = new_lock()


def memory(name: str) -> Pool:
    """The memory called "cpu", or the memory of a device such as "vulkan:0"."""
    pool = _memories.get(name)
    if pool is None or pool.closed:
        with _making:
            pool = _memories.get(name)
            if pool is None or pool.closed:
                pool = HostPool("cpu") if name == "cpu" else DevicePool(name)
                _memories[name] = pool
    return pool
