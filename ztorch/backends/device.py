"""The contract of devices with memory of their own: what every driver answers.

A driver is one file in `drivers/` with one subclass of `Backend` and one of `Device`. What all have
in common is here and written once: opening and closing twice is harmless, a closed device, a freed
buffer, a range outside a buffer or a buffer of another device is an error before any driver hears
of it, and several threads may use a device at once.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ztorch.backends.streams import Stream
from ztorch.errors import DeviceError


class Found(NamedTuple):
    """A device that a driver sees. `kind` is gpu, integrated, virtual or cpu; `chip` is what code
    is compiled for (sm_90, gfx942), empty where one text serves all; `limits` are fields of
    `ir.limits.Grid` that this device answers otherwise than its target's row; `runs` are further
    chips whose code it takes."""

    ordinal: int
    name: str
    kind: str
    memory_bytes: int
    chip: str = ""
    limits: tuple[tuple[str, int], ...] = ()
    driver: str = ""  # its version, for people
    runs: tuple[str, ...] = ()


class Entry(NamedTuple):
    """A kernel of a program's code: its name there, the part of the code that holds it, and the
    threads of its workgroups."""

    name: str
    at: int
    size: int
    workgroup: tuple[int, int, int]


class Buffer:
    """Memory of a device. Only its device looks at `handle`."""

    __slots__ = ("device", "handle", "nbytes")

    def __init__(self, device: Device, nbytes: int, handle: Any):
        self.device, self.nbytes, self.handle = device, nbytes, handle


class Binding(NamedTuple):
    """The part of a buffer that a kernel gets as one of its memories."""

    buffer: Buffer
    at: int
    nbytes: int
    written: bool


class Launch(NamedTuple):
    """One kernel on its memories. `barrier`: it depends on a launch since the last barrier."""

    entry: int
    grid: tuple[int, int, int]
    bindings: tuple[Binding, ...]
    barrier: bool = True


@dataclass
class Module:
    """Code on a device, with a handle for each entry."""

    device: Device
    entries: tuple[Entry, ...]
    handles: Any
    live: bool = True


@dataclass
class Recording:
    """A list of launches, prepared once, to be replayed again and again."""

    device: Device
    module: Module
    launches: tuple[Launch, ...]
    buffers: frozenset[Buffer]
    handle: Any
    live: bool = True


class Backend(ABC):
    """A driver. Making one is free and never fails."""

    name: ClassVar[str]

    @abstractmethod
    def refusal(self) -> str:
        """Why there is no device; empty if there is one. An absent driver is an answer, a broken
        one an exception, of which `registry.seen` warns."""

    @abstractmethod
    def found(self) -> list[Found]:
        """The devices, in the driver's order; none if `refusal` says why."""

    @abstractmethod
    def open(self, ordinal: int = 0) -> Device:
        """The device of that number, opened."""


class Device(ABC):
    """One opened device: memory, code and the order in which things happen on it.

    All that is handed to it happens in the order in which it was handed over. Copies to and from
    the host have happened when they return; `run` may return before its launches are done, which
    `synchronise` waits for.
    """

    def __init__(self, backend: str, found: Found):
        self.backend, self.found = backend, found
        self.id = f"{backend}:{found.ordinal}"
        self._guard = threading.RLock()
        self._buffers: set[Buffer] = set()
        self._modules: list[Module] = []
        self._recordings: list[Recording] = []
        self._closed = False
        self._process = os.getpid()
        _alive.add(self)

    # -- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Gives everything back; a second time does nothing."""
        if self._closed or self._process != os.getpid():  # a forked child has nothing to close
            return
        with self._guard:
            for recording in list(self._recordings):
                self.drop(recording)
            for module in list(self._modules):
                self.unload(module)
            for buffer in list(self._buffers):
                self.free(buffer)
            self._closed = True
            self._close()

    @property
    def closed(self) -> bool:
        """Whether it can no longer be used: closed, or left behind by a fork."""
        return self._closed or self._process != os.getpid()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _need_open(self) -> None:
        self.need_own_process()
        if self._closed:
            raise DeviceError(f"device {self.id} is closed; open it again")

    def need_own_process(self) -> None:
        """An error in a forked child."""
        if self._process != os.getpid():
            raise DeviceError(f"device {self.id} was opened before this process was forked, and no "
                              "driver survives that; start processes with "
                              "multiprocessing.get_context('spawn')")

    # -- memory ----------------------------------------------------------------------------------

    def alloc(self, nbytes: int) -> Buffer:
        """So many bytes, whose contents are unspecified; `OutOfMemory` where there are not."""
        if nbytes < 1:
            raise DeviceError(f"{self.id}: a buffer of {nbytes} bytes; it needs at least one")
        with self._guard:
            self._need_open()
            buffer = Buffer(self, nbytes, self._alloc(nbytes))
            self._buffers.add(buffer)
            return buffer

    def free(self, buffer: Buffer) -> None:
        """Gives a buffer back once all that was handed over is done with it."""
        with self._guard:
            self._need(buffer, 0, 0)
            self._buffers.remove(buffer)
            for recording in [r for r in self._recordings if buffer in r.buffers]:
                self.drop(recording)
            self._free(buffer.handle)

    def write(self, buffer: Buffer, data: np.ndarray, at: int = 0) -> None:
        """The bytes of a contiguous array into a buffer, from byte `at`."""
        data = np.ascontiguousarray(data)
        with self._guard:
            self._need(buffer, at, data.nbytes)
            if data.nbytes:
                self._write(buffer.handle, at, data.reshape(-1).view(np.uint8))

    def read(self, buffer: Buffer, out: np.ndarray, at: int = 0) -> None:
        """Bytes of a buffer into a contiguous array, once what computes them is done."""
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise DeviceError(f"{self.id}: reads go into contiguous arrays that can be written")
        with self._guard:
            self._need(buffer, at, out.nbytes)
            if out.nbytes:
                self._read(buffer.handle, at, out.reshape(-1).view(np.uint8))

    def copy(self, source: Buffer, target: Buffer, nbytes: int, source_at: int = 0,
             target_at: int = 0) -> None:
        """Bytes from one buffer to another of this device; ranges of one must not overlap."""
        with self._guard:
            self._need(source, source_at, nbytes)
            self._need(target, target_at, nbytes)
            if source is target and abs(source_at - target_at) < nbytes:
                raise DeviceError(f"{self.id}: a copy within one buffer onto itself")
            if nbytes:
                self._copy(source.handle, source_at, target.handle, target_at, nbytes)

    def memory(self) -> tuple[int, int]:
        """(bytes free, bytes in all), as far as the driver knows."""
        with self._guard:
            self._need_open()
            return self._memory()

    @property
    def allocated(self) -> int:
        """Bytes in buffers that nobody has given back."""
        return sum(b.nbytes for b in self._buffers)

    def _need(self, buffer: Buffer, at: int, nbytes: int) -> None:
        self._need_open()
        if buffer.device is not self:
            raise DeviceError(f"{self.id}: this buffer belongs to {buffer.device.id}")
        if buffer not in self._buffers:
            raise DeviceError(f"{self.id}: this buffer of {buffer.nbytes} bytes was freed")
        if at < 0 or nbytes < 0 or at + nbytes > buffer.nbytes:
            raise DeviceError(f"{self.id}: bytes {at} to {at + nbytes} of a buffer of "
                              f"{buffer.nbytes}")

    # -- code ------------------------------------------------------------------------------------

    def load(self, code: bytes, entries: Sequence[Entry]) -> Module:
        """The kernels of a program's code, ready to be launched."""
        with self._guard:
            self._need_open()
            for e in entries:
                if e.at < 0 or e.size < 1 or e.at + e.size > len(code):
                    raise DeviceError(f"{self.id}: kernel {e.name!r} lies outside its code")
            module = Module(self, tuple(entries), self._load(code, tuple(entries)))
            self._modules.append(module)
            return module

    def unload(self, module: Module) -> None:
        """Gives the code back; a second time does nothing."""
        with self._guard:
            self._need_open()
            if module.live:
                module.live = False
                self._modules.remove(module)
                self._unload(module.handles)

    def record(self, module: Module, launches: Sequence[Launch]) -> Recording:
        """The launches prepared as one: a graph, a command buffer, or a list of calls."""
        with self._guard:
            self._need_open()
            if not module.live or module.device is not self:
                raise DeviceError(f"{self.id}: this code is not loaded here")
            for launch in launches:
                for b in launch.bindings:
                    self._need(b.buffer, b.at, b.nbytes)
            handle = self._record(module, tuple(launches))
            used = frozenset(b.buffer for launch in launches for b in launch.bindings)
            recording = Recording(self, module, tuple(launches), used, handle)
            self._recordings.append(recording)
            return recording

    def drop(self, recording: Recording) -> None:
        """Gives a recording back; a second time does nothing."""
        with self._guard:
            self._need_open()
            if recording.live:
                recording.live = False
                self._recordings.remove(recording)
                self._drop(recording.handle)

    def run(self, recording: Recording) -> None:
        """Replays the launches; may return before they are done."""
        with self._guard:
            self._need_live(recording)
            self._run(recording.handle)

    def _need_live(self, recording: Recording) -> None:
        self._need_open()
        if not recording.live or not recording.module.live:
            raise DeviceError(f"{self.id}: this recording was dropped, or a buffer of it freed")

    def launch(self, module: Module, launch: Launch) -> None:
        """One launch by itself."""
        with self._guard:
            recording = self.record(module, [launch])
            self.run(recording)
            self.synchronise()
            self.drop(recording)

    def synchronise(self) -> None:
        """Waits until all that was handed over is done."""
        with self._guard:
            self._need_open()
            self._synchronise()

    def stream(self) -> Stream:
        """An order of its own for launches."""
        with self._guard:
            self._need_open()
            return self._stream()

    def _stream(self) -> Stream:
        return Stream(self)

    # -- what a driver does ------------------------------------------------------------------------

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _alloc(self, nbytes: int) -> Any: ...

    @abstractmethod
    def _free(self, handle: Any) -> None: ...

    @abstractmethod
    def _write(self, handle: Any, at: int, data: np.ndarray) -> None: ...

    @abstractmethod
    def _read(self, handle: Any, at: int, out: np.ndarray) -> None: ...

    @abstractmethod
    def _copy(self, source: Any, source_at: int, target: Any, target_at: int,
              nbytes: int) -> None: ...

    @abstractmethod
    def _memory(self) -> tuple[int, int]: ...

    @abstractmethod
    def _load(self, code: bytes, entries: tuple[Entry, ...]) -> Any: ...

    @abstractmethod
    def _unload(self, handles: Any) -> None: ...

    @abstractmethod
    def _record(self, module: Module, launches: tuple[Launch, ...]) -> Any: ...

    @abstractmethod
    def _drop(self, handle: Any) -> None: ...

    @abstractmethod
    def _run(self, handle: Any) -> None: ...

    @abstractmethod
    def _synchronise(self) -> None: ...


_alive: weakref.WeakSet[Device] = weakref.WeakSet()


def _unlock() -> None:
    """In a forked child nobody runs: what another thread of the parent held is free again, so that
    the child is told, and does not wait for ever."""
    for device in _alive:
        device._guard = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)
