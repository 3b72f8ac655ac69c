"""Handles of devices: memory, code, launches, recordings.

A device owns the handles it gives out; only it looks at `handle`, which is its driver's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Owner(Protocol):
    """The device that a thing belongs to, as far as the thing must know it."""

    id: str


class DeviceInfo(NamedTuple):
    """A device as its driver describes it."""

    ordinal: int  # its number in the driver's order
    name: str
    kind: str  # gpu, integrated, virtual or cpu
    memory_bytes: int
    chip: str = ""  # that code is compiled for (sm_90, gfx942); empty: one text serves all devices
    # Fields of ir.limits.Grid, where this device differs from the row of its target.
    limits: tuple[tuple[str, int], ...] = ()
    driver: str = ""  # name and version, for people
    runs: tuple[str, ...] = ()  # further chips whose code it takes


class TensorMap(NamedTuple):
    """How a kernel copies boxes out of one of its memories, the innermost axis first."""

    place: int  # number of the memory among those of the kernel
    dtype: str  # of an element
    at: int  # byte of the memory at which the tensor begins
    extents: tuple[int, ...]  # elements along each axis
    pitches: tuple[int, ...]  # bytes from one to the next along each axis but the first
    box: tuple[int, ...]  # elements of a box along each axis


class KernelEntry(NamedTuple):
    """A kernel in the code of a program."""

    name: str
    at: int  # where the part of the code that holds it begins, in bytes
    size: int  # of that part, in bytes
    workgroup: tuple[int, int, int]  # threads
    shared: int = 0  # bytes of dynamic shared memory per launch
    maps: tuple[TensorMap, ...] = ()  # arguments after its memories


class DeviceBuffer:
    """Memory of a device."""

    __slots__ = ("device", "handle", "nbytes")

    def __init__(self, device: Owner, nbytes: int, handle: Any):
        self.device = device
        self.nbytes = nbytes
        self.handle = handle


class LentBuffer(DeviceBuffer):
    """Memory of a device that another library owns."""

    __slots__ = ("give_back",)

    def __init__(self, device: Owner, nbytes: int, handle: Any, give_back: Callable[[], None]):
        super().__init__(device, nbytes, handle)
        self.give_back = give_back


class DevicePiece(NamedTuple):
    """Some bytes of a buffer."""

    buffer: DeviceBuffer
    at: int  # the first of them
    nbytes: int


class Binding(NamedTuple):
    """The part of a buffer that a kernel gets as one of its memories."""

    buffer: DeviceBuffer
    at: int
    nbytes: int
    written: bool


class Launch(NamedTuple):
    """One kernel on its memories."""

    entry: int  # number among the entries of its module
    grid: tuple[int, int, int]  # workgroups
    bindings: tuple[Binding, ...]
    barrier: bool = True  # whether it depends on a launch since the last barrier


def wrong_count(device: str, kernel: str, wanted: int, count: int) -> str:
    """The message for a launch with too many or too few buffers."""
    return f"{device}: kernel {kernel!r} takes {wanted} buffer{'s' * (wanted != 1)}, not {count}"


class LoadedCode(NamedTuple):
    """What a driver of GPUs has made of code."""

    modules: list[Any]  # of the driver
    functions: list[Any]  # of the driver, for each entry
    early: frozenset[int] = frozenset()  # entries that wait by themselves for those before them


@dataclass
class DeviceModule:
    """Code on a device."""

    device: Owner
    entries: tuple[KernelEntry, ...]
    handle: Any
    live: bool = True  # not unloaded


@dataclass
class Recording:
    """A list of launches, prepared once, to be replayed again and again."""

    device: Owner
    module: DeviceModule
    launches: tuple[Launch, ...]
    buffers: frozenset[DeviceBuffer]
    handle: Any
    live: bool = True  # not dropped
