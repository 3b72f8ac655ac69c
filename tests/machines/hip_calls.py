"""Checks of every call of a pretended HIP library: arguments, errors and handles."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    """One function of the library: converts its arguments by argtypes, as ctypes does."""

    def __init__(self, fake: HipCalls, name: str):
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


def put(kind: Any, address: int, value: int) -> None:
    kind.from_address(address).value = value


class HipCalls:
    """The state of a pretended library, and what every call goes through. `fail[call] = code` makes that
    call fail; `calls` lists all that were made; `sick` breaks the device when somebody next waits for it.
    `hosted(code)` gives what runs in place of a code object; `older` is a library of ROCm 5."""

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
        object = self.handles[handle]
        assert isinstance(object, kind), f"{handle:#x} is a {type(object)}"
        return object

    def drop(self, handle: int, kind: type) -> None:
        assert not self.waiting, "given back while a stream uses it"
        self.held(handle, kind)
        del self.handles[handle]
