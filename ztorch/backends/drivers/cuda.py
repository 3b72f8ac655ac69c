"""The CUDA backend, through the driver API of cuda-python."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from ztorch.backends import cuda_calls
from ztorch.backends.cuda_calls import call_driver, describe
from ztorch.backends.cuda_maps import LaunchParameters
from ztorch.backends.cuda_products import DeviceWithProducts
from ztorch.backends.cuda_streams import CudaStream
from ztorch.backends.device import Device
from ztorch.backends.gpu_backend import GpuBackend
from ztorch.backends.gpu_graphs import Transfer
from ztorch.backends.handles import (
    DeviceInfo,
    DeviceModule,
    KernelEntry,
    Launch,
    Recording,
)
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.host import settings
from ztorch.machines.chips import chips_of

LOG_BYTES = 16 * 1024  # room for the messages of the driver's assembler


class Cuda(GpuBackend):
    """All devices of NVIDIA's driver, in its order."""

    name = "cuda"
    no_device_codes = ("CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_STUB_LIBRARY")

    def _missing(self) -> str:
        try:
            cuda_calls.driver()
        except ModuleNotFoundError:
            return "cuda-bindings is not installed; pip install 'ztorch[cuda]'"
        except OSError:
            return f"NVIDIA's driver is not installed (no {cuda_calls.LIBRARY})"
        return ""

    def _start(self) -> str:
        try:
            call_driver(self.name, "cuInit", 0)
        except DeviceError:
            raise
        except (RuntimeError, OSError) as error:  # cuda-bindings found no libcuda
            return f"NVIDIA's driver is not installed ({type(error).__name__} for libcuda)"
        return ""

    def _count(self) -> int:
        return int(call_driver(self.name, "cuDeviceGetCount"))

    def _describe(self, ordinal: int) -> DeviceInfo:
        return describe(ordinal)

    def open(self, ordinal: int = 0) -> Device:
        info = self.devices()[ordinal]
        if not info.chip:
            raise DeviceError(f"cuda:{ordinal} ({info.name}) is older than "
                              f"{chips_of(self.name)[0].name}, the oldest supported chip")
        return CudaDevice(info)


class CudaDevice(DeviceWithProducts):
    """The primary context of a device, which all libraries of a process share, with streams of our
    own: two for the device's work, and one for each `Stream` object."""

    prefix = "cu"
    call_driver = staticmethod(call_driver)
    fatal_codes = frozenset(f"CUDA_ERROR_{name}" for name in (
        "ILLEGAL_ADDRESS", "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC",
        "ILLEGAL_INSTRUCTION", "HARDWARE_STACK_ERROR", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "ASSERT",
        "ECC_UNCORRECTABLE", "CONTEXT_IS_DESTROYED"))
    fatal_advice = ("compile the program again, which opens the device again; if another library "
                    "uses it too, start a new process")

    def __init__(self, info: DeviceInfo):
        super().__init__(Cuda.name, info)
        self._busy: dict[int, Any] = {}  # queues of streams that may hold unfinished work
        self._queues: list[Any] = []  # all queues, the device's own two first
        self._idle: list[Any] = []  # queues whose streams were garbage-collected
        self._old_events: list[Any] = []  # garbage-collected events, to be destroyed
        self.early = settings.current().early_launches and (
            self._call("DriverGetVersion") >= cuda_calls.EARLY_VERSION)
        self._device = self._call("DeviceGet", info.ordinal)
        self._context = self._call("DevicePrimaryCtxRetain", self._device)
        try:
            with self._current():
                self._queue, self._copies = self._new_queue(), self._new_queue()
        except DeviceError:
            self._call("DevicePrimaryCtxRelease", self._device)
            raise

    def _is_current(self) -> bool:
        """Whether the context is current. Where a thread has none, that of the first device becomes
        current and stays so, as with CUDA's runtime, for which that device is the default."""
        code, current = cuda_calls.driver().cuCtxGetCurrent()
        if current == self._context and not code:  # most calls, so nothing else is done for it
            return True
        if int(self._call("CtxGetCurrent")) or self.info.ordinal:
            return False
        self._call("CtxSetCurrent", self._context)
        return True

    def _push_current(self) -> None:
        self._call("CtxPushCurrent", self._context)

    def _pop_current(self) -> None:
        self._call("CtxPopCurrent")

    def _close(self) -> None:
        self._unpinned.extend(self._pinned.values())
        try:
            self._close_products()
            self._release("EventDestroy", *self._events)
            self._release("StreamDestroy", *self._queues)
        finally:  # a lost context ends with its last user, which may be PyTorch
            self._call("DevicePrimaryCtxRelease", self._device)

    def _copy_async(self, target: int, source: int, nbytes: int, kind: str, queue: Any) -> None:
        self._call(f"Memcpy{kind}Async", target, source, nbytes, queue)

    # -- streams -----------------------------------------------------------------------------------

    def _new_queue(self) -> Any:
        flag = cuda_calls.driver().CUstream_flags.CU_STREAM_NON_BLOCKING
        self._queues.append(self._call("StreamCreate", int(flag)))
        return self._queues[-1]

    def _stream(self) -> CudaStream:
        with self._current():
            return CudaStream(self, self._idle.pop() if self._idle else self._new_queue())

    def _wait_for_streams(self) -> None:
        for queue in self._busy.values():
            self._call("StreamSynchronize", queue)
        self._busy.clear()

    def _wait(self) -> None:
        super()._wait()
        while self._old_events:
            self._call("EventDestroy", self._old_events.pop())

    def run_in(self, queue: Any, recording: Recording) -> None:
        """Replays launches in a stream's queue, after the device's own work."""
        with self._guard:
            self._need_live(recording)
            with self._current():
                if self._running:
                    self._call("StreamSynchronize", self._queue)
                    self._running = False
                self._call("GraphLaunch", recording.handle.launches_only, queue)
                self._busy[int(queue)] = queue

    def call_in(self, queue: Any, name: str, *args: Any) -> Any:
        """Calls a function of the driver for a stream or event with this queue."""
        with self._guard:
            self._need_open()
            with self._current():
                self._busy[int(queue)] = queue
                return self._call(name, *args)

    def reached(self, event: Any) -> bool:
        """Whether the device has passed an event."""
        with self._guard:
            self._need_open()
            with self._current():
                cuda = cuda_calls.driver()
                if cuda.cuEventQuery(event)[0] == cuda.CUresult.CUDA_ERROR_NOT_READY:
                    return False
                self._call("EventQuery", event)
                return True

    def forget_stream(self, queue: Any) -> None:
        """Keeps the queue of a garbage-collected stream for reuse. Garbage collection may happen
        at any time, even within a call of the driver, so this calls none."""
        self._idle.append(queue)

    def forget_event(self, event: Any) -> None:
        """Has a garbage-collected event destroyed at the next wait."""
        self._old_events.append(event)

    # -- code --------------------------------------------------------------------------------------

    def _load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> Any:
        loaded = super()._load(code, entries)
        early, meeting = (frozenset(k for k, e in enumerate(entries) if test(
            code[e.at:e.at + e.size])) for test in (cuda_calls.waits, cuda_calls.meets))
        return loaded._replace(early=early, meeting=meeting)

    def _function_in(self, module: Any, entry: KernelEntry) -> Any:
        function = super()._function_in(module, entry)
        if entry.shared:
            attribute = cuda_calls.driver().CUfunction_attribute
            self._call("FuncSetAttribute", function,
                       attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, entry.shared)
        return function

    def _load_image(self, image: bytes) -> Any:
        """Loads the cubin that follows the PTX text; if the driver rejects it, assembles the
        text."""
        text, _, cubin = image.partition(b"\0")
        if cubin:
            try:
                return self._load_module(cubin)
            except OutOfMemory:
                raise
            except DeviceError:
                if self._lost:
                    raise
        return self._load_module(text + b"\0")

    def _load_module(self, code: bytes) -> Any:
        """Loads a module. Errors contain the messages of the driver's assembler."""
        options, errors = cuda_calls.driver().CUjit_option, bytearray(LOG_BYTES)
        try:
            return self._call("ModuleLoadDataEx", code, 2,
                              [options.CU_JIT_ERROR_LOG_BUFFER,
                               options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES], [errors, LOG_BYTES])
        except DeviceError as error:
            log = errors.split(b"\0")[0].decode(errors="replace").strip()
            raise type(error)(f"{error}{': ' if log else ''}{log}") from None

    def _node(self, module: DeviceModule, launch: Launch) -> tuple[Any, Any]:
        node = cuda_calls.driver().CUDA_KERNEL_NODE_PARAMS()
        node.func = self._function(module, launch.entry)
        node.gridDimX, node.gridDimY, node.gridDimZ = launch.grid
        entry = module.entries[launch.entry]
        node.blockDimX, node.blockDimY, node.blockDimZ = entry.workgroup
        node.sharedMemBytes = entry.shared
        addresses = tuple(int(b.buffer.handle) + b.at for b in launch.bindings)
        if entry.maps:  # the driver copies the memory that the node points to
            parameters = LaunchParameters(self.id, addresses, [
                (addresses[m.place], m) for m in entry.maps])
            node.kernelParams = parameters.address
            return node, parameters
        if addresses:
            node.kernelParams = (addresses, (ctypes.c_void_p,) * len(addresses))
        return node, None

    def _early_edges(self, graph: Any, sources: list[Any], targets: list[Any]) -> None:
        cuda, edge = cuda_calls.driver(), cuda_calls.driver().CUgraphEdgeData()
        edge.type = int(cuda.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
        edge.from_port = cuda.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
        self._call(cuda_calls.edges_call(), graph, sources, targets, [edge] * len(sources),
                   len(sources))

    def _run_at_once(self, node: Any, module: DeviceModule, launch: Launch) -> None:
        entry, groups = module.entries[launch.entry], math.prod(launch.grid)
        room = dict(self.info.limits)["compute_units"] * self._call(
            "OccupancyMaxActiveBlocksPerMultiprocessor", self._function(module, launch.entry),
            math.prod(entry.workgroup), entry.shared)
        if groups > room:  # compiled for a larger GPU of the same chip, or for all of this one
            raise DeviceError(f"{self.id}: the {groups} workgroups of {entry.name} wait for one "
                              f"another, and this GPU runs {room} at once; compile the program on "
                              "this GPU")
        cuda, value = cuda_calls.driver(), cuda_calls.driver().CUkernelNodeAttrValue()
        value.cooperative = 1
        self._call("GraphKernelNodeSetAttribute", node,
                   cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value)

    def _copy_node(self, graph: Any, before: list[Any], copy: Transfer) -> Any:
        cuda = cuda_calls.driver()
        host, device = (cuda.CUmemorytype.CU_MEMORYTYPE_HOST,
                        cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE)
        node = cuda.CUDA_MEMCPY3D()
        node.WidthInBytes, node.Height, node.Depth = copy.nbytes, 1, 1
        if copy.kind == "HtoD":
            node.srcMemoryType, node.srcHost = host, copy.source
            node.dstMemoryType, node.dstDevice = device, copy.target
        else:
            node.srcMemoryType, node.srcDevice = device, copy.source
            node.dstMemoryType, node.dstHost = host, copy.target
        return self._call("GraphAddMemcpyNode", graph, before, len(before), node, self._context)


BACKEND = Cuda()
