"""The Metal backend of macOS, through PyObjC.

It has not run on a Mac yet: no kernel was compiled by Apple's compiler or run on an Apple GPU. The
tests compile the kernels as C++ and compare their results. They also check the names and the order
of the calls against Apple's documentation.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from ztorch.backends.backend import Backend
from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceInfo, DeviceModule, KernelEntry, Launch
from ztorch.errors import DeviceError, OutOfMemory

SYSTEM = sys.platform  # tests replace it
SHARED = 0  # MTLResourceStorageModeShared
CONCURRENT = 1  # MTLDispatchTypeConcurrent
BUFFERS = 1  # MTLBarrierScopeBuffers
EMPTY = 4  # MTLPurgeableStateEmpty
FAILED = 5  # MTLCommandBufferStatusError
NO_MEMORY = 8  # MTLCommandBufferErrorOutOfMemory
APPLE6 = 1006  # MTLGPUFamilyApple6, the first with shuffles between threads
ARGUMENTS = 31  # the most buffers of a kernel
SIMD = 32  # threads in lockstep on all Apple GPUs
PENDING = 32  # the most unfinished command buffers; a queue has room for 64


@functools.cache
def _metal() -> tuple[Any, Any]:
    import Metal
    import objc

    return Metal, objc


@functools.cache
def _devices() -> list[Any]:
    return list(_metal()[0].MTLCopyAllDevices() or ())


class Metal(Backend):
    """All GPUs of a Mac."""

    name = "metal"

    def refusal(self) -> str:
        if SYSTEM != "darwin":
            return "Metal is part of macOS, which this system is not"
        try:
            devices = _devices()
        except ModuleNotFoundError:
            return "pyobjc-framework-Metal is not installed; pip install 'ztorch[metal]'"
        return "" if devices else "macOS finds no device"

    def devices(self) -> list[DeviceInfo]:
        return [] if self.refusal() else [_describe(k, d) for k, d in enumerate(_devices())]

    def open(self, ordinal: int = 0) -> Device:
        return MetalDevice(self.devices()[ordinal], _devices()[ordinal])


def _describe(ordinal: int, device: Any) -> DeviceInfo:
    """The device's name and limits.

    GPUs of other vendors in older Macs run different numbers of threads in lockstep. On them,
    threads exchange values through memory, so the subgroup size is 0.
    """
    limits = {
        "threads": min(1024, int(device.maxThreadsPerThreadgroup().width)),
        "shared_bytes": int(device.maxThreadgroupMemoryLength()),
        "subgroup": SIMD if device.supportsFamily_(APPLE6) else 0,
        "max_buffers": ARGUMENTS,
        "max_buffer_bytes": min(int(device.maxBufferLength()), (1 << 31) - 1),
    }
    return DeviceInfo(ordinal, str(device.name()),
                      "integrated" if device.hasUnifiedMemory() else "gpu",
                      int(device.recommendedMaxWorkingSetSize()), "", tuple(limits.items()),
                      "Metal")


class MetalDevice(Device):
    """A command queue, and buffers in memory shared with the host."""

    def __init__(self, info: DeviceInfo, device: Any):
        super().__init__("metal", info)
        self._device = device
        self._subgroup = dict(info.limits)["subgroup"]
        self._pending: list[Any] = []
        self._queue = self._some("newCommandQueue", device.newCommandQueue)

    def _try(self, call: str, function: Any, *args: Any) -> Any:
        """Calls a function and releases temporary objects."""
        objc = _metal()[1]
        try:
            with objc.autorelease_pool():
                return function(*args)
        except objc.error as error:
            raise DeviceError(f"{self.id}: {call}: {error}") from None

    def _some(self, call: str, function: Any, *args: Any) -> Any:
        """Like `_try`, but raises an error if the result is nil, with the reason of the NSError."""
        result = self._try(call, function, *args)
        value, error = result if isinstance(result, tuple) else (result, None)
        if value is None:
            reason = error.localizedDescription() if error is not None else "returned nil"
            raise DeviceError(f"{self.id}: {call}: {reason}")
        return value

    def _close(self) -> None:
        self._synchronize()
        self._queue = None

    # -- memory ----------------------------------------------------------------------------------

    def _alloc(self, nbytes: int) -> Any:
        if nbytes > int(self._device.maxBufferLength()):
            raise OutOfMemory(f"{self.id}: {nbytes:,} bytes were requested, and a buffer may have "
                              f"{int(self._device.maxBufferLength()):,}")
        buffer = self._try("newBufferWithLength", self._device.newBufferWithLength_options_,
                           nbytes, SHARED)
        if buffer is None:
            raise OutOfMemory(f"{self.id}: newBufferWithLength: {nbytes:,} bytes are not free")
        return buffer

    def _free(self, handle: Any) -> None:
        """Frees the pages at once, even if other references to the object remain."""
        self._synchronize()
        self._try("setPurgeableState", handle.setPurgeableState_, EMPTY)

    def _bytes(self, handle: Any) -> np.ndarray:
        """Waits for all work, and returns the bytes of a buffer."""
        self._synchronize()
        contents = self._some("contents", handle.contents)
        return np.frombuffer(contents.as_buffer(handle.length()), np.uint8)

    def _write(self, handle: Any, at: int, data: np.ndarray) -> None:
        self._bytes(handle)[at:at + data.size] = data

    def _read(self, handle: Any, at: int, out: np.ndarray) -> None:
        out[...] = self._bytes(handle)[at:at + out.size]

    def _copy(self, source: Any, source_at: int, target: Any, target_at: int,
              nbytes: int) -> None:
        self._bytes(target)[target_at:target_at + nbytes] = \
            self._bytes(source)[source_at:source_at + nbytes]

    def _memory(self) -> tuple[int, int]:
        total = self.info.memory_bytes
        return max(0, total - int(self._device.currentAllocatedSize())), total

    # -- code ------------------------------------------------------------------------------------

    def _load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> Any:
        """Compiles without fast math: NaN and infinity are preserved, and square roots are exact.

        The text itself disables the fusion of multiply and add.
        """
        options = _metal()[0].MTLCompileOptions.alloc().init()
        if options.respondsToSelector_("setMathMode:"):  # since macOS 15
            options.setMathMode_(0)
        else:
            options.setFastMathEnabled_(False)
        library = self._some("newLibraryWithSource",
                             self._device.newLibraryWithSource_options_error_,
                             code.decode(errors="replace"), options, None)
        return [self._pipeline(library, e) for e in entries]

    def _pipeline(self, library: Any, entry: KernelEntry) -> Any:
        function = self._some(f"newFunctionWithName({entry.name})", library.newFunctionWithName_,
                              entry.name)
        pipeline = self._some(f"newComputePipelineState({entry.name})",
                              self._device.newComputePipelineStateWithFunction_error_, function,
                              None)
        threads = entry.workgroup[0] * entry.workgroup[1] * entry.workgroup[2]
        limit = int(pipeline.maxTotalThreadsPerThreadgroup())
        lockstep = int(pipeline.threadExecutionWidth())
        if limit < threads:
            raise DeviceError(f"{self.id}: kernel {entry.name} has groups of {threads} threads; "
                              f"this device runs it with {limit} at most")
        if self._subgroup and lockstep != self._subgroup:
            raise DeviceError(f"{self.id}: kernel {entry.name} runs {lockstep} threads in lockstep,"
                              f" where {self._subgroup} were expected")
        return pipeline

    def _unload(self, handles: Any) -> None:
        handles.clear()

    def _record(self, module: DeviceModule, launches: tuple[Launch, ...]) -> Any:
        """The arguments of all launches. A command buffer runs only once, so `_run` encodes a new
        one each time."""
        size = _metal()[0].MTLSize
        return [(module.handle[x.entry], [(b.buffer.handle, b.at) for b in x.bindings],
                 size(*x.grid), size(*module.entries[x.entry].workgroup), x.barrier)
                for x in launches]

    def _drop(self, handle: Any) -> None:
        handle.clear()

    def _run(self, handle: Any) -> None:
        if len(self._pending) >= PENDING:
            self._synchronize()
        self._pending.append(self._try("commit", self._committed, handle))

    def _committed(self, handle: Any) -> Any:
        commands = self._some("commandBuffer", self._queue.commandBuffer)
        encoder = self._some("computeCommandEncoder",
                             commands.computeCommandEncoderWithDispatchType_, CONCURRENT)
        for pipeline, bindings, grid, group, barrier in handle:
            if barrier:
                encoder.memoryBarrierWithScope_(BUFFERS)
            encoder.setComputePipelineState_(pipeline)
            for k, (buffer, at) in enumerate(bindings):
                encoder.setBuffer_offset_atIndex_(buffer, at, k)
            encoder.dispatchThreadgroups_threadsPerThreadgroup_(grid, group)
        encoder.endEncoding()
        commands.commit()
        return commands

    def _synchronize(self) -> None:
        pending, self._pending = self._pending, []
        for commands in pending:
            self._try("waitUntilCompleted", commands.waitUntilCompleted)
            if commands.status() == FAILED:
                error = commands.error()
                kind = OutOfMemory if error.code() == NO_MEMORY else DeviceError
                raise kind(f"{self.id}: a command buffer failed: {error.localizedDescription()} "
                           f"(code {error.code()})")


BACKEND = Metal()
