"""The objects of a device: descriptions, buffers, code, launches and recordings.

Their field `handle` belongs to the driver; only the device uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Owner(Protocol):
    """The device that an object belongs to."""

    id: str


class DeviceInfo(NamedTuple):
    """The description of a device."""

    ordinal: int  # its number in the driver's order
    name: str
    kind: str  # gpu, integrated, virtual or cpu
    memory_bytes: int
    # The chip that code is compiled for (sm_90, gfx942); empty if all devices take the same text.
    chip: str = ""
    # Fields of ir.limits.Grid in which this device differs from its target's row.
    limits: tuple[tuple[str, int], ...] = ()
    driver: str = ""  # name and version, for display
    runs: tuple[str, ...] = ()  # other chips whose code it also runs


class TensorMap(NamedTuple):
    """How a kernel copies boxes from one of its buffers. Axes are in order from the innermost."""

    place: int  # number of the buffer among those of the kernel
    dtype: str  # of an element
    at: int  # offset of the tensor in the buffer, in bytes
    extents: tuple[int, ...]  # elements along each axis
    pitches: tuple[int, ...]  # stride in bytes of each axis but the first
    box: tuple[int, ...]  # elements of a box along each axis


class KernelEntry(NamedTuple):
    """A kernel in the code of a program."""

    name: str
    at: int  # offset of the kernel's module in the code, in bytes
    size: int  # size of that module, in bytes
    workgroup: tuple[int, int, int]  # threads along x, y and z
    shared: int = 0  # bytes of dynamic shared memory
    maps: tuple[TensorMap, ...] = ()  # tensor maps, its arguments after the buffers


class DeviceBuffer:
    """Memory of a device."""

    __slots__ = ("device", "handle", "nbytes")

    def __init__(self, device: Owner, nbytes: int, handle: Any):
        self.device = device
        self.nbytes = nbytes
        self.handle = handle


class BorrowedBuffer(DeviceBuffer):
    """Memory of a device that another library owns."""

    __slots__ = ("release",)

    def __init__(self, device: Owner, nbytes: int, handle: Any, release: Callable[[], None]):
        super().__init__(device, nbytes, handle)
        self.release = release


class DevicePiece(NamedTuple):
    """A range of bytes in a buffer."""

    buffer: DeviceBuffer
    at: int  # offset of the first byte
    nbytes: int


class Binding(NamedTuple):
    """A range of a buffer that is an argument of a kernel."""

    buffer: DeviceBuffer
    at: int
    nbytes: int
    written: bool


class Launch(NamedTuple):
    """A launch of a kernel with its arguments."""

    entry: int  # number of the kernel among the entries of its module
    grid: tuple[int, int, int]  # workgroups along x, y and z
    bindings: tuple[Binding, ...]
    barrier: bool = True  # whether it depends on a launch since the last barrier


def wrong_count(device: str, kernel: str, expected: int, count: int) -> str:
    """The message for a launch with too many or too few buffers."""
    return (f"{device}: kernel {kernel!r} takes {expected} buffer{'s' * (expected != 1)}, "
            f"not {count}")


class LoadedCode(NamedTuple):
    """What a driver of GPUs has made of code."""

    modules: list[Any]  # of the driver
    functions: list[Any]  # of the driver, for each entry
    early: frozenset[int] = frozenset()  # entries that wait by themselves for those before them
    calls: frozenset[int] = frozenset()  # entries that are calls of another library
    meeting: frozenset[int] = frozenset()  # entries whose workgroups wait for one another
    # Addresses of memory for calls. Those between two barriers may run at the same time, so each
    # of them has its own: the first one, the second one, ...
    workspaces: dict[int, int] | None = None


@dataclass
class DeviceModule:
    """Code that is loaded on a device."""

    device: Owner
    entries: tuple[KernelEntry, ...]
    handle: Any
    live: bool = True  # False once it is unloaded


@dataclass
class Recording:
    """A list of launches that is prepared once and replayed many times."""

    device: Owner
    module: DeviceModule
    launches: tuple[Launch, ...]
    buffers: frozenset[DeviceBuffer]
    handle: Any
    live: bool = True  # False once it is dropped
