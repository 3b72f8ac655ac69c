"""The meaning of a kernel in NumPy: threads in lockstep, every rule of the memory model checked.

Each instruction becomes a closure. An `if` narrows the mask of active threads, a loop runs while
any thread is active, and a scalar opcode is the meaning that its row of the table gives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ztorch.dtypes import DType, from_storage, round_bf16, to_storage
from ztorch.ir import matrices
from ztorch.ir.kernel import (
    PRIVATE_KINDS,
    Grid,
    Instr,
    Kernel,
    Operand,
    launch_grid,
    matching,
)
from ztorch.ir.lockstep import Lockstep, Watched
from ztorch.ir.opcodes import OPCODES

Step = Callable[[], None]


def interpret(kernel: Kernel, buffers: dict[str, np.ndarray], workers: int = 1,
              grid: Grid | None = None, races: bool = True, subgroup: int = 8) -> None:
    """Run a kernel on NumPy arrays (as they lie in memory: bf16 as uint16), writing in place.

    Without `grid` the launch is as large as the kernel's grid loops. A grid or block loop gives
    every workgroup or thread its own counter values (and is a serial loop where there is but one);
    a parallel loop runs serially, and where the kernel asks for `worker` so many of them run side
    by side. For the race detector each trip of a parallel loop is a thread of its own.
    Raises `InterpretError` for an access out of bounds, a race, a
    divergent barrier or a read of something never written.

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
    machine = _Machine(kernel, buffers, workers, grid or launch_grid(kernel), races, subgroup)
    with np.errstate(all="ignore"):
        _run(machine.steps)


def _run(steps: list[Step]) -> None:
    for step in steps:
        step()


def _settle(d: DType) -> Callable[[np.ndarray], np.ndarray]:
    """Brings a result to the type that values of dtype d are held in."""
    if d.name == "bf16":
        return lambda out: round_bf16(out.astype(np.float32))
    working = d.working
    return lambda out: out if out.dtype == working else out.astype(working)


def _conversion(source: DType, target: DType) -> Callable[[np.ndarray], np.ndarray]:
    if source == target:
        return lambda x: x
    cast, settle = OPCODES["cast"].meaning, _settle(target)
    assert cast is not None
    return lambda x: settle(cast(x, dtype=target))


def _bitcast(source: DType, target: DType, x: np.ndarray) -> np.ndarray:
    return from_storage(target, to_storage(source, x).view(target.numpy))


class _Machine(Lockstep):
    """A kernel turned into closures over its registers, which `_run` then calls one by one."""

    def __init__(self, kernel: Kernel, *launch: Any):
        super().__init__(kernel, *launch)
        self.consts: dict[Operand, int] = {}
        self.ends = dict(matching(kernel.body))
        self.steps = self._block(0, len(kernel.body))

    # -- from instructions to closures ---------------------------------------------------------

    def _block(self, at: int, stop: int) -> list[Step]:
        steps = []
        while at < stop:
            instr = self.kernel.body[at]
            if OPCODES[instr.opcode].meaning is not None:
                steps.append(self._scalar(instr))
            else:
                steps.append(getattr(self, f"_{instr.opcode}")(at, instr))
            at = self.ends.get(at, at) + 1
        return steps

    def _key(self, a: Operand) -> int:
        """The register of an operand; constants get registers with negative numbers."""
        if not a.is_const:
            return a.id
        if a not in self.consts:
            self.consts[a] = -1 - len(self.consts)
            raw = np.array([[a.bits]], bool if a.dtype.kind == "b" else f"u{a.dtype.bytes}")
            self.regs[self.consts[a]] = from_storage(a.dtype, raw.view(a.dtype.numpy))
        return self.consts[a]

    def _scalar(self, instr: Instr) -> Step:
        regs, d, target = self.regs, instr.dest.id, instr.dest.dtype
        row, settle = OPCODES[instr.opcode], _settle(target)
        assert row.meaning is not None
        meaning: Callable[..., np.ndarray] = row.meaning
        if instr.opcode == "bitcast":  # of what lies in memory, which for bf16 is not what is held
            meaning = partial(_bitcast, instr.args[0].dtype, target)
        elif row.result == "attr":
            meaning = partial(meaning, dtype=target)
        keys = [self._key(a) for a in instr.args]
        if len(keys) == 1:
            (a,) = keys

            def step() -> None:
                regs[d] = settle(meaning(regs[a]))
        elif len(keys) == 2:
            a, b = keys

            def step() -> None:
                regs[d] = settle(meaning(regs[a], regs[b]))
        else:
            a, b, c = keys

            def step() -> None:
                regs[d] = settle(meaning(regs[a], regs[b], regs[c]))
        return step

    # -- lanes -----------------------------------------------------------------------------------

    def _splat(self, at: int, instr: Instr) -> Step:
        regs, d, a = self.regs, instr.dest.id, self._key(instr.args[0])

        def step() -> None:
            regs[d] = regs[a]  # one column stands for every lane
        return step

    def _iota(self, at: int, instr: Instr) -> Step:
        self.regs[instr.dest.id] = np.arange(instr.dest.lanes, dtype=instr.dest.dtype.numpy)[None]
        return lambda: None

    def _extract(self, at: int, instr: Instr) -> Step:
        regs, d, a, lane = self.regs, instr.dest.id, self._key(instr.args[0]), instr.attrs["lane"]

        def step() -> None:
            x = regs[a]
            regs[d] = x[:, lane:lane + 1] if x.shape[1] > 1 else x
        return step

    def _join(self, at: int, instr: Instr) -> Step:
        regs, d, keys = self.regs, instr.dest.id, [self._key(a) for a in instr.args]

        def step() -> None:
            regs[d] = np.concatenate(np.broadcast_arrays(*[regs[k] for k in keys]), axis=1)
        return step

    def _shuffle(self, at: int, instr: Instr) -> Step:
        regs, d, perm = self.regs, instr.dest.id, list(instr.attrs["perm"])
        (a, b), lanes = map(self._key, instr.args), instr.args[0].lanes

        def step() -> None:
            x, y = regs[a], regs[b]
            rows = max(len(x), len(y))
            both = [np.broadcast_to(v, (rows, lanes)) for v in (x, y)]
            regs[d] = np.concatenate(both, axis=1)[:, perm]
        return step

    # -- variables -------------------------------------------------------------------------------

    def _get(self, at: int, instr: Instr) -> Step:
        regs, d, v = self.regs, instr.dest.id, instr.args[0].id

        def step() -> None:
            if v not in self.vars:
                raise self.fail(at, f"variable %{v} was never set")
            if v in self.unset and (self.present() & self.unset[v]).any():
                raise self.fail(at, f"variable %{v} was never set by some threads")
            regs[d] = self.vars[v]
        return step

    def _set(self, at: int, instr: Instr) -> Step:
        regs, v, a = self.regs, instr.args[0].id, self._key(instr.args[1])

        def step() -> None:
            active, x = self.active, regs[a]
            if active is None:
                self.vars[v] = x
                self.unset.pop(v, None)
            elif v not in self.vars:
                self.vars[v], self.unset[v] = x, ~active
            else:
                self.vars[v] = np.where(active, x, self.vars[v])
                if v in self.unset:
                    self.unset[v] = self.unset[v] & ~active
        return step

    # -- memory ----------------------------------------------------------------------------------

    def _memory(self, at: int, instr: Instr, reads: bool, writes: bool) -> Watched:
        store = self.stores[instr.attrs["mem"]]
        if reads and store.spec.access == "w":
            raise self.fail(at, f"{store.spec.name} is write-only")
        if writes and store.spec.access == "r":
            raise self.fail(at, f"{store.spec.name} is read-only")
        return store

    def _load(self, at: int, instr: Instr) -> Step:
        regs, d, lanes, off = self.regs, instr.dest.id, instr.dest.lanes, instr.attrs["off"]
        store = self._memory(at, instr, reads=True, writes=False)
        data, size, stored = store.data, store.spec.size, store.spec.dtype
        index = self._key(instr.args[0])
        mask = self._key(instr.args[1]) if len(instr.args) > 1 else None
        convert = _conversion(stored, instr.dest.dtype)
        columns = off + (np.arange(lanes) if instr.opcode == "load" else np.zeros(1, np.int64))
        checked = store.races is not None or store.known is not None or store.base is not None
        plain = instr.opcode == "load" and mask is None and not checked
        zero = np.zeros((1, 1), instr.dest.dtype.working)

        def step() -> None:
            i = regs[index]
            if plain and len(i) == 1:  # the common case on a CPU: one slice
                first = int(i[0, 0]) + off
                if 0 <= first <= size - lanes:
                    regs[d] = convert(from_storage(stored, data[None, first:first + lanes].copy()))
                    return
            m = None if mask is None else regs[mask]
            places, live = self.reach(at, store, i + columns, m)
            if checked:
                self.touch(at, store, "read", places, live)
            x = convert(from_storage(stored, data[places]))
            regs[d] = x if m is None else np.where(m, x, zero)
        return step

    _gather = _load

    def _store(self, at: int, instr: Instr) -> Step:
        regs, off, x = self.regs, instr.attrs["off"], instr.args[1]
        store = self._memory(at, instr, reads=False, writes=True)
        index, value = self._key(instr.args[0]), self._key(x)
        mask = self._key(instr.args[2]) if len(instr.args) > 2 else None
        convert, stored = _conversion(x.dtype, store.spec.dtype), store.spec.dtype
        columns = off + (np.arange(x.lanes) if instr.opcode == "store" else np.zeros(1, np.int64))
        checked = store.races is not None or store.known is not None

        def step() -> None:
            m = None if mask is None else regs[mask]
            places, live = self.reach(at, store, regs[index] + columns, m)
            if checked:
                self.touch(at, store, "write", places, live)
            v = to_storage(stored, convert(regs[value]))
            if live is not None:
                places, v, live = np.broadcast_arrays(places, v, live)
                places, v = places[live], v[live]
            store.data[places] = v
        return step

    _scatter = _store

    def _prefetch(self, at: int, instr: Instr) -> Step:
        return lambda: None

    # -- structure -------------------------------------------------------------------------------

    def _loop(self, at: int, instr: Instr) -> Step:
        regs, d, kind = self.regs, instr.dest, instr.attrs["kind"]
        start, stop, by = map(self._key, instr.args)
        body = self._block(at + 1, self.ends[at])
        inside = self.kernel.body[at:self.ends[at]]
        private = {i.args[0].id for i in inside if i.opcode == "set"}
        number, count = np.zeros((1, 1), np.int64), 1
        if kind in ("grid", "block"):
            axis = instr.attrs.get("axis", 0)
            number, count = self.place(kind, axis), self.extent(kind)[axis]
            for i in inside[1:]:
                if i.attrs.get("kind") == kind and i.attrs.get("axis", 0) == axis:
                    raise self.fail(at, f"holds another {kind} loop over axis {axis}")

        def trip(counter: np.ndarray) -> None:
            regs[d.id] = counter.astype(d.dtype.numpy)
            if kind not in PRIVATE_KINDS:
                return _run(body)
            self.forget(private)
            if kind == "parallel":
                self.shifts += self.threads
                self.shift = self.shifts
            _run(body)
            self.forget(private)
            self.shift = 0

        def step() -> None:
            stride = int(regs[by][0, 0])
            if stride <= 0:
                raise self.fail(at, f"the step is {stride}, not positive")
            counter, last = regs[start].astype(np.int64) + number * stride, regs[stop]
            stride *= count
            if len(counter) == len(last) == 1:
                for i in range(int(counter[0, 0]), int(last[0, 0]), stride):
                    trip(np.array([[i]]))
                return
            outer = self.active
            while True:
                live = np.broadcast_to(counter < last, (self.threads, 1))
                if outer is not None:
                    live = live & outer
                if not live.any():
                    break
                self.active = None if live.all() else live
                trip(counter)
                counter = counter + stride
            self.active = outer
        return step

    def _if(self, at: int, instr: Instr) -> Step:
        end = self.ends[at]
        middle, depth = end, 0
        for n in range(at + 1, end):
            opcode = self.kernel.body[n].opcode
            depth += (opcode in ("loop", "if")) - (opcode in ("end_loop", "end_if"))
            if opcode == "else" and depth == 0:
                middle = n
        yes, no = self._block(at + 1, middle), self._block(middle + 1, end)
        regs, condition = self.regs, self._key(instr.args[0])

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
        which, axis = instr.opcode, instr.attrs["axis"]
        if which == "worker":
            x = self.number // (self.threads // self.workers)
        elif which == "workers":
            x = np.array([[self.workers]])
        else:
            x = self.place(which.removesuffix("_id"), axis)
        self.regs[instr.dest.id] = x.astype(instr.dest.dtype.numpy)
        return lambda: None

    _worker = _workers = _grid_id = _block_id = _identity

    def _barrier(self, at: int, instr: Instr) -> Step:
        def step() -> None:
            self.together(at, self.size, "workgroup")
            self.epoch = self.epoch + self.present()
        return step

    def _shuffle_xor(self, at: int, instr: Instr) -> Step:
        regs, d, a, mask = self.regs, instr.dest, self._key(instr.args[0]), instr.attrs["mask"]
        if not 0 <= mask < self.subgroup:
            raise self.fail(at, f"mask {mask} leaves a subgroup of {self.subgroup}")
        place = np.arange(self.subgroup) ^ mask

        def step() -> None:
            x = self.neighbours(at, regs[a], d.lanes)
            regs[d.id] = x[:, place].reshape(self.threads, d.lanes)
        return step

    def _mma_load(self, at: int, instr: Instr) -> Step:
        store = self._memory(at, instr, reads=True, writes=False)
        return matrices.load(self, at, instr, store, self._key(instr.args[0]))

    def _mma(self, at: int, instr: Instr) -> Step:
        return matrices.multiply(self, at, instr, *map(self._key, instr.args))

    def _mma_store(self, at: int, instr: Instr) -> Step:
        store = self._memory(at, instr, reads=False, writes=True)
        return matrices.store(self, at, instr, store, *map(self._key, instr.args))
