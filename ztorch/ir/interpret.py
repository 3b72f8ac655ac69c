"""The meaning of a kernel in NumPy: threads in lockstep, every rule of the memory model checked.

Each instruction becomes a closure. An `if` narrows the mask of active threads, a loop runs while
any thread is active, and a scalar opcode is the meaning that its row of the table gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.ir import library_convolutions, library_products, matrices
from ztorch.ir.copies import Copies
from ztorch.ir.kernel import (
    PRIVATE_KINDS,
    Grid,
    Instr,
    Kernel,
    assigned,
    branches,
    launch_grid,
    matching,
)
from ztorch.ir.launch_steps import LaunchSteps
from ztorch.ir.opcodes import OPCODES
from ztorch.ir.products import AsyncProducts
from ztorch.ir.registers import Step


def interpret(kernel: Kernel, buffers: dict[str, np.ndarray], workers: int = 1,
              grid: Grid | None = None, races: bool = True, subgroup: int = 8,
              written: dict[str, np.ndarray] | None = None) -> None:
    """Run a kernel on NumPy arrays (as they are in memory: bf16 as uint16), writing in place.

    Without `grid` the launch is as large as the kernel's grid loops. A grid or block loop gives
    every workgroup or thread its own counter values, and is a serial loop if there is only one. A
    parallel loop runs serially; if the kernel reads `worker`, that many workers run side by side.
    For the race detector each iteration of a parallel loop is a separate thread. `written` has
    masks of the elements that were written before, for partly written buffers; the kernel's writes
    are added to them. Raises `InterpretError` for an access out of bounds, a race, a divergent
    barrier or a read of an element that was never written.

    >>> from ztorch.dtypes import f32
    >>> from ztorch.ir.builder import Builder
    >>> b = Builder("double")
    >>> _ = b.memory("x", f32, 8), b.memory("y", f32, 8, access="w")
    >>> with b.loop(0, 8) as i:
    ...     b.store("y", i, b.mul(b.load("x", i), 2.0))
    >>> y = np.zeros(8, np.float32)
    >>> interpret(b.kernel(), {"x": np.arange(8, dtype=np.float32), "y": y})
    >>> y.tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    """
    machine = Interpreter(kernel, buffers, workers, grid or launch_grid(kernel), races, subgroup,
                          written or {})
    with np.errstate(all="ignore"):
        _run(machine.steps)
        machine.finish()
    machine.steps.clear()  # they refer to the machine, which holds the buffers


def _run(steps: list[Step]) -> None:
    for step in steps:
        step()


class Interpreter(LaunchSteps):
    """A kernel as closures, which `_run` then calls one by one."""

    def __init__(self, kernel: Kernel, *launch: Any):
        super().__init__(kernel, *launch)
        self.ends = dict(matching(kernel.body))
        self.copies, self.products = Copies(), AsyncProducts(self)
        # For each loop with a `while`, by the id of its counter: the threads that have left it.
        self.ended: dict[int, np.ndarray] = {
            i.args[0].id: np.zeros((self.threads, 1), bool)
            for i in kernel.body if i.opcode == "while"}
        self.steps = self._block(0, len(kernel.body))

    def _block(self, at: int, stop: int) -> list[Step]:
        steps = []
        while at < stop:
            instr = self.kernel.body[at]
            if OPCODES[instr.opcode].meaning is not None:
                steps.append(self.scalar(instr))
            else:
                steps.append(getattr(self, f"_{instr.opcode}")(at, instr))
            at = self.ends.get(at, at) + 1
        return steps

    # -- structure -------------------------------------------------------------------------------

    def _loop(self, at: int, instr: Instr) -> Step:
        regs, counter = self.regs, instr.dest
        start, stop, by = map(self.key, instr.args)
        number, count = self._share(at, instr)
        iteration = self._iteration(at, instr)

        def step() -> None:
            stride = int(regs[by][0, 0])
            if stride <= 0:
                raise self.fail(at, f"the step is {stride}, not positive")
            first, last = regs[start].astype(np.int64) + number * stride, regs[stop]
            stride *= count
            if len(first) == len(last) == 1 and counter.id not in self.ended:
                for i in range(int(first[0, 0]), int(last[0, 0]), stride):
                    iteration(np.array([[i]]))
            else:
                self._while_any(counter.id, first, last, stride, iteration)
        return step

    def _share(self, at: int, instr: Instr) -> tuple[np.ndarray, int]:
        """The first iteration of each thread, and the distance to its next one: a grid or block
        loop divides its iterations between workgroups or threads."""
        kind, axis = instr.attrs["kind"], instr.attrs.get("axis", 0)
        if kind not in ("grid", "block"):
            return np.zeros((1, 1), np.int64), 1
        for i in self.kernel.body[at + 1:self.ends[at]]:
            if i.attrs.get("kind") == kind and i.attrs.get("axis", 0) == axis:
                raise self.fail(at, f"holds another {kind} loop over axis {axis}")
        return self.place(kind, axis), self.extent(kind)[axis]

    def _iteration(self, at: int, instr: Instr) -> Callable[[np.ndarray], None]:
        """One iteration of a loop, given its counter. Threads that share a loop keep no registers
        from one iteration to the next."""
        regs, counter, kind = self.regs, instr.dest, instr.attrs["kind"]
        body = self._block(at + 1, self.ends[at])
        private = {v.id for i in self.kernel.body[at:self.ends[at]] for v in assigned(i)}

        def iteration(values: np.ndarray) -> None:
            regs[counter.id] = values.astype(counter.dtype.numpy)
            if kind not in PRIVATE_KINDS:
                return _run(body)
            self.forget(private)
            if kind == "parallel":  # each iteration counts as a thread of its own
                self.shifts += self.threads
                self.shift = self.shifts
            _run(body)
            self.forget(private)
            self.shift = 0
        return iteration

    def _while_any(self, loop: int, values: np.ndarray, last: np.ndarray, stride: int,
                   iteration: Callable[[np.ndarray], None]) -> None:
        """Runs iterations while any thread has one left; only those threads are active."""
        outer, ended = self.active, self.ended
        if loop in ended:
            ended[loop] = np.zeros((self.threads, 1), bool)
        while True:
            live = np.broadcast_to(values < last, (self.threads, 1))
            if outer is not None:
                live = live & outer
            if loop in ended:
                live = live & ~ended[loop]
            if not live.any():
                break
            self.active = None if live.all() else live
            iteration(values)
            values = values + stride
        self.active = outer

    def _while(self, at: int, instr: Instr) -> Step:
        loop, condition = instr.args[0].id, self.key(instr.args[1])

        def step() -> None:
            goes_on = self.regs[condition].any(1, keepdims=True)
            self.ended[loop] = self.ended[loop] | (self.present() & ~goes_on)
            self.active = self.present() & goes_on
        return step

    def _if(self, at: int, instr: Instr) -> Step:
        end = self.ends[at]
        middle = branches(self.kernel.body, at, end)
        yes, no = self._block(at + 1, middle), self._block(middle + 1, end)
        waits = [any(i.opcode == "mbarrier_wait" for i in self.kernel.body[a:z])
                 for a, z in ((at, middle), (middle, end))]
        if any(waits) and middle < end:
            return self.side_by_side(at, self.key(instr.args[0]), yes, no)
        regs, condition = self.regs, self.key(instr.args[0])

        def step() -> None:
            c, outer = regs[condition], self.active
            for holds, branch in ((c, yes), (~c, no)):
                live = holds if outer is None else holds & outer
                if live.any():
                    self.active = outer if len(c) == 1 else None if live.all() else live
                    _run(branch)
            self.active = outer
        return step

    # -- threads ---------------------------------------------------------------------------------

    def _identity(self, at: int, instr: Instr) -> Step:
        opcode, axis = instr.opcode, instr.attrs["axis"]
        if opcode == "worker":
            x = self.number // (self.threads // self.workers)
        elif opcode == "workers":
            x = np.array([[self.workers]])
        else:
            x = self.place(opcode.removesuffix("_id"), axis)
        self.regs[instr.dest.id] = x.astype(instr.dest.dtype.numpy)
        return lambda: None

    _worker = _workers = _grid_id = _block_id = _identity

    def _barrier(self, at: int, instr: Instr) -> Step:
        def step() -> None:
            self.together(at, self.size, "workgroup")
            self.epoch = self.epoch + self.present()
        return step

    def _shuffle_xor(self, at: int, instr: Instr) -> Step:
        regs, d, a, mask = self.regs, instr.dest, self.key(instr.args[0]), instr.attrs["mask"]
        if not 0 <= mask < self.subgroup:
            raise self.fail(at, f"mask {mask} leaves a subgroup of {self.subgroup}")
        place = np.arange(self.subgroup) ^ mask

        def step() -> None:
            x = self.neighbors(at, regs[a], d.lanes)
            regs[d.id] = x[:, place].reshape(self.threads, d.lanes)
        return step

    def _copy_async(self, at: int, instr: Instr) -> Step:
        target = self.memory(at, instr, reads=False, writes=True)
        source = self.stores[instr.attrs["source"]]
        return self.copies.start(self, at, instr, target, source, tuple(map(self.key, instr.args)))

    def _copies_commit(self, at: int, instr: Instr) -> Step:
        return lambda: self.copies.commit(self)

    def _copies_wait(self, at: int, instr: Instr) -> Step:
        return lambda: self.copies.wait(self, instr.attrs["pending"])

    def _mma_load(self, at: int, instr: Instr) -> Step:
        store = self.memory(at, instr, reads=True, writes=False)
        return matrices.load(self, at, instr, store, self.key(instr.args[0]))

    def _mma(self, at: int, instr: Instr) -> Step:
        return matrices.multiply(self, at, instr, *map(self.key, instr.args))

    def _mma_join(self, at: int, instr: Instr) -> Step:
        return matrices.join(self, instr, [self.key(a) for a in instr.args])

    def _mma_store(self, at: int, instr: Instr) -> Step:
        store = self.memory(at, instr, reads=False, writes=True)
        return matrices.store(self, at, instr, store, *map(self.key, instr.args))

    def _mma_async(self, at: int, instr: Instr) -> Step:
        left = self.memory(at, instr, reads=True, writes=False)
        right = self.stores[instr.attrs["source"]]
        indices = self.key(instr.args[0]), self.key(instr.args[1])
        return self.products.start(self, at, instr, left, right, indices)

    def _mma_held_async(self, at: int, instr: Instr) -> Step:
        right = self.memory(at, instr, reads=True, writes=False)
        return self.products.start_held(self, at, instr, right, *map(self.key, instr.args[:2]))

    def _library_product(self, at: int, instr: Instr) -> Step:
        target = self.memory(at, instr, reads=False, writes=True)
        stores = target, *(self.stores[instr.attrs[name]] for name in ("source", "right"))
        return library_products.multiply(self, at, instr, stores, tuple(map(self.key, instr.args)))

    def _library_convolution(self, at: int, instr: Instr) -> Step:
        target = self.memory(at, instr, reads=False, writes=True)
        stores = target, *(self.stores[memory] for name in ("source", "right", "bias")
                           if (memory := instr.attrs[name]))
        return library_convolutions.convolve(self, at, instr, stores,
                                             tuple(map(self.key, instr.args)))

    def _mma_fence(self, at: int, instr: Instr) -> Step:
        return lambda: self.products.fence_matrices(self)

    def _shared_fence(self, at: int, instr: Instr) -> Step:
        return lambda: self.products.fence_memory(self)

    def _mma_commit(self, at: int, instr: Instr) -> Step:
        return lambda: self.products.commit(self)

    def _mma_wait(self, at: int, instr: Instr) -> Step:
        return lambda: self.products.wait(self, instr.attrs["pending"])
