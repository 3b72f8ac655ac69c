"""The base class of CUDA and HIP devices, whose buffers are addresses and recordings are graphs.

HIP copies CUDA's driver API: most functions have the same name after the prefix, cu or hip. Here
they are called by the name without it.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from ztorch.backends.device import Device
from ztorch.backends.gpu_graphs import GRAPH_COPY_BYTES, GpuGraph, Transfer
from ztorch.backends.handles import DeviceInfo, DeviceModule, KernelEntry, Launch, LoadedCode
from ztorch.errors import DeviceError, OutOfMemory

DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING and hipEventDisableTiming


class _Current:
    """A context manager that makes a device current. It is a class because a generator takes four
    times as long to enter, which matters for small kernels."""

    __slots__ = ("_device",)

    def __init__(self, device: GpuDevice):
        self._device = device

    def __enter__(self) -> None:
        self._device._push_current()

    def __exit__(self, *_: object) -> None:
        self._device._pop_current()


NOTHING = contextlib.nullcontext()  # for a device that is current already


class GpuDevice(Device):
    """A device of CUDA or HIP. All work but large copies to it goes into one stream."""

    overlaps = True
    early = False  # whether a launch may start before the launches that it depends on have ended
    prefix: ClassVar[str]  # prefix of the API's functions
    other_names: ClassVar[Mapping[str, str]] = {}  # functions whose name is not prefix + name
    fatal_codes: ClassVar[frozenset[str]]  # errors that make the device unusable
    fatal_advice: ClassVar[str]  # advice for the message of such an error
    call_driver: ClassVar[Callable[..., Any]]  # takes the device's id, a function, its arguments

    def __init__(self, backend: str, info: DeviceInfo):
        super().__init__(backend, info)
        self._lost = ""  # the message of a fatal error
        self._running = False  # whether the main stream may hold unfinished work
        self._queue: Any = None  # the main stream
        self._copies: Any = None  # the stream of copies to the device, which may overlap it
        self._events: list[Any] = []  # all events of these two streams
        self._free_events: list[Any] = []  # those that can be recorded again
        self._pinned: dict[int, np.ndarray] = {}  # pinned blocks of the host, by id
        self._unpinned: list[np.ndarray] = []  # blocks to unpin at the next wait

    @property
    def lost(self) -> bool:
        return bool(self._lost)

    @property
    def queue_address(self) -> int:
        """The handle of the main stream as a number, by which other libraries know it."""
        return int(getattr(self._queue, "value", self._queue))

    def _is_current(self) -> bool:
        """Whether calls of this thread are for this device already."""
        return False

    @abstractmethod
    def _push_current(self) -> None:
        """Makes this device the current one of the calling thread."""

    def _pop_current(self) -> None:
        """Makes the previous context current again."""

    @abstractmethod
    def _copy_async(self, target: int, source: int, nbytes: int, kind: str, queue: Any) -> None:
        """Submits a copy between addresses. `kind` is HtoD, DtoH or DtoD (H host, D device)."""

    @abstractmethod
    def _node(self, module: DeviceModule, launch: Launch) -> tuple[Any, Any]:
        """The driver's parameters of a launch in a graph, and an object that keeps the memory of
        these alive."""

    def _call_node(self, graph: Any, before: list[Any], module: DeviceModule, launch: Launch,
                   place: int) -> Any:
        """Adds a node that calls another library, after `place` calls since the last barrier."""
        raise NotImplementedError

    @abstractmethod
    def _copy_node(self, graph: Any, before: list[Any], copy: Transfer) -> Any:
        """Adds a node to a graph that copies after the nodes `before`."""

    def _early_edges(self, graph: Any, sources: list[Any], targets: list[Any]) -> None:
        """Edges of a graph between kernels, whose targets begin early."""
        raise NotImplementedError

    def _run_at_once(self, node: Any, module: DeviceModule, launch: Launch) -> None:
        """Has the workgroups of a launch of a graph run all at once."""
        raise NotImplementedError

    @abstractmethod
    def _load_image(self, image: bytes) -> Any:
        """Loads a part of a program's code as a module of the driver."""

    def _wait_for_streams(self) -> None:
        """Waits for the work of all `Stream` objects, before other work is submitted."""

    def _call(self, name: str, *args: Any) -> Any:
        """Calls a function by the name that CUDA and HIP share, and notes fatal errors."""
        try:
            function = self.other_names.get(name) or self.prefix + name
            return self.call_driver(self.id, function, *args)
        except DeviceError as error:
            if any(code in str(error) for code in self.fatal_codes):
                self._lost = f"{error}. Its buffers are lost: {self.fatal_advice}"
                raise DeviceError(self._lost) from None
            raise

    def _current(self) -> contextlib.AbstractContextManager[None]:
        """A context manager in which this device is current for the calling thread."""
        if self._lost:
            raise DeviceError(self._lost)
        return NOTHING if self._is_current() else _Current(self)

    def _wait(self) -> None:
        """Waits for all submitted work, then unpins blocks. The device must be current."""
        self._wait_for_streams()
        self._call("StreamSynchronize", self._queue)
        self._running = False
        while self._unpinned:
            block = self._unpinned.pop()
            if self._pinned.pop(id(block), None) is not None:
                self._call("MemHostUnregister", block.ctypes.data)

    def _pin(self, block: np.ndarray) -> None:
        """Pins a block. If the driver refuses, copies of it go through a staging buffer."""
        if block.nbytes:
            with self._current(), contextlib.suppress(DeviceError):
                self._call("MemHostRegister", block.ctypes.data, block.nbytes, 0)
                self._pinned[id(block)] = block

    def _unpin(self, block: np.ndarray) -> None:
        self._unpinned.append(block)

    def _release(self, name: str, *handles: Any) -> None:
        """Calls a release function on handles once all work is done. A lost device has released
        everything."""
        if not self._lost:
            with self._current():
                self._wait()
                for handle in handles:
                    self._call(name, handle)

    def _submit(self, recording: Any, inputs: Any, data_in: np.ndarray, outputs: Any,
                data_out: np.ndarray) -> Any:
        """Submits small copies as a part of the graph. A large copy to the device has its own
        stream, so it overlaps launches that were submitted earlier."""
        with self._current():
            try:
                return self._submit_all(recording, inputs, data_in, outputs, data_out)
            except DeviceError:  # the caller may free the memory of a copy that was submitted
                for queue in (self._copies, self._queue) if not self._lost else ():
                    with contextlib.suppress(DeviceError):
                        self._call("StreamSynchronize", queue)
                raise

    def _submit_all(self, recording: Any, inputs: Any, data_in: np.ndarray, outputs: Any,
                    data_out: np.ndarray) -> Any:
        self._wait_for_streams()
        self._running = True
        graph = recording and recording.with_copies(
            inputs, data_in, outputs, data_out, self._copies_fit_graph)
        if graph is not None:
            self._call("GraphLaunch", graph, self._queue)
            return self._record_event(self._queue)
        if data_in.nbytes:
            self._copy_async(inputs, data_in.ctypes.data, data_in.nbytes, "HtoD", self._copies)
            arrived = self._record_event(self._copies)
            self._call("StreamWaitEvent", self._queue, arrived, 0)
            self._free_events.append(arrived)  # the main stream waits for this recording of it
        if recording is not None:
            self._call("GraphLaunch", recording.launches_only, self._queue)
        if data_out.nbytes:
            self._copy_async(data_out.ctypes.data, outputs, data_out.nbytes, "DtoH", self._queue)
        return self._record_event(self._queue)

    def _copies_fit_graph(self, *blocks: np.ndarray) -> bool:
        """Whether the copies of these blocks are part of a graph: the blocks are small, and
        pinned, so that their addresses stay valid."""
        return (sum(b.nbytes for b in blocks) <= GRAPH_COPY_BYTES
                and all(id(b) in self._pinned or not b.nbytes for b in blocks))

    def _finish(self, ticket: Any) -> None:
        with self._current():
            self._call("EventSynchronize", ticket)
        self._free_events.append(ticket)

    def _record_event(self, queue: Any) -> Any:
        """Records an event after all work of a stream."""
        if self._free_events:
            event = self._free_events.pop()
        else:
            event = self._call("EventCreate", DISABLE_TIMING)
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
                raise OutOfMemory(f"{error}: {nbytes:,} bytes were requested, and {free:,} of "
                                  f"{total:,} are free") from None

    def _free(self, handle: Any) -> None:
        self._release("MemFree", handle)

    def _write(self, handle: Any, at: int, data: np.ndarray) -> None:
        with self._current():
            self._wait_for_streams()
            self._copy_async(handle + at, data.ctypes.data, data.nbytes, "HtoD", self._queue)
            self._wait()

    def _read(self, handle: Any, at: int, out: np.ndarray) -> None:
        with self._current():
            self._wait_for_streams()
            self._copy_async(out.ctypes.data, handle + at, out.nbytes, "DtoH", self._queue)
            self._wait()

    def _copy(self, source: Any, source_at: int, target: Any, target_at: int, nbytes: int) -> None:
        with self._current():
            self._wait_for_streams()
            self._copy_async(target + target_at, source + source_at, nbytes, "DtoD", self._queue)
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
                functions = [self._function_in(modules[e.at, e.size], e) for e in entries]
            except DeviceError:
                for module in modules.values() if not self._lost else ():
                    self._call("ModuleUnload", module)
                raise
        return LoadedCode(list(modules.values()), functions)

    def _function_in(self, module: Any, entry: KernelEntry) -> Any:
        """The driver's function for a kernel of a module of the driver."""
        return self._call("ModuleGetFunction", module, entry.name.encode())

    def _unload(self, handle: Any) -> None:
        self._release("ModuleUnload", *handle.modules)

    def _function(self, module: DeviceModule, entry: int) -> Any:
        """The driver's function for an entry."""
        return module.handle.functions[entry]

    def _record(self, module: DeviceModule, launches: tuple[Launch, ...]) -> GpuGraph | None:
        """The graph of the launches; None if there are none."""
        with self._current():
            return GpuGraph(self, module, launches) if launches else None

    def _drop(self, handle: Any) -> None:
        if handle is not None:
            self._release("GraphExecDestroy", *handle.instances)

    def _run(self, handle: Any) -> None:
        if handle is not None:
            with self._current():
                self._wait_for_streams()
                self._call("GraphLaunch", handle.launches_only, self._queue)
                self._running = True

    def _synchronize(self) -> None:
        with self._current():
            self._wait()
