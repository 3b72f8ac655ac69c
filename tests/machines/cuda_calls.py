"""Checks of every call of a pretended CUDA driver: arguments, errors, contexts and handles."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.machines.ptx.machine import check
from tests.machines.ptx.memory import GlobalMemory
from tests.machines.ptx.nvrtc import respelled
from tests.machines.ptx.parse import Entry, Program, parse
from tests.machines.ptx.tensor_maps import TensorMap

FREE = {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
        "cuDeviceTotalMem", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease", "cuCtxPushCurrent", "cuCtxGetCurrent", "cuCtxSetCurrent",
        "cuCtxPopCurrent", "cuGetErrorString", "cuGetProcAddress"}
"""Calls that need no current context."""


@functools.cache
def parsed(text: str) -> Program:
    program = parse(respelled(text) if "NVIDIA NVVM Compiler" in text else text)
    for entry in program.entries.values():
        check(entry)
    return program


@functools.cache
def _without_library(real: Any) -> type[Exception] | None:
    """The real package's error where there is no libcuda; None where there is one."""
    try:
        real.cuInit(0)
    except RuntimeError as error:
        return type(error)
    return None


def _form(x: Any) -> Any:
    """The key of a conversion of x: types, and the sizes of numbers."""
    if isinstance(x, (tuple, list)):
        return type(x), *map(_form, x)
    return (type(x), x < 0, x.bit_length()) if type(x) is int else type(x)


# Calls whose arguments the real package has taken: each looks for the driver, which is not there.
CONVERTED: set[tuple] = set()


@dataclass
class Node:
    """A node of a graph: its operation, and the nodes before it."""

    after: list[int]
    entry: Entry | None = None
    grid: tuple[int, int, int] = (1, 1, 1)
    pointers: list[int] = field(default_factory=list)
    shared: int = 0
    maps: list[TensorMap] = field(default_factory=list)
    copy: Callable[[], None] | None = None
    early: set[int] = field(default_factory=set)  # of those before it: it starts before they end
    at_once: bool = False  # whether all its blocks run at the same time


class CudaCalls:
    """The state of a pretended driver, and what every call goes through. `fail[call] = code` makes that call
    fail; `calls` lists the names of all that were made; `sick` breaks the context when it next waits."""

    def __init__(self, real: Any, capability: tuple[int, int] = (9, 0), devices: int = 1,
                 memory: int = 1 << 30, shuffled: bool = False):
        self.real, self.capability, self.devices, self.total = real, capability, devices, memory
        self.shuffled = shuffled  # run the nodes of a graph in the last order that is allowed
        self.process = os.getpid()
        self.calls: list[str] = []
        self.fail: dict[str, str] = {}
        self.sick = ""
        self.cubins: dict[bytes, bytes] = {}  # the text of each that this device takes
        self.shared = False  # whether another library holds the context too
        self.started = False
        self.retained = self.pushed = 0
        self.broken = ""
        self.encoded: dict[bytes, TensorMap] = {}
        self.missing = False  # whether the driver is too old to encode them
        pointer, whole, word = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32
        self.encoder = ctypes.CFUNCTYPE(whole, pointer, whole, word, *[pointer] * 5, *[whole] * 4)(self.encode)
        self.local = threading.local()
        self.lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        self.memory = GlobalMemory()
        self.used = 0
        self.handles: dict[int, Any] = {}
        self.pinned: dict[int, int] = {}  # bytes of the host's blocks, by address
        self.asked: dict[int, int] = {}  # bytes of shared memory that launches of functions may have
        self.streams: dict[int, list[Callable[[], None]]] = {}
        self.capturing: dict[int, list[Callable[[], None]]] = {}  # work of streams that capture, not done
        self.clock = 0

    @property
    def waiting(self) -> bool:
        return any(self.streams.values())

    # -- every call ------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or not hasattr(self.real, name):
            return getattr(self.real, name)
        return functools.partial(self.call, name)

    def call(self, name: str, *args: Any) -> tuple:
        function = getattr(type(self), f"do_{name.removesuffix('_v2')}")
        missing = _without_library(self.real)
        form = (name, _form(args))
        if missing and form not in CONVERTED:  # it converts the arguments before it fails
            with contextlib.suppress(missing):
                getattr(self.real, name)(*args)
            CONVERTED.add(form)
        with self.lock:
            self.calls.append(name)
            code = self.refuse(name)
            match = None
            if code and name == "cuStreamEndCapture":
                self.capturing.pop(int(args[0]))  # it has ended all the same
            if not code:
                answer = function(self, *args)
                code, match = answer if isinstance(answer, tuple) and isinstance(
                    answer[0], str) else ("SUCCESS", answer)
        result = getattr(self.real.CUresult,
                         "CUDA_SUCCESS" if code == "SUCCESS" else f"CUDA_ERROR_{code}")
        if isinstance(match, list):
            return (result, *match)
        return (result,) if match is None and code == "SUCCESS" and function.__annotations__.get(
            "return") in ("None", None) else (result, match)

    def refuse(self, name: str) -> str:
        if os.getpid() != self.process:
            raise AssertionError(f"{name} in a forked child")
        if name in self.fail:
            return self.fail[name]
        if name == "cuGetErrorString":
            return ""
        if not self.started and name != "cuInit":
            return "NOT_INITIALIZED"
        if name not in FREE:
            if not self.stack:
                return "INVALID_CONTEXT"
            if self.broken:
                return self.broken
        return ""

    @property
    def stack(self) -> list[Any]:
        if not hasattr(self.local, "stack"):
            self.local.stack = []
        return self.local.stack

    def new(self, kind: str, what: Any) -> Any:
        number = 1000 + len(self.calls)
        assert number not in self.handles
        self.handles[number] = what
        return getattr(self.real, kind)(number)

    def held(self, handle: Any, kind: type | None = None) -> Any:
        object = self.handles[int(handle)]
        assert kind is None or isinstance(object, kind), f"{handle} is a {type(object)}"
        return object

    def drop(self, handle: Any) -> None:
        assert not self.waiting, "given back while a stream uses it"
        del self.handles[int(handle)]
