"""Instructions as closures over registers: scalar opcodes, lanes, variables and memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ztorch.dtypes import DType, from_storage, rounded, to_storage
from ztorch.ir.kernel import Instr, Kernel, Operand
from ztorch.ir.lockstep import Lockstep, Watched
from ztorch.ir.opcodes import OPCODES

Step = Callable[[], None]


def _settle(d: DType) -> Callable[[np.ndarray], np.ndarray]:
    """Brings a result to the type that values of dtype d are held in."""
    if not d.in_numpy:
        return lambda out: rounded(d, out.astype(np.float32))
    working = d.working
    return lambda out: out if out.dtype == working else out.astype(working)


def conversion(source: DType, target: DType) -> Callable[[np.ndarray], np.ndarray]:
    """Brings numbers of a dtype to another one."""
    if source == target:
        return lambda x: x
    cast, settle = OPCODES["cast"].meaning, _settle(target)
    assert cast is not None
    return lambda x: settle(cast(x, dtype=target))


def _bitcast(source: DType, target: DType, x: np.ndarray) -> np.ndarray:
    return from_storage(target, to_storage(source, x).view(target.numpy))


class Registers(Lockstep):
    """Threads in lockstep, and a closure for each instruction that computes or moves numbers."""

    def __init__(self, kernel: Kernel, *launch: Any):
        super().__init__(kernel, *launch)
        self.consts: dict[Operand, int] = {}

    def key(self, a: Operand) -> int:
        """The register of an operand; constants get registers with negative numbers."""
        if not a.is_const:
            return a.id
        if a not in self.consts:
            self.consts[a] = -1 - len(self.consts)
            raw = np.array([[a.bits]], bool if a.dtype.kind == "b" else f"u{a.dtype.bytes}")
            self.regs[self.consts[a]] = from_storage(a.dtype, raw.view(a.dtype.numpy))
        return self.consts[a]

    def scalar(self, instr: Instr) -> Step:
        regs, d, target = self.regs, instr.dest.id, instr.dest.dtype
        row, settle = OPCODES[instr.opcode], _settle(target)
        assert row.meaning is not None
        meaning: Callable[..., np.ndarray] = row.meaning
        if instr.opcode == "bitcast":  # of the element in memory; bf16 differs in registers
            meaning = partial(_bitcast, instr.args[0].dtype, target)
        elif row.result == "attr":
            meaning = partial(meaning, dtype=target)
        keys = [self.key(a) for a in instr.args]
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
        regs, d, a = self.regs, instr.dest.id, self.key(instr.args[0])

        def step() -> None:
            regs[d] = regs[a]  # one column for all lanes
        return step

    def _iota(self, at: int, instr: Instr) -> Step:
        self.regs[instr.dest.id] = np.arange(instr.dest.lanes, dtype=instr.dest.dtype.numpy)[None]
        return lambda: None

    def _extract(self, at: int, instr: Instr) -> Step:
        regs, d, a, lane = self.regs, instr.dest.id, self.key(instr.args[0]), instr.attrs["lane"]

        def step() -> None:
            x = regs[a]
            regs[d] = x[:, lane:lane + 1] if x.shape[1] > 1 else x
        return step

    def _join(self, at: int, instr: Instr) -> Step:
        regs, d, keys = self.regs, instr.dest.id, [self.key(a) for a in instr.args]

        def step() -> None:
            regs[d] = np.concatenate(np.broadcast_arrays(*[regs[k] for k in keys]), axis=1)
        return step

    def _shuffle(self, at: int, instr: Instr) -> Step:
        regs, d, perm = self.regs, instr.dest.id, list(instr.attrs["perm"])
        (a, b), lanes = map(self.key, instr.args), instr.args[0].lanes

        def step() -> None:
            x, y = regs[a], regs[b]
            rows = max(len(x), len(y))
            sides = [np.broadcast_to(v, (rows, lanes)) for v in (x, y)]
            regs[d] = np.concatenate(sides, axis=1)[:, perm]
        return step

    # -- variables -------------------------------------------------------------------------------

    def _get(self, at: int, instr: Instr) -> Step:
        regs, d, v = self.regs, instr.dest.id, instr.args[0].id

        def step() -> None:
            if v not in self.vars:
                raise self.fail(at, f"variable %{v} was never set")
            if self.summing:
                self.at_rest(at, v)
            if v in self.unset and (self.present() & self.unset[v]).any():
                raise self.fail(at, f"variable %{v} was never set by some threads")
            regs[d] = self.vars[v]
        return step

    def _set(self, at: int, instr: Instr) -> Step:
        regs, v, a = self.regs, instr.args[0].id, self.key(instr.args[1])

        def step() -> None:
            active, x = self.active, regs[a]
            if self.summing:
                self.at_rest(at, v)
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

    def memory(self, at: int, instr: Instr, reads: bool, writes: bool) -> Watched:
        store = self.stores[instr.attrs["mem"]]
        if reads and store.spec.access == "w":
            raise self.fail(at, f"{store.spec.name} is write-only")
        if writes and store.spec.access == "r":
            raise self.fail(at, f"{store.spec.name} is read-only")
        return store

    def _load(self, at: int, instr: Instr) -> Step:
        regs, d, lanes, off = self.regs, instr.dest.id, instr.dest.lanes, instr.attrs["off"]
        store = self.memory(at, instr, reads=True, writes=False)
        data, size, stored = store.data, store.spec.size, store.spec.dtype
        index = self.key(instr.args[0])
        mask = self.key(instr.args[1]) if len(instr.args) > 1 else None
        convert = conversion(stored, instr.dest.dtype)
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
        store = self.memory(at, instr, reads=False, writes=True)
        index, value = self.key(instr.args[0]), self.key(x)
        mask = self.key(instr.args[2]) if len(instr.args) > 2 else None
        convert, stored = conversion(x.dtype, store.spec.dtype), store.spec.dtype
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

    def _atomic(self, at: int, instr: Instr) -> Step:
        """Threads update one after the other."""
        regs, d, off = self.regs, instr.dest, instr.attrs["off"]
        store, update = self.memory(at, instr, True, True), instr.opcode.removeprefix("atomic_")
        index, *operands = map(self.key, instr.args)
        checked = store.races is not None or store.known is not None
        settle = _settle(d.dtype)

        def new(old: np.ndarray, *xs: np.ndarray) -> np.ndarray:
            if update == "cas":
                same = old.tobytes() == xs[0].astype(old.dtype).tobytes()
                return xs[1] if same else old
            meaning = None if update == "exchange" else OPCODES[update].meaning
            return xs[0] if meaning is None else settle(meaning(old, *xs))

        def step() -> None:
            places, live = self.reach(at, store, regs[index] + off, None)
            if checked:
                self.touch(at, store, "atomic", places, live)
            shape = (self.threads, 1)
            places = np.broadcast_to(places, shape)[:, 0]
            xs = [np.broadcast_to(regs[x], shape)[:, 0] for x in operands]
            result = np.zeros(shape, d.dtype.working)
            for k in np.flatnonzero(self.present()[:, 0]):
                result[k, 0] = store.data[places[k]]
                store.data[places[k]] = new(store.data[places[k]], *(x[k] for x in xs))
            regs[d.id] = result
        return step

    _atomic_add = _atomic_min = _atomic_max = _atomic_exchange = _atomic_cas = _atomic

    def _prefetch(self, at: int, instr: Instr) -> Step:
        return lambda: None
