"""Streams, events and memory of a pretended HIP library."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.machines.hip_calls import HipCalls, put


class HipMemory(HipCalls):
    """Work that waits on streams, events between them, and memory of the device and the host."""

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
