"""AMD's GPUs, through HIP."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from typing import Any

import numpy as np

from ztorch.backends import hip
from ztorch.backends.device import Backend, Device, Entry, Found, Launch, Module
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.machines.chips import runnable

PROPERTIES = 16 * 1024  # bytes, more than hipDeviceProp_t ever had
# What a driver without a device answers; anything else is a driver that is broken.
NOTHING_HERE = ("hipErrorNoDevice", "hipErrorInvalidDevice")
FORKED = ("this process was forked from one that used ROCm, and a forked child cannot use it; "
          "start processes by multiprocessing's spawn")
TEXT = "hip"  # the chip of code that is HIP's C++, compiled when a program is loaded

_P = ctypes.c_void_p


class Rocm(Backend):
    """Every device that HIP shows, in its order."""

    name = "rocm"

    def __init__(self) -> None:
        self._process: int | None = None  # that started the driver

    def refusal(self) -> str:
        if hip.library() is None:
            return f"ROCm is not installed (no {hip.LIBRARIES[0]} nor an older one)"
        if self._process not in (None, os.getpid()):
            return FORKED
        try:
            hip.call(self.name, "hipInit", 0)
            self._process = os.getpid()
            return "" if _count() else "HIP shows no device"
        except DeviceError as error:
            if any(code in str(error) for code in NOTHING_HERE):
                return str(error)
            raise

    def found(self) -> list[Found]:
        return [] if self.refusal() else [_describe(k) for k in range(_count())]

    def open(self, ordinal: int = 0) -> Device:
        return RocmDevice(self.found()[ordinal])


def _count() -> int:
    return int(hip.asked(Rocm.name, "hipGetDeviceCount", ctypes.c_int))


def _describe(ordinal: int) -> Found:
    where = f"rocm:{ordinal}"

    def attribute(number: int) -> int:
        return int(hip.asked(where, "hipDeviceGetAttribute", ctypes.c_int, number, ordinal))

    limits = {"threads": attribute(hip.THREADS), "shared_bytes": attribute(hip.SHARED),
              "subgroup": attribute(hip.WAVE), "compute_units": attribute(hip.UNITS)}
    name = ctypes.create_string_buffer(256)
    hip.call(where, "hipDeviceGetName", name, len(name), ordinal)
    version = hip.asked(where, "hipRuntimeGetVersion", ctypes.c_int)
    chip = _chip(where, ordinal)
    return Found(ordinal, name.value.decode(errors="replace").strip(),
                 "integrated" if attribute(hip.INTEGRATED) else "gpu",
                 int(hip.asked(where, "hipDeviceTotalMem", ctypes.c_size_t, ordinal)),
                 (*runnable(Rocm.name, chip), TEXT)[0], tuple(limits.items()),
                 f"HIP {version // 10_000_000}.{version // 100_000 % 100}, {chip}", (TEXT,))


def _chip(where: str, ordinal: int) -> str:
    """What code for the device is compiled for. It is among the properties, at another place in
    each version; but behind the name, which is first, nothing else looks like it."""
    properties = ctypes.create_string_buffer(PROPERTIES)
    newer = "hipGetDevicePropertiesR0600"
    call = newer if hasattr(hip.library(), newer) else "hipGetDeviceProperties"
    hip.call(where, call, properties, ordinal)
    match = re.search(rb"gfx[0-9a-f]{3,5}", properties.raw[256:])
    return match[0].decode() if match else ""


class RocmDevice(Device):
    """A device with a stream of our own; recordings are graphs."""

    def __init__(self, found: Found):
        super().__init__("rocm", found)
        self._process = os.getpid()
        self._lost = ""
        self._enter()
        self._queue = self._asked("hipStreamCreateWithFlags", hip.NON_BLOCKING)

    def _try(self, name: str, *args: Any) -> None:
        try:
            hip.call(self.id, name, *args)
        except DeviceError as error:
            if any(code in str(error) for code in hip.LOST):
                self._lost = f"{error}. What the device held is lost: start a new process"
                raise DeviceError(self._lost) from None
            raise

    def _asked(self, name: str, *args: Any) -> int:
        """The address that a call writes to its first argument."""
        out = _P()
        self._try(name, ctypes.byref(out), *args)
        return out.value or 0

    def _enter(self) -> None:
        """Each thread has a current device of its own, so whoever calls says which it means."""
        if os.getpid() != self._process:
            raise DeviceError(f"{self.id}: {FORKED}")
        if self._lost:
            raise DeviceError(self._lost)
        self._try("hipSetDevice", self.found.ordinal)

    @property
    def _gone(self) -> bool:
        """Whether there is nothing to give back: it is our parent's, or lost."""
        return bool(self._lost) or os.getpid() != self._process

    def _close(self) -> None:
        if not self._gone:
            self._synchronise()
            self._try("hipStreamDestroy", self._queue)

    # -- memory ------------------------------------------------------------------------------------

    def _alloc(self, nbytes: int) -> Any:
        self._enter()
        try:
            return self._asked("hipMalloc", nbytes)
        except OutOfMemory as error:
            free, total = self._memory()
            raise OutOfMemory(f"{error}: asked for {nbytes:,} bytes, and {free:,} of {total:,} "
                              "are free") from None

    def _free(self, handle: Any) -> None:
        if not self._gone:
            self._synchronise()
            self._try("hipFree", handle)

    def _write(self, handle: Any, at: int, data: np.ndarray) -> None:
        self._move(handle + at, data.ctypes.data, data.nbytes, hip.HOST_TO_DEVICE)
        self._synchronise()

    def _read(self, handle: Any, at: int, out: np.ndarray) -> None:
        self._move(out.ctypes.data, handle + at, out.nbytes, hip.DEVICE_TO_HOST)
        self._synchronise()

    def _copy(self, source: Any, source_at: int, target: Any, target_at: int,
              nbytes: int) -> None:
        self._move(target + target_at, source + source_at, nbytes, hip.DEVICE_TO_DEVICE)

    def _move(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self._enter()
        self._try("hipMemcpyAsync", target, source, nbytes, kind, self._queue)

    def _memory(self) -> tuple[int, int]:
        self._enter()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._try("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    # -- code --------------------------------------------------------------------------------------

    def _load(self, code: bytes, entries: tuple[Entry, ...]) -> Any:
        """The modules, and a function for each entry."""
        self._enter()
        modules: dict[tuple[int, int], int] = {}
        try:
            for e in entries:
                if (e.at, e.size) not in modules:
                    modules[e.at, e.size] = self._module(code[e.at:e.at + e.size])
            functions = [self._asked("hipModuleGetFunction", modules[e.at, e.size],
                                     e.name.encode()) for e in entries]
        except DeviceError:
            for module in modules.values() if not self._lost else ():
                self._try("hipModuleUnload", module)
            raise
        return list(modules.values()), functions

    def _module(self, code: bytes) -> int:
        """A code object, or HIP's C++, which is compiled now, for this very chip."""
        image = code if code.startswith(b"\x7fELF") else hip.compiled(
            self.id, code, _chip(self.id, self.found.ordinal))
        if not hip.whole(image):
            raise DeviceError(f"{self.id}: this is no code object, or a damaged one "
                              f"({len(image)} bytes)")
        return self._asked("hipModuleLoadData", image)

    def _unload(self, handles: Any) -> None:
        if not self._gone:
            self._synchronise()
            for module in handles[0]:
                self._try("hipModuleUnload", module)

    def _record(self, module: Module, launches: tuple[Launch, ...]) -> Any:
        """The launches as a graph, captured from the stream; None of nothing."""
        if not launches:
            return None
        self._enter()
        self._try("hipStreamBeginCapture", self._queue, hip.THREAD_LOCAL)
        try:
            for launch in launches:
                self._launch(module, launch)
        except DeviceError:
            with contextlib.suppress(DeviceError):  # else the stream would go on capturing
                self._try("hipGraphDestroy", self._captured())
            raise
        graph = self._captured()
        try:
            return self._asked("hipGraphInstantiate", graph, None, None, 0)
        finally:
            self._try("hipGraphDestroy", graph)

    def _captured(self) -> int:
        graph = _P()
        self._try("hipStreamEndCapture", self._queue, ctypes.byref(graph))
        return graph.value or 0

    def _launch(self, module: Module, launch: Launch) -> None:
        places = [_P(b.buffer.handle + b.at) for b in launch.bindings]
        arguments = (_P * len(places))(*(ctypes.addressof(p) for p in places))
        self._try("hipModuleLaunchKernel", module.handles[1][launch.entry], *launch.grid,
                  *module.entries[launch.entry].workgroup, 0, self._queue, arguments, None)

    def _drop(self, handle: Any) -> None:
        if handle is not None and not self._gone:
            self._synchronise()
            self._try("hipGraphExecDestroy", handle)

    def _run(self, handle: Any) -> None:
        if handle is not None:
            self._enter()
            self._try("hipGraphLaunch", handle, self._queue)

    def _synchronise(self) -> None:
        self._enter()
        self._try("hipStreamSynchronize", self._queue)


BACKEND = Rocm()
