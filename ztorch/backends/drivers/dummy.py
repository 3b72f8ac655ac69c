"""A device with a terabyte of memory that computes nothing, to test planning at any size.

It counts memory, code and launches. Only pages that were written take memory of the host; the rest
of a buffer reads as zeros. Kernels take no time and change nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.backends.backend import Backend
from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceInfo, DeviceModule, KernelEntry, Launch
from ztorch.errors import OutOfMemory

MEMORY = 1 << 40  # bytes of the device
PAGE = 1 << 16  # bytes of a page


class Dummy(Backend):
    """Always available."""

    name = "dummy"

    def refusal(self) -> str:
        return ""

    def devices(self) -> list[DeviceInfo]:
        return [DeviceInfo(0, "nothing at all", "virtual", MEMORY)]

    def open(self, ordinal: int = 0) -> Device:
        return DummyDevice(self.devices()[ordinal])


class DummyDevice(Device):
    """The device. `launched` counts the launches that were run."""

    def __init__(self, info: DeviceInfo):
        super().__init__("dummy", info)
        self.launched = 0

    def _close(self) -> None: ...

    def _alloc(self, nbytes: int) -> Any:
        if self.allocated + nbytes > MEMORY:
            raise OutOfMemory(f"{self.id}: {nbytes:,} bytes were requested, and "
                              f"{MEMORY - self.allocated:,} are free")
        return {}

    def _free(self, handle: Any) -> None:
        handle.clear()

    def _write(self, handle: Any, at: int, data: np.ndarray) -> None:
        for page, inside, part in _pages(at, data):
            handle.setdefault(page, np.zeros(PAGE, np.uint8))[inside:inside + part.size] = part

    def _read(self, handle: Any, at: int, out: np.ndarray) -> None:
        for page, inside, part in _pages(at, out):
            stored = handle.get(page)
            part[...] = 0 if stored is None else stored[inside:inside + part.size]

    def _copy(self, source: Any, source_at: int, target: Any, target_at: int,
              nbytes: int) -> None:
        for start in range(0, nbytes, PAGE):
            part = np.empty(min(PAGE, nbytes - start), np.uint8)
            self._read(source, source_at + start, part)
            self._write(target, target_at + start, part)

    def _memory(self) -> tuple[int, int]:
        return MEMORY - self.allocated, MEMORY

    def _load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> Any:
        return [code[e.at:e.at + e.size] for e in entries]

    def _unload(self, handle: Any) -> None:
        handle.clear()

    def _record(self, module: DeviceModule, launches: tuple[Launch, ...]) -> Any:
        return len(launches)

    def _drop(self, handle: Any) -> None: ...

    def _run(self, handle: Any) -> None:
        self.launched += handle

    def _synchronize(self) -> None: ...


def _pages(at: int, data: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """The pages of a range of bytes in order: number, offset in the page, part of the data."""
    out, offset = [], 0
    while offset < data.size:
        page, inside = divmod(at + offset, PAGE)
        size = min(PAGE - inside, data.size - offset)
        out.append((page, inside, data[offset:offset + size]))
        offset += size
    return out


BACKEND = Dummy()
