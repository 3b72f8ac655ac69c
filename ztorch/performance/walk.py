"""Counts the work of one workgroup in the kernel, in the opcodes of its target.

Its integers are computed for all threads, so the addresses of accesses are exact. Two trips of each
loop are evaluated; the others are assumed to be like the second, except where a guard ends.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from ztorch.ir.kernel import ASYNC_PRODUCTS, WARPGROUP, Grid, Instr, Kernel, branches, matching
from ztorch.ir.opcodes import OPCODES
from ztorch.performance.footprint import Footprint, footprint_of_loop, footprint_of_sequence
from ztorch.performance.fused_instructions import fused_results
from ztorch.performance.guards import guard_shares
from ztorch.performance.memory_work import MemoryWork, subgroups_in
from ztorch.performance.thread_values import ThreadValues
from ztorch.performance.work import ACCESSES, LOOP_SLOTS, SPLIT_INTEGERS, Work, WorkPath, splits

SPECIAL = frozenset({"sqrt", "rsqrt", "exp2", "raw_exp2", "raw_rcp", "div"})  # of floats
# Slots of a division of float32, as counted in the machine code for sm_90a. The cost in OPCODES is
# that of machines that have an instruction for it.
DIVISION_SLOTS = 18
MOST_TRIPS = 64  # of a loop over tiles that are evaluated one by one


def work_of(kernel: Kernel, grid: Grid, subgroup: int, group: Grid | None = None) -> Work:
    """The work of a workgroup of a launch.

    Args:
        kernel: The kernel of one thread, in words of its target.
        grid: The workgroups of the launch.
        subgroup: Threads that run in lockstep.
        group: The workgroup. Default: `None`, the one in the middle.
    """
    middle = (grid[0] // 2, grid[1] // 2, grid[2] // 2)
    walk = _Walk(kernel, grid, subgroup, group or middle)
    walk.work.footprint = walk.block(0, len(kernel.body), np.ones(walk.threads, bool), 1.0, None)
    return walk.work


class _Walk:
    """Evaluates the integers of a kernel and counts the cost of its instructions."""

    def __init__(self, kernel: Kernel, grid: Grid, subgroup: int, group: Grid):
        self.kernel, self.subgroup = kernel, subgroup
        self.values = ThreadValues(kernel, grid, group)
        self.threads = math.prod(kernel.workgroup)
        self.ends = dict(matching(kernel.body))
        self.streams = "grid_wait" in kernel.opcodes()  # whether tiles are shared
        self.guards: dict[int, float] = {}  # by place: the share of trips in which they hold
        self.work = Work(fused=fused_results(kernel))
        self.memory = MemoryWork(kernel, self.values, subgroup, self.work)

    def block(self, at: int, stop: int, active: np.ndarray, weight: float,
              loop: int | None) -> Footprint:
        """Counts the instructions from `at` to `stop`, which run `weight` times."""
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
                if loop is not None and not self.work.is_free(i):
                    self.work.loop_slots[loop][i.opcode] += 1
            at = self.ends.get(at, at) + 1
        return footprint_of_sequence(parts)

    def _loop(self, at: int, active: np.ndarray, weight: float) -> Footprint:
        """Evaluates two trips, the second of which represents all that follow."""
        i = self.kernel.body[at]
        columns = [self.values.column(a) for a in i.args]
        bounds = [x for x in columns if x is not None]
        if len(bounds) < len(columns):  # if a bound is unknown, one trip is assumed
            bounds = [np.full(self.threads, n, np.int64) for n in (0, 1, 1)]
        start, stop, step = bounds
        counts = np.where(active, np.maximum(0, -(-(stop - start) // np.maximum(step, 1))), 0)
        trips = float(counts.max(initial=0))
        self.work.trips[at] = max(self.work.trips.get(at, 0.0), trips)
        nested = any(j.opcode == "loop" for j in self.kernel.body[at + 1:self.ends[at]])
        if self.streams and nested and 0 < trips <= MOST_TRIPS:
            return self._each_trip(at, active, weight, start, step, counts)
        footprints: tuple[Footprint, ...] = ()
        following = float(counts[counts > 1].mean() - 1) if trips > 1 else 0.0
        for trip, times in enumerate((1.0, following)):
            live = counts > trip
            if not times or not live.any():
                break
            if trip:
                self.guards |= guard_shares(self.kernel, self.values, self.ends, at, start, step,
                                            int(trips))
            self.values.values[i.dest.id] = (start + trip * step)[:, None].astype(
                i.dest.dtype.numpy)
            self.work.loop_slots[at] = Counter()
            self.work.loop_runs[at] += weight * times  # type: ignore[assignment]
            self._issue("int", LOOP_SLOTS, live, weight * times)
            inside = self.block(at + 1, self.ends[at], live, weight * times, at)
            footprints = (*footprints, inside)
        self.guards = {k: n for k, n in self.guards.items() if not at < k < self.ends[at]}
        if len(footprints) == 2:
            return footprint_of_loop(*footprints, following)
        return footprint_of_sequence(footprints)

    def _each_trip(self, at: int, active: np.ndarray, weight: float, start: np.ndarray,
                   step: np.ndarray, counts: np.ndarray) -> Footprint:
        """Evaluates all trips of a loop over tiles, of which a workgroup may have shares."""
        i, work, footprints = self.kernel.body[at], self.work, []
        before, work.each_trip[at] = WorkPath(work.trips, work.taken), []
        for trip in range(int(counts.max())):
            live, way = active & (counts > trip), WorkPath({}, {})
            work.trips, work.taken = way
            self.values.values[i.dest.id] = (start + trip * step)[:, None].astype(
                i.dest.dtype.numpy)
            work.loop_slots[at] = Counter()
            work.loop_runs[at] += weight  # type: ignore[assignment]
            self._issue("int", LOOP_SLOTS, live, weight)
            footprints.append(self.block(at + 1, self.ends[at], live, weight, at))
            work.each_trip[at].append(way)
            for k, trips in way.trips.items():
                before.trips[k] = max(trips, before.trips.get(k, 0.0))
            for k, pair in way.taken.items():
                old = before.taken.get(k, (False, False))
                before.taken[k] = old[0] or pair[0], old[1] or pair[1]
        work.trips, work.taken = before
        return footprint_of_sequence(footprints)

    def _if(self, at: int, active: np.ndarray, weight: float, loop: int | None) -> Footprint:
        """Evaluates each branch for the threads that take it, or for all if that is unknown."""
        i, end = self.kernel.body[at], self.ends[at]
        middle = branches(self.kernel.body, at, end)
        condition = self.values.of(i.args[0])
        holds = (active if condition is None
                 else active & np.broadcast_to(condition[:, 0], active.shape))
        fails = active & ~holds if condition is not None else active
        share = 0.5 if condition is None and middle < end else self.guards.get(at, 1.0)
        self._issue("other", 1, active, weight)
        before = self.work.taken.get(at, (False, False))
        self.work.taken[at] = (before[0] or bool(holds.any()), before[1] or bool(fails.any()))
        parts = []
        if holds.any():
            parts.append(self.block(at + 1, middle, holds, weight * share, loop))
        if fails.any() and middle < end:
            parts.append(self.block(middle + 1, end, fails, weight * share, loop))
        return footprint_of_sequence(parts)

    def _step(self, at: int, i: Instr, active: np.ndarray, weight: float) -> Footprint:
        if i.opcode in ACCESSES:
            self._issue("memory", 1, active, weight)
            if i.opcode == "mma_store" and self.memory.memories[i.attrs["mem"]].dtype.bits == 16:
                self._issue("int", i.args[1].lanes // 2, active, weight)  # rounds pairs
            if splits(i):
                self._issue("int", SPLIT_INTEGERS * i.dest.lanes, active, weight)
                self._issue("f32", i.dest.lanes, active, weight)
            return self.memory.access(at, i, active, weight)
        self.values.step(i, active)
        if i.opcode == "copies_wait":
            self.work.copies_pending = max(self.work.copies_pending, i.attrs["pending"])
        if i.opcode == "mbarrier_expect":  # one stage is read, and all others may be in flight
            self.work.copies_pending = self.kernel.memory(i.attrs["mem"]).size - 1
        if self.work.is_free(i):
            return {}
        if i.opcode in ("mma", *ASYNC_PRODUCTS):
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
        if pipe == "int" and i.opcode in ("add", "sub") and operand.bits <= 32:
            pipe = "add"
        slots = DIVISION_SLOTS if i.opcode == "div" and operand.is_float else row.cost
        if i.opcode in SPECIAL and operand.is_float:
            self._issue("special", lanes, active, weight)
            slots -= 1
        self._issue(pipe, slots * lanes, active, weight)
        if i.dest.dtype.is_float and not converts and i.opcode != "select":
            self.work.flops += lanes * (2 if i.opcode == "fma" else 1) * weight * active.sum()
        return {}

    def _multiply(self, i: Instr, active: np.ndarray, weight: float) -> None:
        sums = i.args[2:]  # an asynchronous product has several, side by side
        fragment = sums[0].fragment
        assert fragment is not None
        s, subgroups = fragment.shape, len(subgroups_in(active, self.subgroup))
        flops = 2.0 * s.m * s.n * s.k * len(sums) * s.products * weight * subgroups
        if i.opcode in ASYNC_PRODUCTS:
            self.work.async_flops[s.rate] += flops  # type: ignore[assignment]
            rows = s.m * WARPGROUP if i.opcode == "mma_async" else 0  # of a in memory
            shared = (rows + s.n * len(sums) * s.products) * s.k * s.of.bytes / WARPGROUP
            self.memory.from_shared(i.attrs["mem"], shared * subgroups, weight)
        else:
            self.work.matrix_flops[s.rate] += flops  # type: ignore[assignment]
        self.work.flops += flops
        self._issue("other", s.products, active, weight)

    def _issue(self, pipe: str, slots: float, active: np.ndarray, weight: float) -> None:
        issued = slots * weight * len(subgroups_in(active, self.subgroup))
        self.work.slots[pipe] += issued  # type: ignore[assignment]
