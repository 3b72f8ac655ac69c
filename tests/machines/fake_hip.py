"""HIP without a GPU: the functions of libamdhip64 that the driver calls, by the very arguments that
ctypes would hand over, on a pretended device.

Code objects are read as a driver reads them: descriptor, note, arguments. What runs is the text they
were made of, thread by thread, on the CPU. It is as strict as the real library and stricter where
that only sometimes fails: what is handed to a stream happens when something waits for it, nothing
may be given back that a stream still uses, and every thread must say which device it means.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

from tests.machines.hip_calls import Function, Symbol, Work, put
from tests.machines.hip_memory import HipMemory
from tests.machines.rocm import code_object


class FakeHip(HipMemory):
    """Stands for libamdhip64: devices, code and graphs."""

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
        entry = code_object.kernels(image).get(name.decode())
        if entry is None:
            return 500
        arguments = [a for a in entry[".args"] if not a[".value_kind"].startswith("hidden")]
        for k, a in enumerate(arguments):
            assert (a[".offset"], a[".size"], a[".address_space"]) == (8 * k, 8, "global")
        assert code_object.descriptor(image, entry[".name"]).arguments == entry[".kernarg_segment_size"]
        group = entry.get(".reqd_workgroup_size", (entry[".max_flat_workgroup_size"], 1, 1))
        self.new(out, Function(module, hosted, entry[".name"], tuple(group), len(arguments)))
        return 0

    # -- graphs ----------------------------------------------------------------------------------------

    def do_hipGraphCreate(self, out: int, flags: int) -> None:
        assert not flags
        self.new(out, {})

    def do_hipGraphDestroy(self, graph: int) -> None:
        for node in self.held(graph, dict):
            del self.handles[node]
        del self.handles[graph]

    def add(self, out: int, graph: int, after: int, count: int,
            work: Work | Callable[[], Any] | None) -> None:
        before = list((ctypes.c_uint64 * count).from_address(after)) if count else []
        nodes = self.held(graph, dict)
        assert set(before) <= set(nodes), "after a node of another graph"
        assert len(before) == len(set(before)), "twice after one node, which ROCm refuses"
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
        if tuple(block) != f.workgroup or shared or extra or (f.count and not arguments):
            return 1
        if not all(0 < n < 1 << 32 for n in sizes):
            return 9  # hipErrorInvalidConfiguration
        table = (ctypes.c_void_p * f.count).from_address(arguments) if f.count else []
        pointers = [ctypes.c_uint64.from_address(at).value for at in table]
        for p in pointers:
            self.on_device(p, 1)
            assert p % 256 == 0, "the code takes for granted that memories are at multiples of 256"
        self.add(out, graph, after, count, Work(f, grid, pointers))
        return 0

    def do_hipGraphAddMemcpyNode1D(self, out: int, graph: int, after: int, count: int, target: int, source: int,
                                   size: int, kind: int) -> int:
        if kind not in (1, 2) or not size:
            return 1
        host, device = (source, target) if kind == 1 else (target, source)
        self.on_device(device, size)
        assert any(a <= host and host + size <= a + n for a, n in self.pinned.items()), "not pinned"
        self.add(out, graph, after, count, functools.partial(ctypes.memmove, target, source, size))
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
            if not isinstance(work, Work):  # a copy
                queue.append(work)
                continue
            f = work.function
            queue.append(functools.partial(f.hosted.launch, f.name, work.grid, f.workgroup, work.pointers))

    def do_hipGraphExecDestroy(self, ready: int) -> None:
        self.drop(ready, tuple)


class FakeRtc:
    """Stands for libhiprtc; `compile(text, chip)` gives a code object, or raises an error."""

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
