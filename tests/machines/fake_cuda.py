"""A CUDA driver without a GPU: the functions of cuda.bindings.driver that ours calls, on a pretended
device whose kernels run in the PTX machine of the tests.

It is as strict as the real one and stricter where that only sometimes fails: every call's arguments
go through the real package first, which refuses wrong types before it looks for libcuda; what is
handed to a stream happens when somebody waits for it, and not before; nothing may be given back
that a stream still uses.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.machines.ptx.machine import check, launch
from tests.machines.ptx.memory import GlobalMemory
from tests.machines.ptx.parse import Entry, Program, PtxError, parse
from tests.machines.ptx.rings import TensorMap

FREE = {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
        "cuDeviceTotalMem", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease", "cuCtxPushCurrent",
        "cuCtxPopCurrent", "cuGetErrorString", "cuGetProcAddress"}
"""Calls that need no current context."""


@functools.cache
def parsed(text: str) -> Program:
    program = parse(text)
    for entry in program.entries.values():
        check(entry)
    return program


@functools.cache
@functools.cache
def _without_library(real: Any) -> type[Exception] | None:
    """What the real package raises where there is no libcuda; None where there is one."""
    try:
        real.cuInit(0)
    except RuntimeError as error:
        return type(error)
    return None


def _form(x: Any) -> Any:
    """What a conversion of x depends on: types, and the sizes of numbers."""
    if isinstance(x, (tuple, list)):
        return type(x), *map(_form, x)
    return (type(x), x < 0, x.bit_length()) if type(x) is int else type(x)


@dataclass
class Node:
    """A node of a graph: what it runs, and after which nodes."""

    after: list[int]
    entry: Entry | None = None
    grid: tuple[int, int, int] = (1, 1, 1)
    pointers: list[int] = field(default_factory=list)
    shared: int = 0
    maps: list[TensorMap] = field(default_factory=list)


class FakeCuda:
    """Stands for the module cuda.bindings.driver. `fail[call] = code` makes that call fail;
    `calls` lists the names of all that were made; `sick` breaks the context when it next waits."""

    def __init__(self, real: Any, capability: tuple[int, int] = (9, 0), devices: int = 1,
                 memory: int = 1 << 30, shuffled: bool = False):
        self.real, self.capability, self.devices, self.total = real, capability, devices, memory
        self.shuffled = shuffled  # run the nodes of a graph in the last order that is allowed
        self.process = os.getpid()
        self.converted: set[tuple] = set()  # calls whose arguments the real package has taken
        self.calls: list[str] = []
        self.fail: dict[str, str] = {}
        self.sick = ""
        self.cubins: dict[bytes, bytes] = {}  # the text of each that this device takes
        self.shared = False  # whether another library holds the context too
        self.started = False
        self.retained = self.pushed = 0
        self.broken = ""
        self.encoded: dict[bytes, TensorMap] = {}
        self.missing = False  # whether the driver is too old to encode them
        pointer, whole, word = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32
        self.encoder = ctypes.CFUNCTYPE(whole, pointer, whole, word, *[pointer] * 5, *[whole] * 4)(self.encode)
        self.local = threading.local()
        self.lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        self.memory = GlobalMemory()
        self.used = 0
        self.handles: dict[int, Any] = {}
        self.pinned: dict[int, int] = {}  # bytes of the host's blocks, by address
        self.asked: dict[int, int] = {}  # bytes of shared memory that launches of functions may have
        self.streams: dict[int, list[Callable[[], None]]] = {}
        self.clock = 0

    @property
    def waiting(self) -> bool:
        return any(self.streams.values())

    # -- every call ------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            return getattr(self.real, name)
        return functools.partial(self.call, name)

    def call(self, name: str, *args: Any) -> tuple:
        function = getattr(type(self), f"do_{name}")
        missing = _without_library(self.real)
        form = (name, _form(args))
        if missing and form not in self.converted:  # it converts the arguments before it fails
            with contextlib.suppress(missing):
                getattr(self.real, name)(*args)
            self.converted.add(form)
        with self.lock:
            self.calls.append(name)
            code = self.refuse(name)
            found = None
            if not code:
                answer = function(self, *args)
                code, found = answer if isinstance(answer, tuple) and isinstance(
                    answer[0], str) else ("SUCCESS", answer)
        result = getattr(self.real.CUresult,
                         "CUDA_SUCCESS" if code == "SUCCESS" else f"CUDA_ERROR_{code}")
        if isinstance(found, list):
            return (result, *found)
        return (result,) if found is None and code == "SUCCESS" and function.__annotations__.get(
            "return") in ("None", None) else (result, found)

    def refuse(self, name: str) -> str:
        if os.getpid() != self.process:
            raise AssertionError(f"{name} in a forked child")
        if name in self.fail:
            return self.fail[name]
        if name == "cuGetErrorString":
            return ""
        if not self.started and name != "cuInit":
            return "NOT_INITIALIZED"
        if name not in FREE:
            if not self.stack:
                return "INVALID_CONTEXT"
            if self.broken:
                return self.broken
        return ""

    @property
    def stack(self) -> list[Any]:
        if not hasattr(self.local, "stack"):
            self.local.stack = []
        return self.local.stack

    def new(self, kind: str, what: Any) -> Any:
        number = 1000 + len(self.calls)
        assert number not in self.handles
        self.handles[number] = what
        return getattr(self.real, kind)(number)

    def held(self, handle: Any, kind: type | None = None) -> Any:
        what = self.handles[int(handle)]
        assert kind is None or isinstance(what, kind), f"{handle} is a {type(what)}"
        return what

    def drop(self, handle: Any) -> None:
        assert not self.waiting, "given back while a stream uses it"
        del self.handles[int(handle)]

    # -- devices ---------------------------------------------------------------------------------------

    def do_cuInit(self, flags: int) -> None:
        self.started = True

    def do_cuGetErrorString(self, code: Any) -> Any:
        return f"the driver's words for {code.name}".encode()

    def do_cuDriverGetVersion(self) -> Any:
        return 13020

    def do_cuDeviceGetCount(self) -> Any:
        return self.devices

    def do_cuDeviceGet(self, ordinal: int) -> Any:
        return self.real.CUdevice(ordinal) if ordinal < self.devices else ("INVALID_DEVICE", None)

    def do_cuDeviceGetName(self, size: int, device: Any) -> Any:
        return b"Pretended GPU".ljust(size, b"\0")

    def do_cuDeviceTotalMem(self, device: Any) -> Any:
        return self.total

    def do_cuDeviceGetAttribute(self, which: Any, device: Any) -> Any:
        known = {"MAX_THREADS_PER_BLOCK": 1024, "MAX_SHARED_MEMORY_PER_BLOCK": 48 * 1024,
                 "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 * 1024,
                 "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 * 1024,
                 "WARP_SIZE": 32, "MAX_GRID_DIM_X": (1 << 31) - 1, "MULTIPROCESSOR_COUNT": 4,
                 "COMPUTE_CAPABILITY_MAJOR": self.capability[0],
                 "COMPUTE_CAPABILITY_MINOR": self.capability[1], "INTEGRATED": 0}
        return known[which.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def do_cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        self.retained += 1
        return self.real.CUcontext(77)

    def do_cuDevicePrimaryCtxRelease(self, device: Any) -> None:
        assert self.retained > 0
        self.retained -= 1
        if not self.retained and not self.shared:  # nobody else holds it: the next one is a new context
            self.broken = ""
            self.clear()

    def do_cuCtxPushCurrent(self, context: Any) -> None:
        assert self.retained and int(context) == 77
        self.stack.append(context)
        self.pushed += 1

    def do_cuCtxPopCurrent(self) -> Any:
        self.pushed -= 1
        return self.stack.pop()

    # -- streams and memory ----------------------------------------------------------------------------

    def do_cuStreamCreate(self, flags: int) -> Any:
        assert flags == 1, "streams that block are in one order with the default stream"
        made = self.new("CUstream", [])
        self.streams[int(made)] = self.held(made)
        return made

    def do_cuStreamDestroy(self, stream: Any) -> None:
        assert not self.streams.pop(int(stream)), "a stream with work left"
        del self.handles[int(stream)]

    def do_cuStreamSynchronize(self, stream: Any) -> Any:
        self.held(stream, list)
        if self.sick:
            self.broken, self.sick = self.sick, ""
            self.forget()
            return self.broken, None
        self.work_off(stream)
        return None

    def forget(self) -> None:
        """What was handed over is never done."""
        for queue in self.streams.values():
            queue.clear()

    def work_off(self, stream: Any) -> None:
        queue = self.streams[int(stream)]
        while queue:
            queue.pop(0)()

    # -- events ----------------------------------------------------------------------------------------

    def do_cuEventCreate(self, flags: int) -> Any:
        return self.new("CUevent", {})

    def do_cuEventDestroy(self, event: Any) -> None:
        del self.handles[int(event)]

    def do_cuEventRecord(self, event: Any, stream: Any) -> None:
        mark: dict[str, Any] = {"in": stream}
        self.held(event, dict)["mark"] = mark  # who waits for an earlier one goes on doing so

        def reach() -> None:
            self.clock += 1
            mark["at"] = self.clock
        self.enqueue(stream, reach)

    def marked(self, event: Any) -> dict[str, Any]:
        return self.held(event, dict)["mark"]

    def reach(self, mark: dict[str, Any]) -> None:
        queue = self.streams[int(mark["in"])]
        while "at" not in mark:
            queue.pop(0)()

    def do_cuEventQuery(self, event: Any) -> Any:
        return None if "at" in self.marked(event) else ("NOT_READY", None)

    def do_cuEventSynchronize(self, event: Any) -> Any:
        if self.sick:
            return self.do_cuStreamSynchronize(self.marked(event)["in"])
        self.reach(self.marked(event))
        return None

    def do_cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        self.enqueue(stream, functools.partial(self.reach, self.marked(event)))

    def do_cuEventElapsedTime(self, start: Any, end: Any) -> Any:
        first, last = self.marked(start), self.marked(end)
        return float(last["at"] - first["at"]) if {"at"} <= first.keys() & last.keys() else ("NOT_READY", None)

    def do_cuMemAlloc(self, nbytes: int) -> Any:
        if self.used + nbytes > self.total:
            return "OUT_OF_MEMORY", None
        self.used += nbytes
        return self.real.CUdeviceptr(self.memory.alloc(nbytes))

    def do_cuMemFree(self, pointer: Any) -> None:
        assert not self.waiting, "freed while a stream uses it"
        self.used -= self.memory.allocations[int(pointer)].nbytes
        self.memory.free(int(pointer))

    def do_cuMemGetInfo(self) -> Any:
        return [self.total - self.used, self.total]

    def bytes_at(self, pointer: Any, size: int) -> np.ndarray:
        held = self.memory.holding(int(pointer), size)
        assert held is not None, f"{size} bytes at 0x{int(pointer):x} are in no allocation"
        at = int(pointer) - held.base
        return held.data[at:at + size]

    def do_cuMemcpyHtoDAsync(self, target: Any, source: int, size: int, stream: Any) -> None:
        host = np.frombuffer((ctypes.c_uint8 * size).from_address(source), np.uint8)
        device = self.bytes_at(target, size)
        self.enqueue(stream, lambda: np.copyto(device, host))

    def do_cuMemcpyDtoHAsync(self, target: int, source: Any, size: int, stream: Any) -> None:
        host = np.frombuffer((ctypes.c_uint8 * size).from_address(target), np.uint8)
        device = self.bytes_at(source, size)
        self.enqueue(stream, lambda: np.copyto(host, device))

    def do_cuMemcpyDtoDAsync(self, target: Any, source: Any, size: int, stream: Any) -> None:
        one, other = self.bytes_at(target, size), self.bytes_at(source, size)
        self.enqueue(stream, lambda: np.copyto(one, other))

    def do_cuMemHostRegister(self, address: int, size: int, flags: int) -> Any:
        assert size > 0 and not flags and address not in self.pinned
        self.pinned[address] = size
        return None

    def do_cuMemHostUnregister(self, address: int) -> Any:
        assert not self.waiting, "given back while a stream uses it"
        del self.pinned[address]
        return None

    def enqueue(self, stream: Any, work: Callable[[], None]) -> None:
        self.held(stream, list).append(work)

    # -- code ------------------------------------------------------------------------------------------

    def do_cuModuleLoadDataEx(self, image: bytes, count: int, options: list, values: list) -> Any:
        given = {o.name: v for o, v in zip(options, values, strict=True)}
        assert count == len(options)
        log = given["CU_JIT_ERROR_LOG_BUFFER"]
        assert len(log) == given["CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES"]
        if image.startswith(b"\x7fELF"):
            if image not in self.cubins:
                return "NO_BINARY_FOR_GPU", None
            image = self.cubins[image]  # the machine reads PTX
        assert image.endswith(b"\0"), "the driver would read past the end"
        try:
            program = parsed(image[:image.index(0)].decode())
            chip = int(program.target.removeprefix("sm_").rstrip("a"))
            able = 10 * self.capability[0] + self.capability[1]
            if chip > able or (program.target.endswith("a") and chip != able):
                raise PtxError(f"{program.target} is not for this device")
        except (PtxError, UnicodeDecodeError) as error:
            said = str(error).encode()[:len(log) - 1]
            log[:len(said) + 1] = said + b"\0"
            return "INVALID_PTX", None
        return self.new("CUmodule", program)

    def do_cuModuleUnload(self, module: Any) -> None:
        self.drop(module)

    def do_cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        entry = self.held(module, Program).entries.get(name.decode())
        return self.new("CUfunction", entry) if entry else ("NOT_FOUND", None)

    def do_cuFuncSetAttribute(self, function: Any, which: Any, value: int) -> Any:
        self.held(function, Entry)
        assert which.name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        if value > 227 * 1024:
            return "INVALID_VALUE", None
        self.asked[int(function)] = value
        return None

    def do_cuGetProcAddress(self, symbol: bytes, version: int, flags: int) -> Any:
        assert symbol == b"cuTensorMapEncodeTiled" and version >= 12000 and not flags
        return [0, 1] if self.missing else [ctypes.cast(self.encoder, ctypes.c_void_p).value, 0]

    def encode(self, to: int, kind: int, axes: int, address: int, extents: int, strides: int, box: int, steps: int,
               interleave: int, swizzle: int, promotion: int, fill: int) -> int:
        """cuTensorMapEncodeTiled: 0, or 1 for what the driver calls an invalid value."""
        def numbers(at: int, of: Any, n: int) -> tuple[int, ...]:
            return tuple((of * n).from_address(at)) if n else ()
        made = TensorMap(address, {6: 2, 9: 2}.get(kind, 0), numbers(extents, ctypes.c_uint64, axes),
                         numbers(strides, ctypes.c_uint64, axes - 1), numbers(box, ctypes.c_uint32, axes), swizzle)
        if to % 64 or not made.size or made.problem() or set(numbers(steps, ctypes.c_uint32, axes)) != {1} or (
                interleave or fill or not 0 <= promotion <= 3):
            return 1
        said = b"map %d" % len(self.encoded)
        ctypes.memmove(to, said.ljust(128, b"\0"), 128)
        self.encoded[said.ljust(128, b"\0")] = made
        return 0

    # -- graphs ----------------------------------------------------------------------------------------

    def do_cuGraphCreate(self, flags: int) -> Any:
        return self.new("CUgraph", {})

    def do_cuGraphDestroy(self, graph: Any) -> None:
        del self.handles[int(graph)]

    def do_cuGraphAddEmptyNode(self, graph: Any, after: list, count: int) -> Any:
        return self.node(graph, Node([int(n) for n in after]), count)

    def do_cuGraphAddKernelNode(self, graph: Any, after: list, count: int, p: Any) -> Any:
        entry = self.held(p.func, Entry)
        if (p.blockDimX, p.blockDimY, p.blockDimZ) != entry.workgroup:
            return "INVALID_VALUE", None
        declared = sum(a.size for a in entry.arrays.values())
        if declared > 48 * 1024 or declared + p.sharedMemBytes > max(self.asked.get(int(p.func), 0), 48 * 1024):
            return "INVALID_VALUE", None
        pointers, maps = [], []
        if entry.parameters:
            given = len(entry.parameters)
            table = (ctypes.c_void_p * (given + len(entry.maps))).from_address(int(p.kernelParams))
            pointers = [ctypes.c_uint64.from_address(at).value for at in table[:given]]
            maps = [self.encoded[bytes((ctypes.c_uint8 * 128).from_address(at))] for at in table[given:]]
        if p.gridDimX * p.gridDimY * p.gridDimZ % entry.cluster:
            return "INVALID_VALUE", None
        node = Node([int(n) for n in after], entry, (p.gridDimX, p.gridDimY, p.gridDimZ), pointers,
                    p.sharedMemBytes, maps)
        return self.node(graph, node, count)

    def node(self, graph: Any, node: Node, count: int) -> Any:
        assert count == len(node.after)
        nodes = self.held(graph, dict)
        assert set(node.after) <= set(nodes), "after a node of another graph"
        made = self.new("CUgraphNode", node)
        nodes[int(made)] = node
        return made

    def do_cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        nodes = dict(self.held(graph, dict))
        ready: list[Node] = []
        while nodes:
            free = [n for n, node in nodes.items() if not set(node.after) & set(nodes)]
            ready.append(nodes.pop(free[-1 if self.shuffled else 0]))
        return self.new("CUgraphExec", ready)

    def do_cuGraphLaunch(self, ready: Any, stream: Any) -> None:
        for node in self.held(ready, list):
            if node.entry is not None:
                self.enqueue(stream, functools.partial(
                    launch, node.entry, node.grid, node.pointers, self.memory, shared=node.shared,
                    maps=node.maps))

    def do_cuGraphExecDestroy(self, ready: Any) -> None:
        self.drop(ready)
