"""A compiled program in memory: its code loaded, its params and arena allocated, ready to run."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import mmap
import os
import threading
import weakref
from collections.abc import Mapping

import numpy as np

from ztorch.backends.library import load_library
from ztorch.config import positive
from ztorch.dtypes import DType, boolean
from ztorch.errors import DeviceError, WeightsError
from ztorch.host import processor
from ztorch.host.settings import current
from ztorch.runtime.spec import PREPARE, FunctionSpec, ProgramSpec, StateSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ztorch.runtime.remote import Remote, RemoteCall

HUGE = 1 << 21
MEETING = 10_000  # cycles a kernel should take on average before workers share it
WORTH = 150_000  # cycles of work for each further worker: less is lost in their meetings
# Python shares such pages with forked children unless it is told not to.
_OWN = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def aligned(nbytes: int) -> np.ndarray:
    """Zeroed bytes that start at a multiple of 64; large ones on huge pages where there are any,
    which spares the hardware most of its page walks.

    >>> aligned(100).ctypes.data % 64
    0
    """
    boundary = HUGE if nbytes >= HUGE // 2 else 64
    if boundary == 64:
        raw = np.zeros(nbytes + boundary, np.uint8)
    else:
        pages = mmap.mmap(-1, -(-nbytes // HUGE) * HUGE + HUGE, **_OWN)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them
                pages.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(pages, np.uint8)
    start = -raw.ctypes.data % boundary
    return raw[start:start + nbytes]


class Executable:
    """Runs the functions of a program on the CPU.

    One run at a time: the functions share params and arena, so a lock keeps them apart.
    """

    def __init__(self, spec: ProgramSpec, code: bytes, params: np.ndarray | None = None,
                 threads: int | None = None, *, adopt: bool = False):
        """`params` are first values. With `adopt` they come in a block from `aligned`, which is
        the program's own from then on: to copy large weights takes as long as to read them."""
        refuse_foreign(spec)
        processor.need_memory(f"program {spec.name!r}", spec.memory_bytes,
                         "compile with a smaller batch_size, or make layers smaller")
        self.spec = spec
        self.code = code
        self.name = spec.name
        self.device = spec.where
        self.functions = spec.functions
        self.states = spec.states
        if adopt and params is not None:
            self.params = params
        else:
            self.params = aligned(spec.params_bytes)
            if params is not None:
                self.params[:] = params
        self.arena = aligned(max(spec.arena_bytes, 64))
        self.library = load_library(code, spec.name, current().dump)
        self.lock = threading.Lock()
        _alive.add(self)
        self.threads = (current().threads or processor.usable_cores() if threads is None else
                        positive("threads", threads))
        self._prepare = Call(self, spec.functions[PREPARE]) if PREPARE in spec.functions else None
        self._stale = self._prepare is not None

    def fresh(self) -> None:
        """Derived states brought up to date after weights were set; the lock is held."""
        self._stale = False
        if self._prepare is not None:
            self._prepare.run()

    def workers_for(self, function: FunctionSpec) -> int:
        """As many workers as the work keeps busy."""
        if function.cycles < MEETING * len(function.kernels):
            return 1
        return max(1, min(self.threads, int(function.cycles / WORTH) + 1))

    def bind(self, function: str) -> Call:
        """A call with its own input and output arrays, ready to be run again and again."""
        return Call(self, self.functions[function])

    # -- states ----------------------------------------------------------------------------------

    def view(self, name: str) -> np.ndarray:
        """The state itself, not a copy."""
        s: StateSpec = self.states[name]
        part = self.params[s.offset:s.offset + s.nbytes]
        return part.view(np.uint8 if s.dtype is boolean else s.dtype.numpy).reshape(s.shape)

    def state(self, name: str) -> np.ndarray:
        with self.lock:
            return self.view(name).copy()

    def set_state(self, name: str, value: np.ndarray) -> None:
        array = np.asarray(value)
        if array.shape != self.states[name].shape:
            raise WeightsError(f"{name} has shape {self.states[name].shape}, "
                               f"not {tuple(array.shape)}")
        with self.lock:
            self.view(name)[...] = array
            self._stale = self._prepare is not None

    def states_snapshot(self) -> dict[str, np.ndarray]:
        with self.lock:
            return {name: self.view(name).copy() for name in self.states}

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        for name, value in snapshot.items():
            self.set_state(name, value)


_alive: weakref.WeakSet[Executable] = weakref.WeakSet()


def _unlock() -> None:
    """In a forked child nobody runs: what another thread of the parent held is free again."""
    for executable in _alive:
        executable.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def start(spec: ProgramSpec, code: bytes, params: np.ndarray, threads: int | None = None,
          ordinal: int | None = None) -> Running:
    """The program on this CPU, or on the device of that number of its backend. `params` are the
    program's own from then on."""
    if spec.backend == "cpu":
        return Executable(spec, code, params, threads, adopt=True)
    from ztorch.backends.registry import opened
    from ztorch.runtime.remote import Remote

    return Remote(spec, code, params, opened(spec.backend, ordinal))


def refuse_foreign(spec: ProgramSpec) -> None:
    """A clear error, not a crash, where this CPU cannot run the code."""
    if spec.arch != processor.architecture():
        raise DeviceError(f"{spec.name} was compiled for {spec.arch}; this machine is "
                          f"{processor.architecture()}. Export it again for this machine")
    missing = sorted(set(spec.needs) - processor.features())
    if missing:
        raise DeviceError(f"{spec.name} was compiled for {spec.where}, which needs "
                          f"{', '.join(missing)}; this CPU ({processor.cpu_name()}) lacks it. "
                          "Export it for a lower level, such as cpu:avx2 or cpu:sse4.1")


class Call:
    """One function with fixed buffers: fill `inputs`, call, read `outputs`."""

    def __init__(self, executable: Executable, function: FunctionSpec):
        self.executable = executable
        self.function = function
        self.inputs = {n: _array(t.shape, t.dtype) for n, t in function.inputs.items()}
        self.outputs = {n: _array(t.shape, t.dtype) for n, t in function.outputs.items()}
        self._in = _pointers(self.inputs)
        self._out = _pointers(self.outputs)
        symbol = executable.library[function.symbol]
        symbol.restype = None
        self._frame = (ctypes.c_void_p * 5)(
            ctypes.addressof(self._in), ctypes.addressof(self._out),
            executable.params.ctypes.data, executable.arena.ctypes.data, None)
        self._run = functools.partial(symbol, ctypes.byref(self._frame))
        self._count = executable.workers_for(function)

    def __call__(self) -> None:
        with self.executable.lock:
            if self.executable._stale:
                self.executable.fresh()
            self.run()

    def run(self) -> None:
        """One run; the caller holds the lock of the executable."""
        if self._count == 1:
            self._run()
        else:
            self._run_shared()

    def _run_shared(self) -> None:
        from ztorch.backends.workers import workers  # nothing that one thread needs

        pool = workers(self._count, self.executable.library)
        with pool.lock:
            self._frame[4] = pool.control.value
            self._run()


def _array(shape: tuple[int, ...], d: DType) -> np.ndarray:
    nbytes = math.prod(shape) * d.bytes
    return aligned(max(nbytes, 1))[:nbytes].view(d.numpy).reshape(shape)


def _pointers(arrays: Mapping[str, np.ndarray]) -> ctypes.Array:
    return (ctypes.c_void_p * max(len(arrays), 1))(*(a.ctypes.data for a in arrays.values()))


if TYPE_CHECKING:
    from typing import TypeAlias

    Running: TypeAlias = Executable | Remote  # a program at work, wherever
    Bound: TypeAlias = Call | RemoteCall
