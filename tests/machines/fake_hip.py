"""HIP without a GPU: the functions of libamdhip64 that the driver calls, by the very arguments that
ctypes would hand over, on a pretended device.

Code objects are read as a driver reads them: descriptor, note, arguments. What runs is the text they
were made of, thread by thread, on the CPU. It is as strict as the real library and stricter where
that only sometimes fails: what is handed to a stream happens when somebody waits for it, nothing
may be given back that a stream still uses, and every thread must say which device it means.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.machines.rocm import code_object
from tests.machines.rocm.machine import Hosted
from ztorch.backends import hip

ERRORS = {0: "hipSuccess", 1: "hipErrorInvalidValue", 2: "hipErrorOutOfMemory",
          3: "hipErrorNotInitialized", 100: "hipErrorNoDevice", 101: "hipErrorInvalidDevice",
          209: "hipErrorNoBinaryForGpu", 400: "hipErrorInvalidHandle", 500: "hipErrorNotFound",
          700: "hipErrorIllegalAddress", 719: "hipErrorLaunchFailure"}
FREE = ("hipInit", "hipGetDeviceCount", "hipSetDevice", "hipRuntimeGetVersion", "hipGetLastError",
        "hipDeviceGetName", "hipDeviceTotalMem", "hipDeviceGetAttribute",
        "hipGetDeviceProperties", "hipGetDevicePropertiesR0600")


@dataclass
class Function:
    module: int
    hosted: Hosted
    name: str
    workgroup: tuple[int, ...]
    count: int


@dataclass
class Work:
    """A launch, with its arguments as they were when it was handed over."""

    function: Function
    grid: tuple[int, ...]
    pointers: list[int]


class Symbol:
    """One function of the library: converts what it is given by its argtypes, as ctypes does."""

    def __init__(self, fake: FakeHip, name: str):
        self.fake, self.name = fake, name
        self.argtypes: tuple | None = None
        self.restype: Any = ctypes.c_int

    def __call__(self, *args: Any) -> Any:
        if self.name == "hiprtcGetErrorString":
            return f"HIPRTC_ERROR_{args[0]}".encode()
        if self.name in ("hipGetErrorName", "hipGetErrorString"):
            return ERRORS.get(args[0], "hipErrorUnknown").encode()
        assert self.argtypes is not None, f"{self.name} is called without its signature"
        assert len(args) == len(self.argtypes), f"{self.name} takes {len(self.argtypes)} arguments"
        held = [_plain(kind, a) for kind, a in zip(self.argtypes, args, strict=True)]
        return self.fake.call(self.name, held)


def _plain(kind: Any, value: Any) -> Any:
    """A number or an address, as the library would get it."""
    converted = kind.from_param(value)
    if isinstance(converted, bytes):
        return converted
    if kind is ctypes.c_void_p or kind is ctypes.c_char_p:
        if isinstance(value, (bytes, type(None))):
            return value
        if isinstance(value, int):
            return value
        if isinstance(value, ctypes.c_void_p):
            return value.value
        if isinstance(value, ctypes.Array):
            return ctypes.addressof(value)
        return ctypes.cast(converted, ctypes.c_void_p).value
    number = kind(value).value
    assert number == value, f"{value} does not fit {kind}"
    return number


class FakeHip:
    """Stands for libamdhip64. `fail[call] = code` makes that call fail; `calls` lists all that were
    made; `sick` breaks the device when somebody next waits for it. `hosted(code)` gives what runs
    in place of a code object; `older` is a library of ROCm 5."""

    def __init__(self, hosted: Callable[[bytes], Hosted], chip: str = "gfx90a", wave: int = 64,
                 memory: int = 1 << 30, devices: int = 1, older: bool = False):
        self.hosted, self.chip, self.wave = hosted, chip, wave
        self.total, self.devices, self.older = memory, devices, older
        self.process = os.getpid()
        self.calls: list[str] = []
        self.fail: dict[str, int] = {}
        self.sick = self.broken = 0
        self.started = False
        self.local, self.lock = threading.local(), threading.RLock()
        self.pinned: dict[int, int] = {}  # bytes of the host's blocks, by address
        self.buffers: dict[int, np.ndarray] = {}
        self.handles: dict[int, Any] = {}
        self.streams: dict[int, list[Callable[[], None]]] = {}
        self.last = 0
        self._symbols: dict[str, Symbol] = {}

    def __getattr__(self, name: str) -> Symbol:
        if name not in hip.SIGNATURES and name not in ("hipGetErrorName", "hipGetErrorString"):
            raise AttributeError(name)
        if name.startswith("hiprtc") or (self.older and name.endswith("R0600")):
            raise AttributeError(name)
        return self._symbols.setdefault(name, Symbol(self, name))

    def call(self, name: str, args: list[Any]) -> int:
        with self.lock:
            assert os.getpid() == self.process, f"{name} in a forked child"
            self.calls.append(name)
            code = self.refuse(name)
            if not code:
                code = getattr(self, f"do_{name}")(*args) or 0
            if name != "hipGetLastError":
                self.last = code or self.last
            return code

    def refuse(self, name: str) -> int:
        if name == "hipGetLastError":
            return 0
        if name in self.fail:
            return self.fail[name]
        if not self.started and name != "hipInit":
            return 3
        if name not in FREE:
            assert getattr(self.local, "device", None) is not None, f"{name} on no device"
            return self.broken
        return 0

    @property
    def waiting(self) -> bool:
        return any(self.streams.values())

    def new(self, out: int, what: Any) -> None:
        number = 0x1000 + 8 * len(self.calls)
        assert number not in self.handles
        self.handles[number] = what
        put(ctypes.c_void_p, out, number)

    def held(self, handle: int, kind: type) -> Any:
        what = self.handles[handle]
        assert isinstance(what, kind), f"{handle:#x} is a {type(what)}"
        return what

    def drop(self, handle: int, kind: type) -> None:
        assert not self.waiting, "given back while a stream uses it"
        self.held(handle, kind)
        del self.handles[handle]

    # -- devices ---------------------------------------------------------------------------------------

    def do_hipInit(self, flags: int) -> int:
        self.started = True
        return 0 if self.devices else 100

    def do_hipGetLastError(self) -> int:
        last, self.last = self.last, 0
        return last

    def do_hipRuntimeGetVersion(self, out: int) -> None:
        put(ctypes.c_int, out, 60_443_483)

    def do_hipGetDeviceCount(self, out: int) -> None:
        put(ctypes.c_int, out, self.devices)

    def do_hipSetDevice(self, ordinal: int) -> int:
        if ordinal >= self.devices:
            return 101
        self.local.device = ordinal
        return 0

    def do_hipDeviceGetName(self, out: int, size: int, ordinal: int) -> None:
        ctypes.memmove(out, b"Pretended gfx000\0", min(size, 17))

    def do_hipDeviceTotalMem(self, out: int, ordinal: int) -> None:
        put(ctypes.c_size_t, out, self.total)

    def do_hipDeviceGetAttribute(self, out: int, which: int, ordinal: int) -> int:
        known = {16: 0, 56: 1024, 63: 4, 74: 64 * 1024, 87: self.wave}
        put(ctypes.c_int, out, known[which])
        return 0

    def _properties(self, out: int, at: int, size: int) -> None:
        raw = bytearray(size)
        raw[:16] = b"Pretended gfx000"
        chip = f"{self.chip}:sramecc+:xnack-".encode()
        raw[at:at + len(chip)] = chip
        ctypes.memmove(out, bytes(raw), size)

    def do_hipGetDeviceProperties(self, out: int, ordinal: int) -> None:
        self._properties(out, 396, 792)

    def do_hipGetDevicePropertiesR0600(self, out: int, ordinal: int) -> None:
        self._properties(out, 1160, 1472)

    # -- streams and memory ----------------------------------------------------------------------------

    def do_hipStreamCreateWithFlags(self, out: int, flags: int) -> None:
        assert flags == 1, "streams that block are in one order with the default stream"
        queue: list[Callable[[], None]] = []
        self.new(out, queue)
        self.streams[ctypes.c_uint64.from_address(out).value] = queue

    def do_hipStreamDestroy(self, stream: int) -> None:
        assert not self.streams.pop(stream), "a stream with work left"
        del self.handles[stream]

    def do_hipStreamSynchronize(self, stream: int) -> int:
        queue = self.held(stream, list)
        if self.sick:
            self.broken, self.sick = self.sick, 0
            for q in self.streams.values():
                q.clear()
            return self.broken
        while queue:
            queue.pop(0)()
        return 0

    def do_hipEventCreateWithFlags(self, out: int, flags: int) -> None:
        assert flags == 2, "times are not asked for"
        self.new(out, {})

    def do_hipEventDestroy(self, event: int) -> None:
        self.drop(event, dict)

    def do_hipEventRecord(self, event: int, stream: int) -> None:
        mark: dict[str, Any] = {"in": stream, "reached": False}
        self.held(event, dict)["mark"] = mark  # who waits for an earlier one goes on doing so
        self.held(stream, list).append(lambda: mark.update(reached=True))

    def do_hipStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        assert not flags
        self.held(stream, list).append(functools.partial(self.reach, self.held(event, dict)["mark"]))

    def do_hipEventSynchronize(self, event: int) -> int:
        mark = self.held(event, dict)["mark"]
        if self.sick:
            return self.do_hipStreamSynchronize(mark["in"])
        self.reach(mark)
        return 0

    def reach(self, mark: dict[str, Any]) -> None:
        queue = self.streams[mark["in"]]
        while not mark["reached"]:
            queue.pop(0)()

    def do_hipMalloc(self, out: int, nbytes: int) -> int:
        if sum(b.size for b in self.buffers.values()) + nbytes > self.total:
            return 2
        block = np.full(nbytes + 512, 0xEE, np.uint8)
        at = -block.ctypes.data % 256
        part = block[at:at + nbytes]
        self.buffers[part.ctypes.data] = part
        put(ctypes.c_void_p, out, part.ctypes.data)
        return 0

    def do_hipFree(self, pointer: int) -> None:
        assert not self.waiting, "freed while a stream uses it"
        del self.buffers[pointer]

    def do_hipHostRegister(self, address: int, size: int, flags: int) -> None:
        assert size > 0 and not flags and address not in self.pinned
        self.pinned[address] = size

    def do_hipHostUnregister(self, address: int) -> None:
        assert not self.waiting, "given back while a stream uses it"
        del self.pinned[address]

    def do_hipMemGetInfo(self, free: int, total: int) -> None:
        put(ctypes.c_size_t, free, self.total - sum(b.size for b in self.buffers.values()))
        put(ctypes.c_size_t, total, self.total)

    def on_device(self, pointer: int, size: int) -> None:
        assert any(b <= pointer and pointer + size <= b + a.size for b, a in self.buffers.items()), (
            f"{size} bytes at {pointer:#x} are in no allocation")

    def do_hipMemcpyAsync(self, target: int, source: int, size: int, kind: int,
                          stream: int) -> None:
        queue = self.held(stream, list)
        if kind in (1, 3):
            self.on_device(target, size)
        if kind in (2, 3):
            self.on_device(source, size)
        queue.append(functools.partial(ctypes.memmove, target, source, size))

    # -- code ------------------------------------------------------------------------------------------

    def do_hipModuleLoadData(self, out: int, image: bytes) -> int:
        flags, = struct.unpack_from("<I", image, 48)
        assert image[7] == 64 and image[8] in (2, 3) and flags  # HSA, code object 4 or 5
        if not code_object.metadata(image)["amdhsa.target"].endswith(f"--{self.chip}"):
            return 209
        self.new(out, (image, self.hosted(image)))
        return 0

    def do_hipModuleUnload(self, module: int) -> None:
        self.drop(module, tuple)
        for number, what in list(self.handles.items()):
            if isinstance(what, Function) and what.module == module:
                del self.handles[number]

    def do_hipModuleGetFunction(self, out: int, module: int, name: bytes) -> int:
        image, hosted = self.held(module, tuple)
        said = code_object.kernels(image).get(name.decode())
        if said is None:
            return 500
        arguments = [a for a in said[".args"] if not a[".value_kind"].startswith("hidden")]
        for k, a in enumerate(arguments):
            assert (a[".offset"], a[".size"], a[".address_space"]) == (8 * k, 8, "global")
        assert code_object.descriptor(image, said[".name"]).arguments == said[".kernarg_segment_size"]
        group = said.get(".reqd_workgroup_size", (said[".max_flat_workgroup_size"], 1, 1))
        self.new(out, Function(module, hosted, said[".name"], tuple(group), len(arguments)))
        return 0

    # -- graphs ----------------------------------------------------------------------------------------

    def do_hipGraphCreate(self, out: int, flags: int) -> None:
        assert not flags
        self.new(out, {})

    def do_hipGraphDestroy(self, graph: int) -> None:
        for node in self.held(graph, dict):
            del self.handles[node]
        del self.handles[graph]

    def add(self, out: int, graph: int, after: int, count: int, work: Work | None) -> None:
        before = list((ctypes.c_uint64 * count).from_address(after)) if count else []
        nodes = self.held(graph, dict)
        assert set(before) <= set(nodes), "after a node of another graph"
        self.new(out, work or ())
        nodes[ctypes.c_uint64.from_address(out).value] = before, work

    def do_hipGraphAddEmptyNode(self, out: int, graph: int, after: int, count: int) -> None:
        self.add(out, graph, after, count, None)

    def do_hipGraphAddKernelNode(self, out: int, graph: int, after: int, count: int, given: int) -> int:
        """As the header lays it out: threads, extra, function, groups, arguments, shared bytes."""
        raw = (ctypes.c_ubyte * 64).from_address(given)
        *block, extra, func, gx, gy, gz, arguments, shared = struct.unpack("=3I4xQQ3I4xQI4x", bytes(raw))
        f, grid = self.held(func, Function), (gx, gy, gz)
        sizes = [g * b for g, b in zip(grid, block, strict=True)]
        if tuple(block) != f.workgroup or shared or extra or not all(0 < n < 1 << 32 for n in sizes):
            return 1
        table = (ctypes.c_void_p * f.count).from_address(arguments) if f.count else []
        pointers = [ctypes.c_uint64.from_address(at).value for at in table]
        for p in pointers:
            self.on_device(p, 1)
            assert p % 256 == 0, "the code takes for granted that memories lie at multiples of 256"
        self.add(out, graph, after, count, Work(f, grid, pointers))
        return 0

    def do_hipGraphInstantiateWithFlags(self, out: int, graph: int, flags: int) -> None:
        """The launches in the last order that is allowed."""
        assert not flags
        nodes, ready = dict(self.held(graph, dict)), []
        while nodes:
            last = [n for n, (after, _) in nodes.items() if not {*after} & {*nodes}][-1]
            _, work = nodes.pop(last)
            ready += [work] if work else []
        self.new(out, tuple(ready))

    def do_hipGraphLaunch(self, ready: int, stream: int) -> None:
        queue = self.held(stream, list)
        for work in self.held(ready, tuple):
            f = work.function
            queue.append(functools.partial(f.hosted.launch, f.name, work.grid, f.workgroup, work.pointers))

    def do_hipGraphExecDestroy(self, ready: int) -> None:
        self.drop(ready, tuple)


class FakeRtc:
    """Stands for libhiprtc; `compile(text, chip)` gives a code object, or raises what is wrong."""

    def __init__(self, compile: Callable[[str, str], bytes]):
        self.compile = compile
        self.fail: dict[str, int] = {}
        self.calls: list[str] = []
        self.text, self.code, self.log = "", b"", ""
        self.programs = 0

    def __getattr__(self, name: str) -> Symbol:
        if not name.startswith("hiprtc"):
            raise AttributeError(name)
        return Symbol(self, name)  # type: ignore[arg-type]

    def call(self, name: str, args: list[Any]) -> int:
        self.calls.append(name)
        return self.fail.get(name) or getattr(self, f"do_{name}")(*args) or 0

    def do_hiprtcCreateProgram(self, out: int, text: bytes, name: bytes, *headers: Any) -> None:
        assert headers == (0, None, None) and name.endswith(b".hip")
        self.text, self.programs = text.decode(), self.programs + 1
        put(ctypes.c_void_p, out, 0x77)

    def do_hiprtcCompileProgram(self, program: int, count: int, options: int) -> int:
        given = (ctypes.c_char_p * count).from_address(options)
        arch, = (o.decode() for o in given if o.startswith(b"--offload-arch="))
        try:
            self.code = self.compile(self.text, arch.partition("=")[2])
        except ValueError as error:
            self.log = str(error)
            return 6
        return 0

    def do_hiprtcGetProgramLogSize(self, program: int, out: int) -> None:
        put(ctypes.c_size_t, out, len(self.log) + 1)

    def do_hiprtcGetProgramLog(self, program: int, out: int) -> None:
        ctypes.memmove(out, self.log.encode() + b"\0", len(self.log) + 1)

    def do_hiprtcGetCodeSize(self, program: int, out: int) -> None:
        put(ctypes.c_size_t, out, len(self.code))

    def do_hiprtcGetCode(self, program: int, out: int) -> None:
        ctypes.memmove(out, self.code, len(self.code))

    def do_hiprtcDestroyProgram(self, out: int) -> None:
        self.programs -= 1


def put(kind: Any, address: int, value: int) -> None:
    kind.from_address(address).value = value
