"""The latency of a workgroup: the time that it takes if it runs alone on a unit.

Between two barriers, or in one trip of a loop, an instruction starts as soon as its operands are
ready, because assemblers schedule instructions so. No instruction starts before all instructions
of the previous section have started. So loads for a later trip cost nothing, and the latency of
loads for the same trip counts.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ztorch.ir.kernel import ASYNC_PRODUCTS, WARPGROUP, Instr, Kernel, branches, matching
from ztorch.machines.gpus import Gpu
from ztorch.performance.ring_clock import (
    RingPlaces,
    RingTimes,
    TileShare,
    ring_cycles,
    ring_places,
    stages_of,
    strip_bytes,
)
from ztorch.performance.work import LOOP_SLOTS, SPLIT_INTEGERS, Work, WorkPath, splits

INNER_TRIPS = 12  # simulated trips of an innermost loop: more than copies have stages
OUTER_TRIPS = 3  # simulated trips of other loops


def group_cycles(kernel: Kernel, work: Work, gpu: Gpu, groups: int, cached: bool = False) -> float:
    """The cycles of one workgroup from its start to its end.

    Args:
        kernel: The kernel of one thread, in words of its target.
        work: The trip counts of its loops, and the branches that are taken.
        gpu: The GPU that it runs on.
        groups: Workgroups of the launch.
        cached: Whether its loads hit the shared cache. Default: `False`.
    """
    clock = _Clock(kernel, work, gpu, gpu.l2_cycles if cached else gpu.memory_cycles, groups)
    clock.block(0, len(kernel.body))
    clock.meet()
    return max(clock.start, *clock.stores) if clock.stores else clock.start


def handed_cycles(kernel: Kernel, gpu: Gpu, groups: int) -> float:
    """The cycles in which a workgroup writes what it hands to another one, or reads it: an equal
    share of the memories that a kernel itself writes and reads."""
    written, read = ({i.attrs["mem"] for i in kernel.body if i.opcode == opcode}
                     for opcode in ("store", "load"))
    nbytes = sum(m.size * m.dtype.bytes for m in kernel.memories
                 if m.space == "global" and m.name in written & read)
    return nbytes / groups / gpu.l2_unit_bytes


class _Clock:
    """Simulates one workgroup instruction by instruction. Times are in cycles."""

    def __init__(self, kernel: Kernel, work: Work, gpu: Gpu, load_cycles: int, groups: int):
        self.kernel, self.work, self.gpu, self.load_cycles = kernel, work, gpu, load_cycles
        self.groups = groups  # of the launch
        self.rings = "mbarrier_init" in kernel.opcodes()
        self.handed = handed_cycles(kernel, gpu, groups) if "grid_wait" in kernel.opcodes() else 0.0
        self.skipped = -1  # place of a loop that is not simulated
        self.multiplies = True  # whether asynchronous products take time
        self.ends = dict(matching(kernel.body))
        self.spaces = {m.name: m.space for m in kernel.memories}
        self.start = 0.0  # of the current section
        self.latest = 0.0  # last start of an instruction in it
        self.slots = 0.0  # number of instructions in it
        self.ready: dict[int, float] = {}  # times at which values and variables are ready, by id
        self.copies = [0.0]  # ends of groups of copies; the last group is still open
        self.products = [0.0]  # ends of groups of asynchronous products, likewise
        self.products_end = 0.0  # end of the last asynchronous product
        self.stores: list[float] = []  # end of the last store

    def meet(self, cost: float = 0.0) -> None:
        """Ends a section: later instructions start after all of its instructions have started."""
        self.start = max(self.latest, self.start + self.slots) + cost
        self.latest, self.slots = self.start, 0.0

    def block(self, at: int, stop: int) -> None:
        while at < stop:
            i = self.kernel.body[at]
            if at == self.skipped:
                self.slots += LOOP_SLOTS
            elif i.opcode == "loop":
                self._loop(at)
            elif i.opcode == "if":
                self._if(at)
            else:
                self._step(i)
            at = self.ends.get(at, at) + 1

    def _loop(self, at: int) -> None:
        """Simulates some trips. Each of the others takes the mean time of their second half."""
        trips = self.work.trips.get(at, 0.0)
        end = self.ends[at]
        nested = any(i.opcode == "loop" for i in self.kernel.body[at + 1:end])
        simulated = min(trips, OUTER_TRIPS if nested else INNER_TRIPS)
        starts = []
        for _ in range(int(simulated)):
            self.meet()
            starts.append(self.start)
            self.ready[self.kernel.body[at].dest.id] = self.start
            self.slots += LOOP_SLOTS
            self.block(at + 1, end)
        self.meet()
        if trips > simulated:
            half = len(starts) // 2
            trip_cycles = (self.start - starts[half]) / (len(starts) - half)
            self._advance(trip_cycles * (trips - simulated))

    def _advance(self, cycles: float) -> None:
        """Moves all times forward by some cycles of a steady state."""
        self.start += cycles
        self.latest = self.start
        self.ready = {v: t + cycles for v, t in self.ready.items()}
        self.copies = [t + cycles for t in self.copies]
        self.products = [t + cycles for t in self.products]
        self.products_end += cycles

    def _if(self, at: int) -> None:
        end = self.ends[at]
        middle = branches(self.kernel.body, at, end)
        then, otherwise = self.work.taken.get(at, (False, False))
        self.slots += 1
        ring = ring_places(self.kernel, self.ends, at, middle, end)
        if ring is not None:
            return self._ring(ring)
        if then:
            self.block(at + 1, middle)
        if otherwise and middle < end:
            self.block(middle + 1, end)

    def _ring(self, ring: RingPlaces) -> None:
        """Advances by the time of a producer and its consumers, which run concurrently."""
        gpu, body = self.gpu, self.kernel.body
        copying, strip = (range(s + 1, self.ends[s]) for s in (ring.copying, ring.multiplying))
        teams = math.prod(self.kernel.workgroup) // (gpu.subgroup * WARPGROUP) - 1
        products = teams * sum(self._product_cycles(body[k]) for k in strip
                               if body[k].opcode in ASYNC_PRODUCTS)
        busy_units = min(self.groups, gpu.units)
        clock = gpu.clock_of(self.groups)  # the cache keeps its own
        share = min(gpu.l2_unit_bytes, gpu.l2_gb_s * 1e9 / busy_units / clock)  # bytes per cycle
        times = RingTimes(
            self._alone(ring.copying, -1), self.load_cycles + gpu.tile_copy_cycles,
            strip_bytes(self.kernel, copying) / share, self._alone(ring.multiplying, -1), products)
        self.meet(ring_cycles(self._shares(ring), stages_of(self.kernel), times))

    def _shares(self, ring: RingPlaces) -> list[TileShare]:
        """The tiles of a workgroup, or its shares of tiles."""
        ways = self.work.each_trip.get(ring.tiles)
        if ways is None:
            tiles, strips = (int(self.work.trips.get(s, 0)) for s in (ring.tiles, ring.multiplying))
            return [TileShare(strips, self._alone(ring.tiles, ring.multiplying))] * tiles
        return [TileShare(int(way.trips[ring.multiplying]), self._alone(
            ring.tiles, ring.multiplying, way)) for way in ways]

    def _alone(self, loop: int, skipped: int, way: WorkPath | None = None) -> float:
        """The cycles of one trip of a loop, without the loop at the place `skipped` and without
        asynchronous products; on a way, if its trips differ."""
        work = self.work if way is None else replace(self.work, trips=way.trips, taken=way.taken)
        clock = _Clock(self.kernel, work, self.gpu, self.load_cycles, self.groups)
        clock.skipped, clock.multiplies = skipped, False
        clock.block(loop + 1, self.ends[loop])
        clock.meet()
        return clock.start

    def _step(self, i: Instr) -> None:
        at = max([self.start, *(self.ready.get(a.id, 0.0) for a in i.args if a.id >= 0)])
        if i.opcode == "set":
            self.ready[i.args[0].id] = max(
                self.start, self.ready.get(i.args[1].id, 0.0) if i.args[1].id >= 0 else 0.0)
            return
        if self.work.is_free(i):
            self.ready[i.dest.id] = at
            if i.opcode == "copies_commit":
                self.copies.append(0.0)
            if i.opcode == "mma_commit":
                self.products.append(0.0)
            return
        self.slots += 1
        if splits(i):
            self.slots += (SPLIT_INTEGERS + 1) * i.dest.lanes
        elif i.opcode == "mma":
            assert i.dest.fragment is not None
            self.slots += i.dest.fragment.shape.products - 1
        if i.opcode == "barrier":
            self.meet(self.gpu.barrier_cycles)
        elif i.opcode == "copies_wait":
            landed = self.copies[:len(self.copies) - 1 - i.attrs["pending"]]
            self.latest = max(self.latest, *landed, 0.0) if landed else self.latest
            self.copies = self.copies[len(landed):]
            self.meet()
        elif i.opcode == "mma_wait":
            ended = self.products[:len(self.products) - 1 - i.attrs["pending"]]
            self.latest = max(self.latest, *ended, 0.0) if ended else self.latest
            self.products = self.products[len(ended):]
            self.meet()
        elif i.opcode in ASYNC_PRODUCTS and not self.multiplies:
            self.latest = max(self.latest, self.start)
        elif i.opcode == "team_barrier":
            self.meet(self.gpu.barrier_cycles)
        elif i.opcode == "cluster_barrier":  # beside a ring, no other workgroup waits for stores
            self.meet(self.gpu.barrier_cycles if self.rings else self.gpu.cluster_cycles)
        elif i.opcode == "grid_barrier":
            self.meet(self.gpu.launch_barrier_cycles)
        elif i.opcode == "grid_signal":  # behind all stores
            self.latest = max(self.latest, *self.stores)
            self.meet(self.gpu.l2_cycles + self.handed)
        elif i.opcode == "grid_wait":
            self.meet(self.gpu.signal_cycles + self.handed)
        elif i.opcode in ASYNC_PRODUCTS:
            self.latest = max(self.latest, self.start)
            self.products_end = max(self.start, self.products_end) + self._product_cycles(i)
            self.products[-1] = self.products_end + self.gpu.mma_cycles
        else:
            self.latest = max(self.latest, at)
            done = at + self._cycles(i)
            self.ready[i.dest.id] = done
            if i.opcode == "copy_async":
                self.copies[-1] = max(self.copies[-1], done)
            elif i.opcode in ("store", "scatter", "mma_store"):
                self.stores = [max(done, *self.stores)] if self.stores else [done]

    def _product_cycles(self, i: Instr) -> float:
        """The cycles for which an asynchronous product occupies all matrix units."""
        fragment = i.args[2].fragment
        assert fragment is not None
        s, gpu = fragment.shape, self.gpu
        flops = 2.0 * s.m * s.n * s.k * len(i.args[2:]) * WARPGROUP * s.products
        return flops / (gpu.matrix_rate(s.rate) / gpu.units / gpu.clock_ghz / 1e9)

    def _cycles(self, i: Instr) -> float:
        """The cycles from the start of an instruction to its result."""
        gpu = self.gpu
        if i.opcode in ("load", "gather", "mma_load"):
            near = self.spaces.get(i.attrs["mem"]) == "shared"
            splitting = 4 * gpu.arithmetic_cycles if splits(i) else 0.0  # one after another
            return (gpu.shared_cycles if near else self.load_cycles) + splitting
        if i.opcode == "copy_async":
            return self.load_cycles
        if i.opcode == "mma":
            assert i.dest.fragment is not None
            return gpu.mma_cycles * i.dest.fragment.shape.products
        if i.opcode == "shuffle_xor":
            return gpu.shared_cycles
        return gpu.arithmetic_cycles
