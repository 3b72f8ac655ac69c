"""CUDA devices, through the driver API of cuda-python."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ztorch.backends import cuda_calls
from ztorch.backends.cuda_calls import ask, described
from ztorch.backends.cuda_streams import CudaStream
from ztorch.backends.device import Backend, Device, Entry, Found, Launch, Module, Recording
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.machines.chips import chips_of

LOST = frozenset(f"CUDA_ERROR_{what}" for what in (
    "ILLEGAL_ADDRESS", "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC",
    "ILLEGAL_INSTRUCTION", "HARDWARE_STACK_ERROR", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "ASSERT",
    "ECC_UNCORRECTABLE", "CONTEXT_IS_DESTROYED"))
"""Errors after which a context answers nothing but the same error."""

LOG = 16 * 1024  # bytes kept of what the driver's assembler says
# What a driver without a device answers; anything else is a driver that is broken.
NOTHING_HERE = ("CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_STUB_LIBRARY")
FORKED = ("this process was forked from one that used CUDA, and a forked child cannot use it; "
          "start processes by multiprocessing's spawn")


class Cuda(Backend):
    """Every device that the driver shows, in its order."""

    name = "cuda"

    def __init__(self) -> None:
        self._process: int | None = None  # that started the driver

    def refusal(self) -> str:
        try:
            cuda_calls.driver()
        except ModuleNotFoundError:
            return "cuda-bindings is not installed; pip install 'ztorch[cuda]'"
        if self._process not in (None, os.getpid()):
            return FORKED
        try:
            ask(self.name, "cuInit", 0)
            self._process = os.getpid()
            return "" if ask(self.name, "cuDeviceGetCount") else "the driver shows no device"
        except DeviceError as error:
            if any(code in str(error) for code in NOTHING_HERE):
                return str(error)
            raise
        except (RuntimeError, OSError) as error:  # what looking for libcuda in vain ends in
            return f"NVIDIA's driver is not installed ({type(error).__name__} for libcuda)"

    def found(self) -> list[Found]:
        if self.refusal():
            return []
        return [described(k) for k in range(ask(self.name, "cuDeviceGetCount"))]

    def open(self, ordinal: int = 0) -> Device:
        found = self.found()[ordinal]
        if not found.chip:
            raise DeviceError(f"cuda:{ordinal} ({found.name}) is older than "
                              f"{chips_of(self.name)[0].name}, the first that there is code for")
        return CudaDevice(found)


class CudaDevice(Device):
    """The primary context of a device, which all of a process share, and streams of our own: the
    queue that all calls but those of streams go into, and others as they are asked for."""

    def __init__(self, found: Found):
        super().__init__("cuda", found)
        self._lost = ""
        self._running = False  # whether the queue may have launches that are not done
        self._busy: dict[int, Any] = {}  # other queues of which nobody has waited for the end
        self._queues: list[Any] = []  # all of them; the first is for all but streams
        self._idle: list[Any] = []  # those of streams that are no more
        self._past: list[Any] = []  # events that are no more
        self._device = self._try("cuDeviceGet", found.ordinal)
        self._context = self._try("cuDevicePrimaryCtxRetain", self._device)
        try:
            with self._current():
                self._queue = self._new_queue()
        except DeviceError:
            self._try("cuDevicePrimaryCtxRelease", self._device)
            raise

    def _try(self, call: str, *args: Any) -> Any:
        try:
            return ask(self.id, call, *args)
        except DeviceError as error:
            if any(code in str(error) for code in LOST):
                self._lost = str(error)
                raise DeviceError(f"{error}. What this device holds is lost: close it, and open it "
                                  "again") from None
            raise

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Our context for this thread, and afterwards again the one it had."""
        if self._lost:
            raise DeviceError(f"{self._lost}; close the device, and open it again")
        self._try("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            self._try("cuCtxPopCurrent")

    def _close(self) -> None:
        if self._lost:  # only a new context works again
            self._try("cuDevicePrimaryCtxReset", self._device)
        else:
            with self._current():
                self._wait()
                for queue in self._queues:
                    self._try("cuStreamDestroy", queue)
        self._try("cuDevicePrimaryCtxRelease", self._device)

    # -- order -------------------------------------------------------------------------------------

    def _new_queue(self) -> Any:
        flag = cuda_calls.driver().CUstream_flags.CU_STREAM_NON_BLOCKING
        self._queues.append(self._try("cuStreamCreate", int(flag)))
        return self._queues[-1]

    def _stream(self) -> CudaStream:
        with self._current():
            return CudaStream(self, self._idle.pop() if self._idle else self._new_queue())

    def _settle(self) -> None:
        """Waits for the other queues: what comes now was handed over after what they have."""
        for queue in self._busy.values():
            self._try("cuStreamSynchronize", queue)
        self._busy.clear()

    def _wait(self) -> None:
        self._settle()
        self._try("cuStreamSynchronize", self._queue)
        self._running = False
        while self._past:
            self._try("cuEventDestroy", self._past.pop())

    def _run(self, handle: Any) -> None:
        with self._current():
            self._settle()
            self._try("cuGraphLaunch", handle, self._queue)
            self._running = True

    def run_in(self, queue: Any, recording: Recording) -> None:
        """Replays launches in the queue of a stream."""
        with self._guard:
            self._need_live(recording)
            with self._current():
                if self._running:
                    self._try("cuStreamSynchronize", self._queue)
                    self._running = False
                self._try("cuGraphLaunch", recording.handle, queue)
                self._busy[int(queue)] = queue

    def order(self, queue: Any, call: str, *args: Any) -> Any:
        """A call that a stream or an event makes for something in its queue."""
        with self._guard:
            self._need_open()
            with self._current():
                self._busy[int(queue)] = queue
                return self._try(call, *args)

    def reached(self, event: Any) -> bool:
        """Whether the device has passed an event."""
        with self._guard:
            self._need_open()
            with self._current():
                cuda = cuda_calls.driver()
                if cuda.cuEventQuery(event)[0] == cuda.CUresult.CUDA_ERROR_NOT_READY:
                    return False
                self._try("cuEventQuery", event)
                return True

    def forget(self, queue: Any = None, event: Any = None) -> None:
        """Takes back what a stream or an event had. They end at any time, even within a call of
        ours, so the driver hears of it later."""
        if queue is not None:
            self._idle.append(queue)
        if event is not None:
            self._past.append(event)

    def _synchronise(self) -> None:
        with self._current():
            self._wait()

    # -- memory ------------------------------------------------------------------------------------

    def _alloc(self, nbytes: int) -> Any:
        with self._current():
            try:
                return int(self._try("cuMemAlloc", nbytes))
            except OutOfMemory as error:
                free, total = self._try("cuMemGetInfo")
                raise OutOfMemory(f"{error}: asked for {nbytes:,} bytes, and {free:,} of {total:,} "
                                  "are free") from None

    def _free(self, handle: Any) -> None:
        if self._lost:  # and with it all that it held
            return
        with self._current():
            self._wait()
            self._try("cuMemFree", handle)

    def _write(self, handle: Any, at: int, data: np.ndarray) -> None:
        with self._current():
            self._settle()
            self._try("cuMemcpyHtoDAsync", handle + at, data.ctypes.data, data.nbytes, self._queue)
            self._wait()

    def _read(self, handle: Any, at: int, out: np.ndarray) -> None:
        with self._current():
            self._settle()
            self._try("cuMemcpyDtoHAsync", out.ctypes.data, handle + at, out.nbytes, self._queue)
            self._wait()

    def _copy(self, source: Any, source_at: int, target: Any, target_at: int,
              nbytes: int) -> None:
        with self._current():
            self._settle()
            self._try("cuMemcpyDtoDAsync", target + target_at, source + source_at, nbytes,
                      self._queue)
            self._running = True

    def _memory(self) -> tuple[int, int]:
        with self._current():
            free, total = self._try("cuMemGetInfo")
            return int(free), int(total)

    # -- code --------------------------------------------------------------------------------------

    def _load(self, code: bytes, entries: tuple[Entry, ...]) -> Any:
        """The modules, and a function for each entry."""
        modules: dict[tuple[int, int], Any] = {}
        with self._current():
            try:
                for e in entries:
                    if (e.at, e.size) not in modules:
                        modules[e.at, e.size] = self._module(code[e.at:e.at + e.size])
                functions = [self._try("cuModuleGetFunction", modules[e.at, e.size],
                                       e.name.encode()) for e in entries]
            except DeviceError:
                for module in modules.values() if not self._lost else ():
                    self._try("cuModuleUnload", module)
                raise
        return list(modules.values()), functions

    def _module(self, image: bytes) -> Any:
        """A cubin, or PTX that the driver assembles now; what it says of that is in the error."""
        options, errors = cuda_calls.driver().CUjit_option, bytearray(LOG)
        if not image.endswith(b"\0"):
            image += b"\0"
        try:
            return self._try("cuModuleLoadDataEx", image, 2,
                             [options.CU_JIT_ERROR_LOG_BUFFER,
                              options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES], [errors, LOG])
        except DeviceError as error:
            log = errors.split(b"\0")[0].decode(errors="replace").strip()
            raise type(error)(f"{error}{': ' if log else ''}{log}") from None

    def _unload(self, handles: Any) -> None:
        if self._lost:  # and with it all that it held
            return
        with self._current():
            self._wait()
            for module in handles[0]:
                self._try("cuModuleUnload", module)

    def _record(self, module: Module, launches: tuple[Launch, ...]) -> Any:
        """A graph in which launches wait for those before their barrier, and for no others."""
        with self._current():
            graph = self._try("cuGraphCreate", 0)
            try:
                before: list[Any] = []
                since: list[Any] = []
                for launch in launches:
                    if launch.barrier and since:
                        before, since = [self._join(graph, since)], []
                    since.append(self._try("cuGraphAddKernelNode", graph, before, len(before),
                                           self._node(module, launch)))
                return self._try("cuGraphInstantiate", graph, 0)
            finally:
                self._try("cuGraphDestroy", graph)

    def _join(self, graph: Any, nodes: list[Any]) -> Any:
        """One node that is done when all of these are."""
        if len(nodes) == 1:
            return nodes[0]
        return self._try("cuGraphAddEmptyNode", graph, nodes, len(nodes))

    def _node(self, module: Module, launch: Launch) -> Any:
        node = cuda_calls.driver().CUDA_KERNEL_NODE_PARAMS()
        node.func = module.handles[1][launch.entry]
        node.gridDimX, node.gridDimY, node.gridDimZ = launch.grid
        group = module.entries[launch.entry].workgroup
        node.blockDimX, node.blockDimY, node.blockDimZ = group
        places = tuple(b.buffer.handle + b.at for b in launch.bindings)
        if places:
            node.kernelParams = (places, (ctypes.c_void_p,) * len(places))
        return node

    def _drop(self, handle: Any) -> None:
        if self._lost:  # and with it all that it held
            return
        with self._current():
            self._wait()
            self._try("cuGraphExecDestroy", handle)


BACKEND = Cuda()
