"""The memory and ordering part of a device's library, and helpers that routines share."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.arguments import need_no_mask
from ztorch.backends import registry
from ztorch.backends.streams import Stream
from ztorch.config import whole
from ztorch.dtypes import DType
from ztorch.errors import ConfigError, DeviceError, OutOfMemory, ShapeError, Unsupported
from ztorch.library.buffers import Buffer, BufferPart, Strided, part_of
from ztorch.library.memory import (
    DeviceStore,
    HostStore,
    Store,
    contiguous,
    need_live,
    numbers_of,
)
from ztorch.library.programs import Build, Extent, Number, Options, Programs
from ztorch.library.strides import has_gaps
from ztorch.locks import new_rlock
from ztorch.runtime.devices import best_device, resolve

REDUCTIONS = ("sum", "prod", "mean", "max", "min", "argmax", "argmin")
# Kinds of dtypes that routines take, where not floats alone: f(loats), s(igned), u(nsigned).
KINDS = {**dict.fromkeys(("gemm", "batched_gemm", "gemv", "conv2d_forward"), "fsu"),
         **{f"reduce {op}": "fsu" for op in REDUCTIONS}}


class RawDevice:
    """Memory of a device, and the order of work on it.

    Attributes:
        name: Name of the device, such as "cpu" or "vulkan:0".
        options: How routines are compiled.
        programs: Its compiled routines; None before the first.
        memory_limit: Bytes that its buffers may take together; None: all of the device's memory.
    """

    def __init__(self, options: Options, memory_limit: int | None = None):
        self.memory_limit = memory_limit
        self.name = best_device() if options.device == "auto" else options.device
        self.reason = ""
        self._opened: Store | None = None
        self.programs: Programs | None = None
        self._allocated = 0
        self._freed: deque[int] = deque()  # bytes of buffers that were freed since it was counted
        self._guard = new_rlock()
        try:
            place = resolve(self.name)
            if place.ordinal is None:
                raise ConfigError(f"{self.name} names a chip; name a device, such as "
                                  f"{place.backend}:0")
            if place.backend != "cpu":
                self.name = f"{place.backend}:{place.ordinal}"
        except DeviceError as error:
            self.reason = str(error)
        self.options = options._replace(device=self.name)
        self._memory_name = "cpu" if _is_processor(self.name) else self.name

    @property
    def is_available(self) -> bool:
        """Whether the device is here; `reason` says why not."""
        return not self.reason

    @property
    def _store(self) -> Store:
        with self._guard:
            if self.reason:
                raise DeviceError(f"{self.name}: {self.reason}")
            if isinstance(self._opened, DeviceStore) and self._opened.device.closed:
                self._opened = self.programs = None
            if self._opened is None:
                if self._memory_name == "cpu":
                    self._opened = HostStore()
                else:
                    backend, _, ordinal = self.name.partition(":")
                    self._opened = DeviceStore(registry.open_device(backend, int(ordinal)))
            return self._opened

    # -- memory ------------------------------------------------------------------------------------

    def alloc(self, nbytes: int) -> Buffer:
        """Memory of unspecified contents.

        Args:
            nbytes: The size in bytes, zero or more.

        Returns:
            The buffer. It is freed by `free`, or when nothing refers to it.

        Raises:
            OutOfMemory: The device, or the limit that was set, has too little room.

        Examples:
            >>> import ztorch as zt
            >>> zt.backends.get("cpu").alloc(1024)
            <buffer of 1,024 bytes on cpu>
        """
        nbytes = whole(f"{self.name}: the bytes of a buffer", nbytes)
        store = self._store
        with self._guard:
            if self.memory_limit is not None and self.allocated + nbytes > self.memory_limit:
                raise OutOfMemory(
                    f"{self.name}: {nbytes:,} bytes, and {self.memory_limit - self.allocated:,} "
                    f"are left of the limit of {self.memory_limit:,}")
            handle = store.alloc(nbytes)
            self._allocated += nbytes
        buffer = Buffer(self._memory_name, nbytes, handle)
        buffer.finalizer = weakref.finalize(buffer, self._forgotten, nbytes, handle, store)
        buffer.finalizer.atexit = False  # devices are closed then, with all that they hold
        return buffer

    def wrap(self, array: np.ndarray) -> Buffer:
        """A buffer of the CPU that is an array's own memory: routines read and change the array.

        Args:
            array: An array in C order, which lives as long as the buffer.

        Raises:
            DeviceError: The device has separate memory.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, x = zt.backends.get("cpu"), np.array([1.0, 4.0, 9.0])
            >>> tensor = cpu.wrap(x).tensor((3,), "float64")
            >>> cpu.unary("sqrt", tensor, tensor)
            >>> x
            array([1., 2., 3.])
        """
        if not isinstance(self._store, HostStore):
            raise DeviceError(f"{self.name} has memory of its own; use alloc and upload")
        flat = numbers_of("wrap", contiguous("wrap", array)).reshape(-1).view(np.uint8)
        return Buffer(self._memory_name, array.nbytes, flat)

    def free(self, buffer: Buffer) -> None:
        """Frees a buffer once all work that was submitted is done.

        Args:
            buffer: The buffer; it cannot be used any more.

        Raises:
            DeviceError: It was freed before, or belongs to another device.
        """
        if not isinstance(buffer, Buffer):
            raise ConfigError(f"{self.name}: free takes a buffer, not {buffer!r}")
        need_live(part_of(buffer), self._memory_name)
        buffer.handle = None
        if buffer.finalizer is not None:
            buffer.finalizer()

    def _forgotten(self, nbytes: int, handle: Any, store: Store) -> None:
        """May be called in any thread, whatever locks it holds: so it takes none of ours."""
        store.free(handle)
        self._freed.append(nbytes)

    def upload(self, target: Buffer | BufferPart, array: Any) -> None:
        """Copies an array's bytes, in C order, into a buffer.

        Args:
            target: A buffer, or `buffer.at(offset)`.
            array: An array, or nested lists of numbers.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu = zt.backends.get("cpu")
            >>> buffer, out = cpu.alloc(16), np.zeros(2, np.float32)
            >>> cpu.upload(buffer.at(8), np.array([1.0, 2.0], np.float32))
            >>> cpu.download(buffer.at(8), out)
            >>> out
            array([1., 2.], dtype=float32)
        """
        need_no_mask("upload", array)
        stored = np.ascontiguousarray(numbers_of("upload", array))
        part = self._part(target, stored.nbytes)
        if stored.nbytes:
            self._store.write(part, stored)

    def download(self, source: Buffer | BufferPart, out: np.ndarray) -> None:
        """Copies a buffer's bytes into an array, once the work that computes them is done.

        Args:
            source: A buffer, or `buffer.at(offset)`.
            out: An array in C order, which is filled.
        """
        part = self._part(source, numbers_of("download", contiguous("download", out)).nbytes)
        if out.nbytes:
            self._store.read(part, out)

    def copy(self, source: Buffer | BufferPart, target: Buffer | BufferPart, nbytes: int) -> None:
        """Copies bytes between buffers of this device; within one the ranges must not overlap.

        Args:
            source: A buffer, or `buffer.at(offset)`.
            target: A buffer, or `buffer.at(offset)`.
            nbytes: How many bytes.
        """
        nbytes = whole(f"{self.name}: the bytes of a copy", nbytes)
        source_part, target_part = self._part(source, nbytes), self._part(target, nbytes)
        distance = abs(source_part.offset - target_part.offset)
        if source_part.buffer is target_part.buffer and distance < nbytes:
            raise DeviceError(f"{self.name}: a copy within one buffer whose ranges overlap")
        if nbytes:
            self._store.copy(source_part, target_part, nbytes)

    @property
    def allocated(self) -> int:
        """Bytes of all buffers of this object that were not freed."""
        with self._guard:
            while self._freed:
                self._allocated -= self._freed.popleft()
            return self._allocated

    def memory(self) -> tuple[int, int]:
        """Free bytes and all bytes of the device, as far as is known."""
        return self._store.memory()

    def _part(self, place: Buffer | BufferPart, nbytes: int) -> BufferPart:
        part = need_live(part_of(place), self._memory_name)
        if nbytes < 0 or nbytes > part.nbytes:
            raise DeviceError(f"{self.name}: bytes {part.offset} to {part.offset + nbytes} of a "
                              f"buffer of {part.buffer.nbytes}")
        return part

    # -- order -------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Waits until all submitted work is done."""
        self._store.synchronize()

    def stream(self) -> Stream:
        """A new stream: kernels launched in it are ordered among themselves only.

        `stream.event()` is a point in it, `stream.wait(event)` lets one stream wait for another,
        `event.synchronize()` lets the host wait. On devices with one queue all streams share it.
        Routines run in the device's own order, not in a stream.

        Examples:
            >>> import ztorch as zt
            >>> stream = zt.backends.get("cpu").stream()
            >>> event = stream.event()
            >>> stream.synchronize()
            >>> event.done()
            True
        """
        return self._store.stream()

    # -- shared by routines ------------------------------------------------------------------------

    def _need_dtype(self, name: str, d: DType) -> None:
        """Raises Unsupported for a kind of numbers that a routine does not take on any device."""
        if d.kind not in KINDS.get(name, "f"):
            taken = "numbers" if name in KINDS else "floats"
            raise Unsupported(f"backend {self.name} cannot do {name} of {d}: it is for {taken}")

    def _run(self, name: str, key: tuple[Any, ...], function: Build,
             reads: Mapping[str, Strided], writes: Mapping[str, Strided],
             numbers: Mapping[str, Number] | None = None) -> None:
        """Runs a routine on strided operands; see `Programs.run`.

        A result that leaves gaps reads them under the name NAME/old.
        """
        read = {n: self._extent(t) for n, t in reads.items()}
        written = {n: self._extent(t) for n, t in writes.items()}
        for n, t in writes.items():
            if has_gaps(t.shape, t.strides):
                read.setdefault(old_name(n), written[n])
        strides = tuple((n, t.shape, t.strides) for n, t in (*reads.items(), *writes.items()))
        try:
            self._ready().run(name, (*key, strides), function, read, written, numbers)
        except ShapeError as error:
            raise ShapeError(f"{name} on {self.name}: {error}") from None

    def _ready(self) -> Programs:
        """The compiled routines."""
        with self._guard:
            if self.programs is None:
                self.programs = Programs(self._store, self.options)
            return self.programs

    def _extent(self, t: Strided) -> Extent:
        return Extent(self._part(t.part, t.nbytes), t.elements, t.dtype)


def old_name(name: str) -> str:
    """The name of a result's earlier contents in a routine."""
    return f"{name}/old"


def _is_processor(name: str) -> bool:
    return name == "c" or name.partition(":")[0] == "cpu"
