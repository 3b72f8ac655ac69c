"""The work of one workgroup, counted in the kernel as its target speaks it.

Its integers are computed for all threads, so the addresses of accesses are exact. Of each loop two
trips are run; the others are taken to be like the second.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from ztorch.ir.kernel import Grid, Instr, Kernel, matching
from ztorch.ir.opcodes import OPCODES
from ztorch.performance.accesses import (
    LINE,
    SECTOR,
    AccessCost,
    bank_turns,
    matrix_places,
    sectors_touched,
)
from ztorch.performance.footprint import Footprint, Touched, joined, repeated
from ztorch.performance.thread_values import ThreadValues

FREE = frozenset({  # name a register or a constant; assemblers leave nothing of them
    "get", "set", "extract", "join", "splat", "iota", "bitcast", "grid_id", "block_id",
    "end_loop", "end_if", "else", "copies_commit"})
LOOP_SLOTS = 3  # instructions that a trip of a loop takes by itself: add, compare, branch
SPECIAL = frozenset({"sqrt", "rsqrt", "exp2", "div"})  # of floats
WRITES = frozenset({"store", "scatter", "mma_store"})
ACCESSES = WRITES | {"load", "gather", "mma_load", "copy_async"}


@dataclass
class Work:
    """What one workgroup does. Slots are instructions that a subgroup issues."""

    slots: Counter[str] = field(default_factory=Counter)  # by pipe: f32, f64, int, special, other
    matrix_flops: Counter[str] = field(default_factory=Counter)  # by dtype of operands, or tf32
    flops: float = 0.0  # of all threads, a multiply-add being two
    accesses: dict[int, AccessCost] = field(default_factory=dict)  # by the place in the kernel
    footprint: Footprint = field(default_factory=dict)  # of global memories
    made_here: set[str] = field(default_factory=set)  # memories written before they are read
    trips: dict[int, float] = field(default_factory=dict)  # of each loop, by its place
    taken: dict[int, tuple[bool, bool]] = field(default_factory=dict)  # branches of each `if`
    loop_slots: dict[int, Counter[str]] = field(default_factory=dict)  # opcodes in one trip
    loop_runs: Counter[int] = field(default_factory=Counter)  # trips of each loop in all, by place
    copies_pending: int = 0  # groups of copies on their way while others are waited for

    @property
    def main_loop(self) -> int | None:
        """The place of the loop in which most instructions are issued, without those inside it."""
        return max(self.loop_slots, default=None,
                   key=lambda at: self.loop_slots[at].total() * self.loop_runs[at])

    @property
    def mix(self) -> Counter[str]:
        """How often each opcode stands in a trip of the main loop; of the kernel if it has none."""
        at = self.main_loop
        return Counter() if at is None else self.loop_slots[at]


def work_of(kernel: Kernel, grid: Grid, subgroup: int) -> Work:
    """The work of the workgroup in the middle of a launch.

    Args:
        kernel: The kernel of one thread, in words of its target.
        grid: The workgroups of the launch.
        subgroup: Threads that run in lockstep.
    """
    walk = _Walk(kernel, grid, subgroup)
    walk.work.footprint = walk.block(0, len(kernel.body), np.ones(walk.threads, bool), 1.0, None)
    return walk.work


class _Walk:
    """Runs the integers of a kernel and counts what its instructions cost."""

    def __init__(self, kernel: Kernel, grid: Grid, subgroup: int):
        self.kernel, self.subgroup = kernel, subgroup
        middle = (grid[0] // 2, grid[1] // 2, grid[2] // 2)
        self.values = ThreadValues(kernel, grid, middle)
        self.threads = math.prod(kernel.workgroup)
        self.ends = dict(matching(kernel.body))
        self.memories = {m.name: m for m in kernel.memories}
        self.work = Work()
        self.met: set[tuple[str, bool]] = set()  # global memories, and whether they were written
        self.turns: dict[tuple, tuple[int, int]] = {}  # results of `bank_turns`

    def block(self, at: int, stop: int, active: np.ndarray, weight: float,
              loop: int | None) -> Footprint:
        """Counts the instructions from one place to another, which run `weight` times."""
        parts: list[Footprint] = []
        while at < stop:
            i = self.kernel.body[at]
            if i.opcode == "loop":
                parts.append(self._loop(at, active, weight))
            elif i.opcode == "if":
                parts.append(self._if(at, active, weight, loop))
            else:
                part = self._step(at, i, active, weight)
                if part:
                    parts.append(part)
                if loop is not None and i.opcode not in FREE:
                    self.work.loop_slots[loop][i.opcode] += 1
            at = self.ends.get(at, at) + 1
        return joined(parts)

    def _loop(self, at: int, active: np.ndarray, weight: float) -> Footprint:
        """Two trips, of which the second stands for all that follow."""
        i = self.kernel.body[at]
        columns = [self.values.column(a) for a in i.args]
        nothing = np.zeros(self.threads, np.int64)
        start, stop, step = (nothing + n if x is None else x  # not known: one trip
                             for n, x in enumerate(columns))
        counts = np.where(active, np.maximum(0, -(-(stop - start) // np.maximum(step, 1))), 0)
        trips = float(counts.max(initial=0))
        self.work.trips[at] = max(self.work.trips.get(at, 0.0), trips)
        footprints: tuple[Footprint, ...] = ()
        following = float(counts[counts > 1].mean() - 1) if trips > 1 else 0.0
        for turn, times in enumerate((1.0, following)):
            live = counts > turn
            if not times or not live.any():
                break
            self.values.values[i.dest.id] = (start + turn * step)[:, None].astype(
                i.dest.dtype.numpy)
            self.work.loop_slots[at] = Counter()
            self.work.loop_runs[at] += weight * times  # type: ignore[assignment]
            self._issue("int", LOOP_SLOTS, live, weight * times)
            inside = self.block(at + 1, self.ends[at], live, weight * times, at)
            footprints = (*footprints, inside)
        return repeated(*footprints, following) if len(footprints) == 2 else joined(footprints)

    def _if(self, at: int, active: np.ndarray, weight: float, loop: int | None) -> Footprint:
        """Both branches, each for the threads that take it; where that is not known, for all."""
        i, end = self.kernel.body[at], self.ends[at]
        middle, depth = end, 0
        for n in range(at + 1, end):
            opcode = self.kernel.body[n].opcode
            depth += (opcode in ("loop", "if")) - (opcode in ("end_loop", "end_if"))
            if opcode == "else" and depth == 0:
                middle = n
        condition = self.values.of(i.args[0])
        holds = (active if condition is None
                 else active & np.broadcast_to(condition[:, 0], active.shape))
        fails = active & ~holds if condition is not None else active
        share = 0.5 if condition is None and middle < end else 1.0
        self._issue("other", 1, active, weight)
        before = self.work.taken.get(at, (False, False))
        self.work.taken[at] = (before[0] or bool(holds.any()), before[1] or bool(fails.any()))
        parts = []
        if holds.any():
            parts.append(self.block(at + 1, middle, holds, weight * share, loop))
        if fails.any() and middle < end:
            parts.append(self.block(middle + 1, end, fails, weight * share, loop))
        return joined(parts)

    def _step(self, at: int, i: Instr, active: np.ndarray, weight: float) -> Footprint:
        if i.opcode in ACCESSES:
            self._issue("memory", 1, active, weight)
            return self._access(at, i, active, weight)
        self.values.step(i, active)
        if i.opcode == "copies_wait":
            self.work.copies_pending = max(self.work.copies_pending, i.attrs["pending"])
        if i.opcode in FREE:
            return {}
        if i.opcode == "mma":
            self._multiply(i, active, weight)
            return {}
        row = OPCODES.get(i.opcode)
        operand = i.args[-1].dtype if i.args else i.dest.dtype
        computes = row is not None and row.meaning is not None
        lanes = max([i.dest.lanes, *(a.lanes for a in i.args)])
        if row is None or not computes:
            self._issue("other", lanes, active, weight)
            return {}
        converts = i.opcode in ("cast", "raw_cast")
        pipe = "int" if converts or not operand.is_float else "f64" if operand.bits == 64 else "f32"
        slots = row.cost
        if i.opcode in SPECIAL and operand.is_float:
            self._issue("special", lanes, active, weight)
            slots -= 1
        self._issue(pipe, slots * lanes, active, weight)
        if i.dest.dtype.is_float and not converts and i.opcode != "select":
            self.work.flops += lanes * (2 if i.opcode == "fma" else 1) * weight * active.sum()
        return {}

    def _multiply(self, i: Instr, active: np.ndarray, weight: float) -> None:
        fragment = i.dest.fragment
        assert fragment is not None
        s = fragment.shape
        flops = 2.0 * s.m * s.n * s.k * weight * len(self._subgroups(active))
        kind = "tf32" if s.mantissa_bits else s.of.name
        self.work.matrix_flops[kind] += flops  # type: ignore[assignment]
        self.work.flops += flops
        self._issue("other", 1, active, weight)

    # -- memory ----------------------------------------------------------------------------------

    def _access(self, at: int, i: Instr, active: np.ndarray, weight: float) -> Footprint:
        """Counts an access; a copy is one of its target and one of its source."""
        if i.opcode == "copy_async":
            size = self.memories[i.attrs["mem"]].dtype.bytes * i.attrs["elements"]
            inside = self.values.column(i.args[2])
            reading = active if inside is None else active & inside.astype(bool)
            self._reach(at, i, i.attrs["mem"], self._places(i, 0, "mem", "off"), size, active,
                        weight)
            return self._reach(-1 - at, i, i.attrs["source"],
                               self._places(i, 1, "source", "source_off"), size, reading, weight)
        m = self.memories[i.attrs["mem"]]
        if i.opcode in ("mma_load", "mma_store"):
            return self._reach_matrix(at, i, active, weight)
        writes = i.opcode in WRITES
        lanes = i.args[1].lanes if writes else i.dest.lanes
        masks = i.args[1 + writes:]
        mask = self.values.column(masks[0]) if masks else None
        live = active if mask is None else active & mask.astype(bool)
        places = self._places(i, 0, "mem", "off")
        if not writes:
            self.values.from_memory(i, self.values.of(i.args[0]))
        if i.opcode in ("load", "store"):
            return self._reach(at, i, m.name, places, m.dtype.bytes * lanes, live, weight)
        indices = self.values.of(i.args[0])
        columns = [places] if indices is None else [
            np.broadcast_to(x, (self.threads,)).astype(np.int64) * m.dtype.bytes
            for x in (indices + i.attrs["off"]).T]
        return joined(self._reach(at, i, m.name, c, m.dtype.bytes, live, weight) for c in columns)

    def _places(self, i: Instr, argument: int, mem: str, off: str) -> np.ndarray:
        """The address of each thread. Where it is not known, each has a sector of its own."""
        index = self.values.column(i.args[argument])
        size = self.memories[i.attrs[mem]].dtype.bytes
        if index is None:
            return np.arange(self.threads, dtype=np.int64) * SECTOR
        return (index + i.attrs[off]) * size

    def _reach(self, at: int, i: Instr, mem: str, places: np.ndarray, size: int,
               active: np.ndarray, weight: float) -> Footprint:
        return self._count(at, i.opcode, mem, self._rows(places), size, self._rows(active), weight)

    def _reach_matrix(self, at: int, i: Instr, active: np.ndarray, weight: float) -> Footprint:
        """A matrix that a subgroup loads or stores together."""
        fragment = (i.dest if i.opcode == "mma_load" else i.args[1]).fragment
        assert fragment is not None
        m = self.memories[i.attrs["mem"]]
        whole = i.attrs["align"] >= 16 and fragment.dtype.bits == 16 and m.space == "shared"
        offsets, size = matrix_places(fragment, i.attrs["pitch"], i.attrs["turned"], whole)
        firsts = self._rows(self._places(i, 0, "mem", "off"))[self._subgroups(active), 0]
        addresses = (firsts[:, None, None] + offsets).reshape(-1, offsets.shape[1])
        self.values.values[i.dest.id] = None
        return self._count(at, i.opcode, m.name, addresses, size,
                           np.ones_like(addresses, bool), weight)

    def _count(self, at: int, opcode: str, mem: str, addresses: np.ndarray, size: int,
               active: np.ndarray, weight: float) -> Footprint:
        """Adds requests, a row each, to what is known of an access."""
        m = self.memories[mem]
        cost = self.work.accesses.setdefault(at, AccessCost(mem, m.space, opcode))
        cost.requests += weight * int(active.any(axis=1).sum())
        if m.space == "shared":
            turns, least = self._turns(addresses, size, active)
            cost.turns += weight * turns
            cost.least_turns += weight * least
            return {}
        if m.space == "local":
            return {}
        every, sectors, lines = sectors_touched(addresses, size, active)
        cost.sectors += weight * sectors
        cost.lines += weight * lines
        cost.useful_bytes += weight * size * len(np.unique(addresses[active]))
        writes = opcode in WRITES
        if writes and (mem, False) not in self.met:
            self.work.made_here.add(mem)
        self.met.add((mem, writes))
        return {(mem, writes): Touched(every, float(len(every)))} if len(every) else {}

    def _turns(self, addresses: np.ndarray, size: int, active: np.ndarray) -> tuple[int, int]:
        """Cycles for which an access occupies shared memory. Many differ by whole lines only."""
        pattern = addresses - addresses.min() // LINE * LINE
        key = size, pattern.shape, pattern.tobytes(), active.tobytes()
        if key not in self.turns:
            self.turns[key] = bank_turns(pattern, size, active)
        return self.turns[key]

    # -- subgroups -------------------------------------------------------------------------------

    def _rows(self, x: np.ndarray) -> np.ndarray:
        """One row for each subgroup; threads that are missing from the last one are inactive."""
        lacking = -len(x) % self.subgroup
        if lacking:
            x = np.concatenate([x, np.zeros(lacking, x.dtype)])
        return x.reshape(-1, self.subgroup)

    def _subgroups(self, active: np.ndarray) -> np.ndarray:
        """The numbers of the subgroups that have active threads."""
        return np.flatnonzero(self._rows(active).any(axis=1))

    def _issue(self, pipe: str, slots: float, active: np.ndarray, weight: float) -> None:
        issued = slots * weight * len(self._subgroups(active))
        self.work.slots[pipe] += issued  # type: ignore[assignment]
