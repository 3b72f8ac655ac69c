"""The base of CUDA and HIP devices: a device with plain addresses, modules, a stream and graphs.

HIP copies CUDA's driver API: most functions have the same name but for the prefix, cu or hip. So
their common part is written here once, with names that lack it.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from ztorch.backends.device import Device
from ztorch.backends.gpu_graphs import JOINED_BYTES, GpuGraph, Transfer
from ztorch.backends.handles import DeviceInfo, DeviceModule, KernelEntry, Launch, LoadedCode
from ztorch.errors import DeviceError, OutOfMemory

WITHOUT_TIMES = 2  # a flag of events, in CUDA and in HIP


class _Current:
    """A block of calls to a device. Launches of small kernels are made of few other calls, so this
    is a class: a generator takes four times as long to enter."""

    __slots__ = ("_device",)

    def __init__(self, device: GpuDevice):
        self._device = device

    def __enter__(self) -> None:
        if self._device.lost:
            raise DeviceError(self._device._lost)
        self._device._push_current()

    def __exit__(self, *_: object) -> None:
        self._device._pop_current()


class GpuDevice(Device):
    """A device whose buffers are addresses and whose recordings are graphs.

    All work goes into one stream, but for copies to the device.
    """

    overlaps = True
    early = False  # whether launches may begin before those that they depend on have ended
    prefix: ClassVar[str]  # of the functions of the API
    other_names: ClassVar[Mapping[str, str]] = {}  # functions that are not called prefix + name
    fatal_codes: ClassVar[frozenset[str]]  # errors after which the device answers nothing else
    fatal_advice: ClassVar[str]  # the advice then

    def __init__(self, backend: str, info: DeviceInfo):
        super().__init__(backend, info)
        self._lost = ""  # the error that was fatal
        self._running = False  # whether the stream may hold work that is not done
        self._queue: Any = None  # the stream of all work
        self._copies: Any = None  # the stream of copies to the device that may overlap it
        self._events: list[Any] = []  # all that were made for these two
        self._marks: list[Any] = []  # those that nothing waits for
        self._pinned: dict[int, np.ndarray] = {}  # blocks of the host that the driver knows, by id
        self._unpinned: list[np.ndarray] = []  # those that nothing uses any more

    @property
    def lost(self) -> bool:
        return bool(self._lost)

    @property
    def queue_address(self) -> int:
        """The stream of all work, as other libraries of the process name it."""
        return int(getattr(self._queue, "value", self._queue))

    @abstractmethod
    def _ask(self, function: str, *args: Any) -> Any:
        """The results of an API call besides its status; anything else is an error."""

    @abstractmethod
    def _push_current(self) -> None:
        """Makes this device the current one of the calling thread."""

    def _pop_current(self) -> None:
        """Makes the context current again that was so before."""

    @abstractmethod
    def _move(self, target: int, source: int, nbytes: int, kind: str, queue: Any) -> None:
        """Submits a copy between addresses. `kind` is HtoD, DtoH or DtoD, for host and device."""

    @abstractmethod
    def _node(self, module: DeviceModule, launch: Launch) -> tuple[Any, Any]:
        """The driver's arguments for a launch in a graph, and the objects that must live until
        then."""

    @abstractmethod
    def _copy_node(self, graph: Any, before: list[Any], copy: Transfer) -> Any:
        """A new node of a graph that copies when those before it are done."""

    def _early_edges(self, graph: Any, sources: list[Any], targets: list[Any]) -> None:
        """Edges of a graph between kernels, whose targets begin early."""
        raise NotImplementedError

    @abstractmethod
    def _load_image(self, image: bytes) -> Any:
        """A module of the driver."""

    def _settle(self) -> None:
        """Waits for other streams of the device, if there are any: work that is submitted now comes
        after all of theirs."""

    def _call(self, name: str, *args: Any) -> Any:
        """Calls a function of the API by the name that CUDA and HIP share."""
        try:
            return self._ask(self.other_names.get(name, self.prefix + name), *args)
        except DeviceError as error:
            if any(code in str(error) for code in self.fatal_codes):
                self._lost = f"{error}. Its buffers are lost: {self.fatal_advice}"
                raise DeviceError(self._lost) from None
            raise

    def _current(self) -> _Current:
        """For a block of calls, this device is the current one of the calling thread."""
        return _Current(self)

    def _wait(self) -> None:
        """Waits for all submitted work. The device is current."""
        self._settle()
        self._call("StreamSynchronize", self._queue)
        self._running = False
        while self._unpinned:
            block = self._unpinned.pop()
            if self._pinned.pop(id(block), None) is not None:
                self._call("MemHostUnregister", block.ctypes.data)

    def _pin(self, block: np.ndarray) -> None:
        """Where the driver does not want to, copies take the detour."""
        if block.nbytes:
            with self._current(), contextlib.suppress(DeviceError):
                self._call("MemHostRegister", block.ctypes.data, block.nbytes, 0)
                self._pinned[id(block)] = block

    def _unpin(self, block: np.ndarray) -> None:
        self._unpinned.append(block)

    def _release(self, name: str, *handles: Any) -> None:
        """Gives things back once all work is done. A lost device holds nothing any more."""
        if not self._lost:
            with self._current():
                self._wait()
                for handle in handles:
                    self._call(name, handle)

    def _submit(self, recording: Any, inputs: Any, data_in: np.ndarray, outputs: Any,
                data_out: np.ndarray) -> Any:
        """All in the stream of all work. A large copy to the device has a stream of its own: it
        goes on beside launches that were submitted earlier. Small ones are part of the graph."""
        with self._current(), self._waited_for_if_it_fails():
            self._settle()
            self._running = True
            joined = recording and recording.joined(inputs, data_in, outputs, data_out, self._joins)
            if joined is not None:
                self._call("GraphLaunch", joined, self._queue)
                return self._mark(self._queue)
            if data_in.nbytes:
                self._move(inputs, data_in.ctypes.data, data_in.nbytes, "HtoD", self._copies)
                arrived = self._mark(self._copies)
                self._call("StreamWaitEvent", self._queue, arrived, 0)
                self._marks.append(arrived)  # the stream has noted it
            if recording is not None:
                self._call("GraphLaunch", recording.alone, self._queue)
            if data_out.nbytes:
                self._move(data_out.ctypes.data, outputs, data_out.nbytes, "DtoH", self._queue)
            return self._mark(self._queue)

    def _joins(self, *blocks: np.ndarray) -> bool:
        """Whether the copies of these blocks are part of a graph: small ones of blocks that the
        driver knows, which therefore stay in place."""
        return (sum(b.nbytes for b in blocks) <= JOINED_BYTES
                and all(id(b) in self._pinned or not b.nbytes for b in blocks))

    @contextlib.contextmanager
    def _waited_for_if_it_fails(self) -> Iterator[None]:
        """After a failure no copy is in flight, since the caller may free its memory."""
        try:
            yield
        except DeviceError:
            for queue in (self._copies, self._queue) if not self._lost else ():
                with contextlib.suppress(DeviceError):
                    self._call("StreamSynchronize", queue)
            raise

    def _finish(self, ticket: Any) -> None:
        with self._current():
            self._call("EventSynchronize", ticket)
        self._marks.append(ticket)

    def _mark(self, queue: Any) -> Any:
        """An event behind all that a stream holds."""
        if self._marks:
            event = self._marks.pop()
        else:
            event = self._call("EventCreate", WITHOUT_TIMES)
            self._events.append(event)
        self._call("EventRecord", event, queue)
        return event

    # -- memory ------------------------------------------------------------------------------------

    def _alloc(self, nbytes: int) -> Any:
        with self._current():
            try:
                return int(self._call("MemAlloc", nbytes))
            except OutOfMemory as error:
                free, total = self._call("MemGetInfo")
                raise OutOfMemory(f"{error}: asked for {nbytes:,} bytes, and {free:,} of {total:,} "
                                  "are free") from None

    def _free(self, handle: Any) -> None:
        self._release("MemFree", handle)

    def _write(self, handle: Any, at: int, data: np.ndarray) -> None:
        with self._current():
            self._settle()
            self._move(handle + at, data.ctypes.data, data.nbytes, "HtoD", self._queue)
            self._wait()

    def _read(self, handle: Any, at: int, out: np.ndarray) -> None:
        with self._current():
            self._settle()
            self._move(out.ctypes.data, handle + at, out.nbytes, "DtoH", self._queue)
            self._wait()

    def _copy(self, source: Any, source_at: int, target: Any, target_at: int,
              nbytes: int) -> None:
        with self._current():
            self._settle()
            self._move(target + target_at, source + source_at, nbytes, "DtoD",
                       self._queue)
            self._running = True

    def _memory(self) -> tuple[int, int]:
        with self._current():
            free, total = self._call("MemGetInfo")
            return int(free), int(total)

    # -- code --------------------------------------------------------------------------------------

    def _load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> Any:
        modules: dict[tuple[int, int], Any] = {}
        with self._current():
            try:
                for e in entries:
                    if (e.at, e.size) not in modules:
                        modules[e.at, e.size] = self._load_image(code[e.at:e.at + e.size])
                functions = [self._call("ModuleGetFunction", modules[e.at, e.size],
                                        e.name.encode()) for e in entries]
            except DeviceError:
                for module in modules.values() if not self._lost else ():
                    self._call("ModuleUnload", module)
                raise
        return LoadedCode(list(modules.values()), functions)

    def _unload(self, handle: Any) -> None:
        self._release("ModuleUnload", *handle.modules)

    def _function(self, module: DeviceModule, entry: int) -> Any:
        """The driver's function of an entry."""
        return module.handle.functions[entry]

    def _record(self, module: DeviceModule, launches: tuple[Launch, ...]) -> GpuGraph | None:
        """None if there are no launches."""
        if not launches:
            return None
        with self._current():
            return GpuGraph(self, module, launches)

    def _drop(self, handle: Any) -> None:
        if handle is not None:
            self._release("GraphExecDestroy", *handle.instances)

    def _run(self, handle: Any) -> None:
        if handle is not None:
            with self._current():
                self._settle()
                self._call("GraphLaunch", handle.alone, self._queue)
                self._running = True

    def _synchronise(self) -> None:
        with self._current():
            self._wait()
