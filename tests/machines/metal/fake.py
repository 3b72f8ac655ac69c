"""PyObjC's view of Metal, played by this machine: kernels run as C++ (see shim/metal_stdlib).

Only the names that are here exist, and each checks what the real one would: a wrong name, order or
argument of the driver is an error, not a pass. `Mac` holds what a test wants to go wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.machines.metal.compiling import Function, Library
from ztorch.backends import registry
from ztorch.backends.drivers import metal


class Mac:
    """The machine: its properties, its faults, and the requests that it got."""

    def __init__(self, **changes: Any):
        self.devices = 1
        self.memory = 1 << 34
        self.families = {1006, 1007, 5001}
        self.lockstep = 32
        self.modern = True  # macOS 15 or later
        self.fails: dict[str, Any] = {}  # call: its result, or the error that it raises
        self.calls: list[tuple] = []
        self.pools = 0
        for name, value in changes.items():
            assert hasattr(self, name)
            setattr(self, name, value)

    def said(self, name: str, *args: Any) -> Any:
        assert self.pools > 0 or name == "completed", f"{name} outside of an autorelease pool"
        self.calls.append((name, *args))
        wrong = self.fails.get(name)
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    def modules(self) -> dict[str, types.ModuleType]:
        """The results of `import Metal` and `import objc`."""
        metal, objc = types.ModuleType("Metal"), types.ModuleType("objc")
        metal.MTLCopyAllDevices = lambda: [Device(self, k) for k in range(self.devices)] or None
        metal.MTLSize = Size
        metal.MTLCompileOptions = Options(self)
        objc.error = Raised
        objc.autorelease_pool = self.pool
        return {"Metal": metal, "objc": objc}

    @contextlib.contextmanager
    def pool(self) -> Iterator[None]:
        self.pools += 1
        try:
            yield
        finally:
            self.pools -= 1


class Raised(Exception):
    """An NSException."""


class Size(NamedTuple):
    width: int
    height: int
    depth: int


class Problem:
    """An NSError."""

    def __init__(self, text: str, code: int = 1):
        self.text, self.number = text, code

    def localizedDescription(self) -> str:
        return self.text

    def code(self) -> int:
        return self.number


class Options:
    def __init__(self, mac: Mac):
        self.mac, self.math, self.fast = mac, None, None

    def alloc(self) -> Options:
        return Options(self.mac)

    def init(self) -> Options:
        return self

    def respondsToSelector_(self, name: str) -> bool:
        assert name == "setMathMode:"
        return self.mac.modern

    def setMathMode_(self, mode: int) -> None:
        assert self.mac.modern
        self.math = mode

    def setFastMathEnabled_(self, on: bool) -> None:
        self.fast = on


class Device:
    def __init__(self, mac: Mac, number: int):
        self.mac, self.number, self.used = mac, number, 0

    def name(self) -> str:
        return f"Apple M{self.number}"

    def maxThreadsPerThreadgroup(self) -> Size:
        return Size(1024, 1024, 1024)

    def maxThreadgroupMemoryLength(self) -> int:
        return 32768

    def maxBufferLength(self) -> int:
        return self.mac.memory // 2

    def recommendedMaxWorkingSetSize(self) -> int:
        return self.mac.memory

    def currentAllocatedSize(self) -> int:
        return self.used

    def hasUnifiedMemory(self) -> bool:
        return 1006 in self.mac.families

    def supportsFamily_(self, family: int) -> bool:
        return family in self.mac.families

    def newCommandQueue(self) -> Any:
        return None if self.mac.said("newCommandQueue") == "nothing" else Queue(self.mac)

    def newBufferWithLength_options_(self, nbytes: int, options: int) -> Any:
        assert nbytes > 0 and options == 0, "shared storage"
        if self.mac.said("newBuffer", nbytes) == "nothing":
            return None
        self.used += nbytes
        return Buffer(self, nbytes)

    def newLibraryWithSource_options_error_(
            self, text: str, options: Options, error: None) -> tuple:
        assert error is None and isinstance(text, str)
        assert options.math == 0 or options.fast is False, "fast math"
        self.mac.said("newLibrary")
        try:
            return Library(self.mac, text), Problem("a warning, which is not a failure")
        except subprocess.CalledProcessError as refused:
            return None, Problem(refused.stderr.decode()[:500])

    def newComputePipelineStateWithFunction_error_(
            self, function: Function, error: None) -> tuple:
        assert error is None
        if self.mac.said("newPipeline", function.name) == "nothing":
            return None, Problem("out of registers")
        return Pipeline(self.mac, function), None


class Buffer:
    def __init__(self, device: Device, nbytes: int):
        self.device = device
        self.data: bytearray | None = bytearray(b"\xee" * nbytes)

    def length(self) -> int:
        assert self.data is not None, "its memory was given back"
        return len(self.data)

    def contents(self) -> Buffer:
        assert not any(not c.done for c in Commands.committed), "read while a kernel may write"
        return self

    def as_buffer(self, nbytes: int) -> memoryview:
        assert nbytes == self.length()
        return memoryview(self.data)  # type: ignore[arg-type]

    def setPurgeableState_(self, state: int) -> int:
        assert state == 4 and self.data is not None
        self.device.used -= len(self.data)
        self.data = None
        return 2


class Pipeline:
    def __init__(self, mac: Mac, function: Function):
        self.mac, self.function = mac, function

    def maxTotalThreadsPerThreadgroup(self) -> int:
        return int(self.mac.fails.get("threads", self.function.most))

    def threadExecutionWidth(self) -> int:
        return self.mac.lockstep


class Queue:
    def __init__(self, mac: Mac):
        self.mac = mac

    def commandBuffer(self) -> Any:
        return None if self.mac.said("commandBuffer") == "nothing" else Commands(self.mac)


class Commands:
    """A command buffer and its encoder. Kernels run when something waits."""

    committed: list[Commands] = []

    def __init__(self, mac: Mac):
        self.mac, self.todo, self.bound = mac, [], {}  # type: ignore[var-annotated]
        self.open, self.done, self.pipeline = False, False, None  # type: ignore[assignment]

    def computeCommandEncoderWithDispatchType_(self, kind: int) -> Commands:
        assert kind == 1, "concurrent"
        self.mac.said("encoder")
        self.open = True
        return self

    def memoryBarrierWithScope_(self, scope: int) -> None:
        assert self.open and scope == 1, "buffers"
        self.mac.said("memoryBarrier")

    def setComputePipelineState_(self, pipeline: Pipeline) -> None:
        assert self.open
        self.pipeline, self.bound = pipeline, {}  # type: ignore[assignment]

    def setBuffer_offset_atIndex_(self, buffer: Buffer, at: int, index: int) -> None:
        assert self.open and index < 31 and 0 <= at < buffer.length() and at % 4 == 0
        self.bound[index] = (buffer, at)

    def dispatchThreadgroups_threadsPerThreadgroup_(self, grid: Size, group: Size) -> None:
        assert self.open and isinstance(grid, Size) and isinstance(group, Size)
        function = self.pipeline.function  # type: ignore[attr-defined]
        assert sorted(self.bound) == list(range(function.buffers))
        assert group.width * group.height * group.depth == function.most
        self.mac.said("dispatch", function.name)
        self.todo.append((function, grid, group, dict(self.bound)))

    def endEncoding(self) -> None:
        self.open = False

    def commit(self) -> None:
        assert not self.open and self not in Commands.committed
        self.mac.said("commit")
        Commands.committed.append(self)

    def waitUntilCompleted(self) -> None:
        assert self in Commands.committed
        while not self.done:
            Commands.committed.pop(0).work()

    def work(self) -> None:
        """Those that were committed before have run."""
        self.done = True
        if "completed" in self.mac.fails:
            return
        for function, grid, group, bound in self.todo:
            places = [np.frombuffer(b.data, np.uint8).ctypes.data + at
                      for b, at in (bound[k] for k in range(len(bound)))]
            function.run((ctypes.c_void_p * max(len(places), 1))(*places),
                         (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*group))

    def status(self) -> int:
        return 5 if "completed" in self.mac.fails else 4

    def error(self) -> Problem:
        problem: Problem = self.mac.fails["completed"]
        return problem


@contextlib.contextmanager
def playing(mac: Mac) -> Iterator[Mac]:
    """The driver finds this Mac instead of the machine it is on."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in mac.modules().items():
            patch.setitem(sys.modules, name, module)
        patch.setattr(metal, "SYSTEM", "darwin")
        for cached in (metal._metal, metal._devices):
            cached.cache_clear()
        try:
            yield mac
        finally:
            for key in [k for k in registry._opened if k[0] == "metal"]:
                registry._opened.pop(key).close()
            for cached in (metal._metal, metal._devices):
                cached.cache_clear()
