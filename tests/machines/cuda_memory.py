"""Streams, events and memory of a pretended CUDA driver."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.machines.cuda_calls import CudaCalls


class CudaMemory(CudaCalls):
    """Work that waits on streams, events between them, and memory of the device and the host."""

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
        if int(stream) in self.capturing:
            return "STREAM_CAPTURE_UNSUPPORTED", None
        if self.sick:
            self.broken, self.sick = self.sick, ""
            self.forget()
            return self.broken, None
        self.work_off(stream)
        return None

    def forget(self) -> None:
        """Work that was handed over never completes."""
        for queue in self.streams.values():
            queue.clear()

    def work_off(self, stream: Any) -> None:
        queue = self.streams[int(stream)]
        while queue:
            queue.pop(0)()

    # -- events ----------------------------------------------------------------------------------------

    def do_cuEventCreate(self, flags: int) -> Any:
        assert flags in (0, 2), "a default event, or one without times"
        return self.new("CUevent", {"timed": not flags})

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
        assert not flags
        self.enqueue(stream, functools.partial(self.reach, self.marked(event)))

    def do_cuEventElapsedTime(self, start: Any, end: Any) -> Any:
        if not all(self.held(e, dict)["timed"] for e in (start, end)):
            return "INVALID_HANDLE", None
        first, last = self.marked(start), self.marked(end)
        return float(last["at"] - first["at"]) if {"at"} <= first.keys() & last.keys() else ("NOT_READY", None)

    def do_cuMemAlloc(self, nbytes: int) -> Any:
        if not nbytes:
            return "INVALID_VALUE", None
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

    def host_at(self, address: int, size: int) -> np.ndarray:
        """Memory that the driver knows, for copies that stay in a graph."""
        assert any(a <= address and address + size <= a + n for a, n in self.pinned.items()), "not pinned"
        return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)

    def copied(self, target: np.ndarray, source: np.ndarray) -> Callable[[], None]:
        return functools.partial(np.copyto, target, source)

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
        self.capturing.get(int(stream), self.held(stream, list)).append(work)
