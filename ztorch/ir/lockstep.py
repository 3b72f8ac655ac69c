"""The state of a kernel that NumPy runs in lockstep: its threads, registers and memories.

A value is an array of shape (threads, lanes). An axis has length 1 if the value is the same along
it. The number of threads is CPU workers x workgroups of the grid x threads of a workgroup.
"""

from __future__ import annotations

import math

import numpy as np

from ztorch.errors import InterpretError
from ztorch.ir.kernel import Grid, Kernel, Memory
from ztorch.ir.races import Detector


class Watched:
    """One memory while the kernel runs, with the records that detect wrong accesses.

    A shared array has a copy for each workgroup, a local one for each thread. `owners` is the
    number of the copy that each thread uses.
    """

    def __init__(self, spec: Memory, data: np.ndarray, copies: int, owners: np.ndarray):
        self.spec = spec
        self.data = data  # flat, all copies one after the other
        self.known = np.zeros(data.size, bool) if spec.space != "global" else None  # was written
        self.base = None if copies == 1 else owners * spec.size  # start of each thread's copy
        self.races: Detector | None = None  # None: races are not checked
        self.in_flight_to: np.ndarray | None = None  # elements that copies in flight write
        # By element, for memories that tile copies fill; None for others:
        self.filled_by: np.ndarray | None = None  # 1 + the barrier that counted the copy
        self.filled_in: np.ndarray | None = None  # the phase of that barrier
        # By element, for memories that asynchronous products read; None for others:
        self.reading: np.ndarray | None = None  # products in flight that read it
        self.unfenced: np.ndarray | None = None  # 1 + the thread that wrote it without a fence


class Lockstep:
    """Threads in lockstep. `active` masks those that take part in the current `if` or loop."""

    def __init__(self, kernel: Kernel, buffers: dict[str, np.ndarray], workers: int, grid: Grid,
                 races: bool, subgroup: int, written: dict[str, np.ndarray]):
        self.kernel = kernel
        self.size = math.prod(kernel.workgroup)  # threads of a workgroup
        self.workers = workers if kernel.opcodes() & {"worker", "workers"} else 1
        self.grid = grid
        self.threads = self.workers * math.prod(grid) * self.size  # of all workers and workgroups
        self.number = np.arange(self.threads)[:, None]  # of each thread
        self.group = self.number // self.size  # workgroup of each thread
        self.epoch = np.zeros_like(self.number)  # barriers that each thread has passed
        self.shift = 0  # added to thread numbers: iterations of parallel loops have own threads
        self.shifts = 0  # the largest shift so far
        self.subgroup = subgroup  # threads of a subgroup
        self.repeated: dict[int, np.ndarray] = {}  # thread numbers, each for so many lanes
        self.active: np.ndarray | None = None  # mask (threads, 1); None: all
        self.regs: dict[int, np.ndarray] = {}  # values by id
        self.vars: dict[int, np.ndarray] = {}  # variables by id
        self.unset: dict[int, np.ndarray] = {}  # by id: threads that have not set a variable
        self.summing: dict[int, np.ndarray] = {}  # by id: products in flight that add to a variable
        parallel = any(i.attrs.get("kind") == "parallel" for i in kernel.body)
        self.stores = {m.name: self.open(m, buffers) for m in kernel.memories}
        for name, mask in written.items():
            self.stores[name].known = mask
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
        data = buffers[m.name]
        if data.dtype != m.dtype.numpy or data.size != m.size or not data.flags.c_contiguous:
            raise InterpretError(
                f"kernel {self.kernel.name}: {m.name} must be {m.size} contiguous elements of "
                f"{m.dtype.numpy}, not {data.size} of {data.dtype}")
        return Watched(m, data.reshape(-1), 1, self.group)

    def fail(self, at: int, message: str) -> InterpretError:
        kernel, opcode = self.kernel, self.kernel.body[at].opcode
        line = kernel.line_at(at)
        return InterpretError(f"kernel {kernel.name}, instruction {at} ({opcode}): {message}"
                              + (f" ({line})" if line else ""))

    def present(self) -> np.ndarray:
        return np.ones((self.threads, 1), bool) if self.active is None else self.active

    def reach(self, at: int, store: Watched, index: np.ndarray, mask: np.ndarray | None,
               ) -> tuple[np.ndarray, np.ndarray | None]:
        """Positions in the flat data, and a mask of those accessed (None: all). Checks bounds."""
        live = self.active
        if mask is not None:
            live = mask if live is None else mask & live
        outside = index.astype(np.uint64) >= store.spec.size  # negative numbers are the largest
        if live is not None:
            outside = outside & live
        if outside.any():
            index, outside = np.broadcast_arrays(index, outside)
            size = store.spec.size
            raise self.fail(at, f"{store.spec.name}[{index[outside][0]}] is out of bounds: {size} "
                            f"element{'s' * (size != 1)}")
        if live is not None:
            index = np.where(live, index, 0)
        return (index if store.base is None else index + store.base), live

    def touch(self, at: int, store: Watched, kind: str, places: np.ndarray,
              live: np.ndarray | None, threads: np.ndarray | None = None) -> None:
        """Record an access; raise on a race or a read of an element that was never written."""
        shape = self.threads, max(places.shape[1], 1 if live is None else live.shape[1])
        if places.shape != shape:
            places = np.broadcast_to(places, shape)
        if live is None:
            rows, places = self.thread_of_each(shape[1]), places.reshape(-1)
        else:
            accessed = live if live.shape == shape else np.broadcast_to(live, shape)
            rows, places = accessed.nonzero()[0], places[accessed]
        if threads is None:
            threads = self.number + self.shift
        if store.in_flight_to is not None and store.in_flight_to[places].any():
            place = places[store.in_flight_to[places]][0] % store.spec.size
            raise self.fail(at, f"{store.spec.name}[{place}] is touched while a copy to it is in "
                            "flight: nothing has waited for it")
        if store.reading is not None and kind == "write":
            if store.reading[places].any():
                place = places[store.reading[places] > 0][0] % store.spec.size
                raise self.fail(at, f"{store.spec.name}[{place}] is overwritten while a product in "
                                "flight reads it: nothing has waited for it")
            assert store.unfenced is not None
            store.unfenced[places] = threads.take(rows) % self.threads + 1
        if store.known is not None:
            if kind == "write":
                store.known[places] = True
            elif not store.known[places].all():
                place = places[~store.known[places]][0] % store.spec.size
                raise self.fail(at, f"{store.spec.name}[{place}] is read but was never written "
                                "(uninitialized)")
        if store.races is not None:
            clash = getattr(store.races, kind)(
                places, threads.take(rows), (self.group + self.shift).take(rows),
                self.epoch.take(rows))
            if clash.any():
                place = places[clash][0] % store.spec.size
                raise self.fail(at, f"race on {store.spec.name}[{place}]: another thread touched "
                                "it since the last barrier")

    def thread_of_each(self, lanes: int) -> np.ndarray:
        """The thread of each access, where all threads access so many lanes."""
        if lanes not in self.repeated:
            self.repeated[lanes] = np.repeat(np.arange(self.threads), lanes)
        return self.repeated[lanes]

    def arrived(self, at: int, store: Watched, places: np.ndarray, active: np.ndarray) -> None:
        """Check that threads have waited for the copies of the tiles that they read."""

    def at_rest(self, at: int, variable: int) -> None:
        """Check that no product in flight adds to a variable of an active thread."""
        products = self.summing.get(variable)
        if products is not None and (self.present()[:, 0] & (products > 0)).any():
            raise self.fail(at, f"variable %{variable} is touched while a product in flight adds "
                            "to it: nothing has waited for it")

    def forget(self, variables: set[int]) -> None:
        for v in variables:
            self.vars.pop(v, None)
            self.unset.pop(v, None)

    def extent(self, kind: str) -> Grid:
        return self.grid if kind == "grid" else self.kernel.workgroup

    def place(self, kind: str, axis: int) -> np.ndarray:
        """The position of each thread along an axis of the grid or its workgroup; x is fastest."""
        extent = self.extent(kind)
        linear = self.group if kind == "grid" else self.number
        if extent[axis] == 1:
            return np.zeros((1, 1), np.int64)
        return linear // math.prod(extent[:axis]) % extent[axis]

    def together(self, at: int, size: int, group: str) -> None:
        """Check that in each group of `size` neighbors all threads are active, or none is."""
        if self.active is not None:
            active = self.active.reshape(-1, size)
            if (active.any(1) != active.all(1)).any():
                raise self.fail(at, f"divergent: not every thread of a {group} gets here")

    def neighbors(self, at: int, x: np.ndarray, lanes: int) -> np.ndarray:
        """x by subgroups: an array of shape (subgroups, threads of one, lanes)."""
        if self.size % self.subgroup:
            raise self.fail(at, f"a workgroup of {self.size} is not a multiple of the subgroup "
                            f"{self.subgroup}")
        self.together(at, self.subgroup, "subgroup")
        return np.broadcast_to(x, (self.threads, lanes)).reshape(-1, self.subgroup, lanes)
