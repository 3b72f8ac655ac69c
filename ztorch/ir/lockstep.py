"""The state of a kernel that NumPy runs in lockstep: its threads, registers and watched memories.

A value is an array of shape (threads, lanes), with 1 in place of either where all are equal.
Threads are the workers of the CPU times the workgroups of the grid times the threads of each.
"""

from __future__ import annotations

import math

import numpy as np

from ztorch.errors import InterpretError
from ztorch.ir.kernel import Grid, Kernel, Memory
from ztorch.ir.races import Detector


class Watched:
    """One memory while the kernel runs."""

    def __init__(self, spec: Memory, data: np.ndarray, copies: int, threads: np.ndarray):
        self.spec = spec
        self.data = data
        self.known = np.zeros(data.size, bool) if spec.space != "global" else None
        # Every workgroup has its own copy of a shared array, every thread of a local one.
        self.base = None if copies == 1 else threads * spec.size
        self.races: Detector | None = None


class Lockstep:
    """Threads in lockstep; `active` is the mask of those that an `if` or a loop has not left."""

    def __init__(self, kernel: Kernel, buffers: dict[str, np.ndarray], workers: int, grid: Grid,
                 races: bool, subgroup: int):
        self.kernel = kernel
        self.size = math.prod(kernel.workgroup)
        self.workers = workers if kernel.opcodes() & {"worker", "workers"} else 1
        self.grid = grid
        self.threads = self.workers * math.prod(grid) * self.size
        self.number = np.arange(self.threads)[:, None]
        self.group = self.number // self.size
        self.epoch = np.zeros_like(self.number)
        self.shift = 0  # sets apart, for the race detector, the trips of parallel loops
        self.shifts = 0
        self.subgroup = subgroup
        self.active: np.ndarray | None = None  # (threads, 1), or None: all
        self.regs: dict[int, np.ndarray] = {}
        self.vars: dict[int, np.ndarray] = {}
        self.unset: dict[int, np.ndarray] = {}  # threads that have not set a variable, if any
        parallel = any(i.attrs.get("kind") == "parallel" for i in kernel.body)
        self.stores = {m.name: self.open(m, buffers) for m in kernel.memories}
        if races and (self.threads > 1 or parallel):
            for store in self.stores.values():
                if store.spec.access != "r" and store.spec.space != "local":
                    store.races = Detector(store.data.size)

    def open(self, m: Memory, buffers: dict[str, np.ndarray]) -> Watched:
        if m.space == "shared":
            copies = self.threads // self.size
            return Watched(m, np.zeros(copies * m.size, m.dtype.numpy), copies, self.group)
        if m.space == "local":
            return Watched(m, np.zeros(self.threads * m.size, m.dtype.numpy), self.threads,
                           self.number)
        if m.name not in buffers:
            raise InterpretError(f"kernel {self.kernel.name}: no buffer was given for {m.name}")
        a = buffers[m.name]
        if a.dtype != m.dtype.numpy or a.size != m.size or not a.flags.c_contiguous:
            raise InterpretError(
                f"kernel {self.kernel.name}: {m.name} is {m.size} contiguous elements of "
                f"{m.dtype.numpy}, not {a.size} of {a.dtype}")
        return Watched(m, a.reshape(-1), 1, self.group)

    def fail(self, at: int, message: str) -> InterpretError:
        opcode = self.kernel.body[at].opcode
        return InterpretError(f"kernel {self.kernel.name}, instruction {at} ({opcode}): {message}")

    def present(self) -> np.ndarray:
        return np.ones((self.threads, 1), bool) if self.active is None else self.active

    def reach(self, at: int, store: Watched, index: np.ndarray, mask: np.ndarray | None,
               ) -> tuple[np.ndarray, np.ndarray | None]:
        """Places in the flat data, and which of them are touched (None: all); checks bounds."""
        live = self.active
        if mask is not None:
            live = mask if live is None else mask & live
        bad = (index < 0) | (index >= store.spec.size)
        if live is not None:
            bad = bad & live
        if bad.any():
            index, bad = np.broadcast_arrays(index, bad)
            size = store.spec.size
            raise self.fail(at, f"{store.spec.name}[{index[bad][0]}] is out of bounds: {size} "
                                 f"element{'s' * (size != 1)}")
        if live is not None:
            index = np.where(live, index, 0)
        return (index if store.base is None else index + store.base), live

    def touch(self, at: int, store: Watched, how: str, places: np.ndarray,
               live: np.ndarray | None, who: np.ndarray | None = None) -> None:
        """Look for races and reads of what was never written."""
        shape = np.broadcast_shapes(
            places.shape, (self.threads, 1), live.shape if live is not None else (1, 1))
        chosen = np.broadcast_to(True if live is None else live, shape)
        spread = [np.broadcast_to(v, shape)[chosen] for v in (
            places, self.number + self.shift if who is None else who, self.group + self.shift,
            self.epoch)]
        if store.known is not None:
            if how == "write":
                store.known[spread[0]] = True
            elif not store.known[spread[0]].all():
                place = spread[0][~store.known[spread[0]]][0] % store.spec.size
                raise self.fail(at, f"{store.spec.name}[{place}] is read but was never written "
                                     "(uninitialised)")
        if store.races is not None:
            clash = getattr(store.races, how)(*spread)
            if clash.any():
                place = spread[0][clash][0] % store.spec.size
                raise self.fail(at, f"race on {store.spec.name}[{place}]: another thread touched "
                                     "it since the last barrier")

    def forget(self, variables: set[int]) -> None:
        for v in variables:
            self.vars.pop(v, None)
            self.unset.pop(v, None)

    def extent(self, kind: str) -> Grid:
        return self.grid if kind == "grid" else self.kernel.workgroup

    def place(self, kind: str, axis: int) -> np.ndarray:
        """Each thread's place along an axis of the grid or of its workgroup; x runs fastest."""
        extent = self.extent(kind)
        linear = self.group if kind == "grid" else self.number
        if extent[axis] == 1:
            return np.zeros((1, 1), np.int64)
        return linear // math.prod(extent[:axis]) % extent[axis]

    def together(self, at: int, size: int, group: str) -> None:
        """All threads of each `size` neighbours must be active, or none."""
        if self.active is not None:
            some = self.active.reshape(-1, size)
            if (some.any(1) != some.all(1)).any():
                raise self.fail(at, f"divergent: not every thread of a {group} gets here")

    def neighbours(self, at: int, x: np.ndarray, lanes: int) -> np.ndarray:
        if self.size % self.subgroup:
            raise self.fail(at, f"a workgroup of {self.size} is not whole subgroups of "
                                 f"{self.subgroup}")
        self.together(at, self.subgroup, "subgroup")
        return np.broadcast_to(x, (self.threads, lanes)).reshape(-1, self.subgroup, lanes)
