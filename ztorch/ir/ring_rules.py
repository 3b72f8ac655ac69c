"""The rules for rings: barriers of phases, copies of tiles, teams and clusters."""

from __future__ import annotations

import math

from ztorch.dtypes import u32, u64
from ztorch.ir.kernel import (
    ASYNC_PRODUCTS,
    SWIZZLE_LINE,
    SWIZZLE_REPEAT,
    WARPGROUP,
    Kernel,
    Memory,
    Operand,
)
from ztorch.ir.product_rules import CHUNK, ProductRules
from ztorch.ir.thread_rules import SUBGROUP

SIGNALS = ("grid_signal", "grid_wait")
MAX_BOX = 256  # elements of a box along an axis
MAX_AXES = 5  # of a box
MAX_CLUSTER = 8  # the most workgroups of a cluster on all chips with clusters
REGISTER_FILE = 1 << 16  # registers of a unit, on every machine that has teams
MOST_REGISTERS = 255  # of a thread
REGISTERS = range(24, 257, 8)  # that threads of a warpgroup can ask for


def registers_of(threads: int) -> int:
    """The most registers per thread with which a unit holds so many threads. A unit distributes
    subgroups among four quarters: of nine subgroups, one quarter has three.

    >>> registers_of(256), registers_of(288)
    (255, 168)
    """
    quarter = math.ceil(threads / (WARPGROUP * SUBGROUP))
    return min(MOST_REGISTERS, REGISTER_FILE // (quarter * WARPGROUP * SUBGROUP) // 8 * 8)


class RingRules(ProductRules):
    """The rules for single instructions, those of rings among them."""

    def __init__(self, kernel: Kernel):
        super().__init__(kernel)
        self.barrier_memories = {i.attrs.get("mem") for i in kernel.body
                                 if i.opcode.startswith("mbarrier_")} - {None}
        self.counters = {i.attrs.get("mem") for i in kernel.body if i.opcode == "grid_barrier"}
        self.signals = {i.attrs["mem"] for i in kernel.body if i.opcode in SIGNALS}
        self.signaled: set[str] = set()  # memories of signals with a grid_signal so far
        self.tile_memories = {i.attrs.get("mem") for i in kernel.body if i.opcode == "copy_tile"}

    def ring_access(self) -> None:
        """Memories of barriers or tiles have no other accesses."""
        opcode = self.instr.opcode
        self.rule(self.instr.attrs["mem"] not in self.counters or opcode == "grid_barrier",
                  "{} counts the barriers of the launch", self.instr.attrs["mem"])
        self.rule(self.instr.attrs["mem"] not in self.signals or opcode in SIGNALS,
                  "{} holds signals", self.instr.attrs["mem"])
        for name in {self.instr.attrs["mem"], self.instr.attrs.get("source")}:
            self.rule(name not in self.barrier_memories or opcode.startswith("mbarrier_"),
                      "{} holds barriers", name)
            self.rule(name not in self.tile_memories or self.loads_parts or (
                opcode in ("copy_tile", *ASYNC_PRODUCTS)),
                "{} is filled by copies of tiles: asynchronous products alone read it", name)

    def _barrier_at(self, name: str, index: Operand, off: int = 0) -> None:
        m = self.memories[name]
        self.rule(m.space == "shared" and m.dtype == u64 and not m.swizzled,
                  "{} is not shared memory of u64", name)
        self.index(index)
        self.one_lane(index)
        self.rule(not index.is_const or 0 <= index.number + off < m.size,
                  "{}[{}] is outside its {} elements", name,
                  (index.number if index.is_const else 0) + off, m.size)

    def _cluster(self) -> None:
        cluster = self.instr.attrs["cluster"]
        self.rule(cluster in (1, self.kernel.cluster), "reaches {} workgroups of a cluster of {}",
                  cluster, self.kernel.cluster)

    def check_mbarrier(self) -> None:
        self._barrier_at(self.instr.attrs["mem"], self.instr.args[0], self.instr.attrs["off"])

    check_mbarrier_init = check_mbarrier

    def check_mbarrier_expect(self) -> None:
        self.check_mbarrier()
        nbytes = self.instr.attrs["bytes"]
        self.rule(nbytes > 0 and nbytes % CHUNK == 0, "expects {} bytes", nbytes)

    def check_mbarrier_arrive(self) -> None:
        self.check_mbarrier()
        self._cluster()

    def check_mbarrier_wait(self) -> None:
        self.check_mbarrier()
        self.index(self.instr.args[1])
        self.one_lane(self.instr.args[1])

    def check_mbarrier_fence(self) -> None:
        """Needs nothing."""

    def check_copy_tile(self) -> None:
        i, attrs = self.instr, self.instr.attrs
        (to, barrier, *corner) = i.args
        target, source = self.memories[attrs["mem"]], self.memories[attrs["source"]]
        extents, pitches, box = attrs["extents"], attrs["pitches"], attrs["box"]
        self.rule(target.space == "shared" and target.swizzled, "{} is not swizzled memory",
                  target.name)
        self.rule(source.space == "global" and source.access == "r",
                  "{} is not global memory that is only read", source.name)
        self.rule(source.dtype == target.dtype, "copies {!r} to {!r}", source.dtype, target.dtype)
        size = target.dtype.bytes
        self.rule(2 <= len(corner) <= MAX_AXES, "a box of {} axes", len(corner))
        self.rule(len(corner) == len(extents) == len(pitches) == len(box),
                  "coordinates, extents, pitches and box differ in length")
        self.rule(all(0 < n <= MAX_BOX for n in box) and box[0] * size == SWIZZLE_LINE,
                  "a box is lines of {} bytes, at most {} along an axis", SWIZZLE_LINE, MAX_BOX)
        self.rule(math.prod(box) * size % SWIZZLE_REPEAT == 0,
                  "a box is a multiple of {} bytes", SWIZZLE_REPEAT)
        self.rule(pitches[0] == 1 and all(n > 0 and n * size % CHUNK == 0 for n in pitches[1:])
                  and attrs["source_off"] * size % CHUNK == 0,
                  "lines of {} do not begin at multiples of {} bytes", source.name, CHUNK)
        last = attrs["source_off"] + sum((e - 1) * p for e, p in zip(extents, pitches, strict=True))
        self.rule(all(e > 0 for e in extents) and attrs["source_off"] >= 0 and last < source.size,
                  "{}[{}] is outside its {} elements", source.name, last, source.size)
        self.index(to)
        self.one_lane(to, *corner)
        for x in corner:
            self.index(x)
        self.rule(math.gcd(self.known_multiple(to), attrs["off"]) * size % SWIZZLE_REPEAT == 0,
                  "a tile is not known to be aligned to the period of the swizzle")
        self._barrier_at(attrs["barriers"], barrier)
        cluster, apart, count = attrs["cluster"], attrs["apart"], self.kernel.cluster
        among = (cluster & (cluster - 1)) == (apart & (apart - 1)) == count % (cluster * apart) == 0
        self.rule(apart == 1 if cluster in (1, count) else among,
                  "reaches {} workgroups {} apart of a cluster of {}", cluster, apart, count)

    def check_team_barrier(self) -> None:
        count = self.instr.attrs["count"]
        self.rule(count % SUBGROUP == 0 and count <= math.prod(self.kernel.workgroup),
                  "a team of {} threads of {}", count, math.prod(self.kernel.workgroup))
        self.check_barrier(SUBGROUP)

    def check_cluster_barrier(self) -> None:
        self.check_barrier()

    def check_grid_barrier(self) -> None:
        """All workgroups must get here together. So only loops that share out the threads of the
        launch are around it, and those that have the same trips in each workgroup."""
        m, at = self._counters(), self.instr.args[0]
        self.rule(at.is_const and 0 <= at.number + self.instr.attrs["off"] < m.size,
                  "the index is not a known one of the {} elements of {}", m.size, m.name)
        self.check_barrier()
        for scope in self.open:
            i = scope.start
            alike = i.opcode == "loop" and (
                i.attrs["kind"] in ("grid", "block") or all(a.is_const for a in i.args))
            self.rule(alike, "not all workgroups of a launch may get past the {} around it",
                      i.opcode)
        self.rule(self.kernel.workgroup[1:] == (1, 1), "the workgroup has several axes")

    def _counters(self) -> Memory:
        m = self.memories[self.instr.attrs["mem"]]
        self.rule(m.space == "global" and m.dtype == u32 and m.access == "rw",
                  "{} is not global memory of u32 that is read and written", m.name)
        return m

    def check_grid_signal(self) -> None:
        m, at = self._counters(), self.instr.args[0]
        self.index(at)
        self.one_lane(at)
        last = at.number + self.instr.attrs["off"] if at.is_const else 0
        self.rule(0 <= last < m.size, "{}[{}] is outside its {} elements", m.name, last, m.size)
        self.signaled.add(m.name)

    def check_grid_wait(self) -> None:
        """Workgroups that run the same code side by side signal before any of them waits."""
        name = self.instr.attrs["mem"]
        self.rule(name in self.signaled, "no signal in {} comes before it", name)
        self.check_grid_signal()

    def check_thread_registers(self) -> None:
        self.rule(self.instr.attrs["count"] in REGISTERS, "{} registers", self.instr.attrs["count"])
        self.check_barrier(SUBGROUP * WARPGROUP)
