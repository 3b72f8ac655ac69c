"""A CUDA driver without a GPU: the functions of cuda.bindings.driver that ours calls, on a pretended
device whose kernels run in the PTX machine of the tests.

It is as strict as the real one and stricter where that only sometimes fails: every call's arguments
go through the real package first, which refuses wrong types before it looks for libcuda; what is
handed to a stream happens when something waits for it, and not before; nothing may be given back
that a stream still uses.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

from tests.machines.cuda_calls import Node, parsed
from tests.machines.cuda_memory import CudaMemory
from tests.machines.ptx import early, launch_order
from tests.machines.ptx.machine import launch
from tests.machines.ptx.parse import Entry, Program, PtxError
from tests.machines.ptx.tensor_maps import TensorMap

UNITS = 4  # multiprocessors


class FakeCuda(CudaMemory):
    """Stands for the module cuda.bindings.driver: devices, code and graphs."""

    # -- devices ---------------------------------------------------------------------------------------

    def do_cuInit(self, flags: int) -> None:
        assert not flags
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
                 "WARP_SIZE": 32, "MAX_GRID_DIM_X": (1 << 31) - 1, "MULTIPROCESSOR_COUNT": UNITS,
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

    def do_cuCtxGetCurrent(self) -> Any:
        return self.stack[-1] if self.stack else self.real.CUcontext(0)

    def do_cuCtxSetCurrent(self, context: Any) -> None:
        assert self.retained and int(context) == 77 and not self.stack
        self.stack.append(context)

    def do_cuCtxPopCurrent(self) -> Any:
        self.pushed -= 1
        return self.stack.pop()

    # -- code ------------------------------------------------------------------------------------------

    def do_cuModuleLoadDataEx(self, image: bytes, count: int, options: list, values: list) -> Any:
        options_by_name = {o.name: v for o, v in zip(options, values, strict=True)}
        assert count == len(options)
        log = options_by_name["CU_JIT_ERROR_LOG_BUFFER"]
        assert len(log) == options_by_name["CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES"]
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
        """cuTensorMapEncodeTiled: 0, or 1 for a value that the driver calls invalid."""
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
        assert not flags
        return self.new("CUgraph", {})

    def do_cuGraphDestroy(self, graph: Any) -> None:
        del self.handles[int(graph)]

    def do_cuGraphAddEmptyNode(self, graph: Any, after: list, count: int) -> Any:
        return self.node(graph, Node([int(n) for n in after]), count)

    def do_cuStreamBeginCapture(self, stream: Any, mode: Any) -> None:
        assert mode.name == "CU_STREAM_CAPTURE_MODE_RELAXED", "the library could not load its code"
        assert int(stream) in self.streams and int(stream) not in self.capturing
        self.capturing[int(stream)] = []

    def do_cuStreamEndCapture(self, stream: Any) -> Any:
        return self.new("CUgraph", {k: Node([], copy=work) for k, work in enumerate(self.capturing.pop(int(stream)))})

    def do_cuGraphAddChildGraphNode(self, graph: Any, after: list, count: int, child: Any) -> Any:
        inside = [*self.held(child, dict).values()]
        assert inside, "the stream has captured nothing"

        def run() -> None:
            for node in inside:
                node.copy()
        return self.node(graph, Node([int(n) for n in after], copy=run), count)

    def do_cuGraphAddKernelNode(self, graph: Any, after: list, count: int, p: Any) -> Any:
        entry = self.held(p.func, Entry)
        if (p.blockDimX, p.blockDimY, p.blockDimZ) != entry.workgroup:
            return "INVALID_VALUE", None
        declared = sum(a.size for a in entry.arrays.values())
        if declared > 48 * 1024 or declared + p.sharedMemBytes > max(self.asked.get(int(p.func), 0), 48 * 1024):
            return "INVALID_VALUE", None
        if not (0 < p.gridDimX < 1 << 31 and 0 < p.gridDimY < 1 << 16 and 0 < p.gridDimZ < 1 << 16):
            return "INVALID_VALUE", None
        pointers, maps = [], []
        if entry.parameters:
            given = len(entry.parameters)
            table = (ctypes.c_void_p * (given + len(entry.maps))).from_address(int(p.kernelParams))
            pointers = [ctypes.c_uint64.from_address(at).value for at in table[:given]]
            for address in pointers:
                self.bytes_at(address, 1)
                assert address % 256 == 0, "the code takes for granted that memories are at multiples of 256"
            maps = [self.encoded[bytes((ctypes.c_uint8 * 128).from_address(at))] for at in table[given:]]
        if p.gridDimX * p.gridDimY * p.gridDimZ % entry.cluster:
            return "INVALID_VALUE", None
        node = Node([int(n) for n in after], entry, (p.gridDimX, p.gridDimY, p.gridDimZ), pointers,
                    p.sharedMemBytes, maps)
        return self.node(graph, node, count)

    def do_cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: Any, threads: int, shared: int) -> Any:
        assert self.held(function, Entry) and self.asked.get(int(function), 0) == shared
        return 2048 // threads

    def do_cuGraphKernelNodeSetAttribute(self, node: Any, which: Any, value: Any) -> Any:
        node = self.held(node, Node)
        if which.name != "CU_LAUNCH_ATTRIBUTE_COOPERATIVE" or value.cooperative != 1 or not node.entry:
            return "INVALID_VALUE", None
        if math.prod(node.grid) > UNITS * (2048 // math.prod(node.entry.workgroup)):
            return "COOPERATIVE_LAUNCH_TOO_LARGE", None
        node.at_once = True
        return None

    def do_cuGraphAddDependencies(self, graph: Any, sources: list, targets: list, edges: list, count: int) -> Any:
        nodes = self.held(graph, dict)
        assert count == len(sources) == len(targets) == len(edges)
        for source, target, edge in zip(sources, targets, edges, strict=True):
            before, node = nodes[int(source)], nodes[int(target)]
            kind = edge.type, edge.from_port, edge.to_port
            if int(source) in node.after or not before.entry or not node.entry or kind != (1, 1, 0):
                return "INVALID_VALUE", None
            if before.at_once:  # as a driver may
                return "NOT_SUPPORTED", None
            assert early.waits(node.entry), "a kernel starts early that never waits"
            node.after.append(int(source))
            node.early.add(int(source))
        return None

    def do_cuGraphAddMemcpyNode(self, graph: Any, after: list, count: int, p: Any, context: Any) -> Any:
        assert int(context) == 77 and (p.Height, p.Depth) == (1, 1)
        kinds, size = (p.srcMemoryType.name, p.dstMemoryType.name), p.WidthInBytes
        if kinds == ("CU_MEMORYTYPE_HOST", "CU_MEMORYTYPE_DEVICE"):
            copy = self.copied(self.bytes_at(p.dstDevice, size), self.host_at(p.srcHost, size))
        elif kinds == ("CU_MEMORYTYPE_DEVICE", "CU_MEMORYTYPE_HOST"):
            copy = self.copied(self.host_at(p.dstHost, size), self.bytes_at(p.srcDevice, size))
        else:
            return "INVALID_VALUE", None
        return self.node(graph, Node([int(n) for n in after], copy=copy), count)

    def node(self, graph: Any, node: Node, count: int) -> Any:
        assert count == len(node.after)
        nodes = self.held(graph, dict)
        assert set(node.after) <= set(nodes), "after a node of another graph"
        made = self.new("CUgraphNode", node)
        nodes[int(made)] = node
        return made

    def do_cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        assert not flags
        nodes = dict(self.held(graph, dict))
        ready: list[Node] = []
        while nodes:
            free = [n for n, node in nodes.items() if not set(node.after) & set(nodes)]
            ready.append(nodes.pop(free[-1 if self.shuffled else 0]))
            meets = ready[-1].entry and launch_order.counts(ready[-1].entry)
            assert ready[-1].at_once or not meets, "blocks wait for others that may never run"
        return self.new("CUgraphExec", ready)

    def do_cuGraphLaunch(self, ready: Any, stream: Any) -> None:
        for node in self.held(ready, list):
            if node.copy is not None:
                self.enqueue(stream, node.copy)
            if node.entry is not None:
                self.enqueue(stream, functools.partial(
                    launch, node.entry, node.grid, node.pointers, self.memory, shared=node.shared,
                    maps=node.maps))

    def do_cuGraphExecDestroy(self, ready: Any) -> None:
        self.drop(ready)
