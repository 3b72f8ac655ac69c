"""Predicts the time of a kernel on a GPU, and its bottleneck, from its work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ztorch.ir.kernel import Grid, Kernel
from ztorch.machines.gpus import Gpu
from ztorch.performance.accesses import LINE, SECTOR, AccessCost
from ztorch.performance.latency import group_cycles, handed_cycles
from ztorch.performance.overlap import IN_STEP, overlapped
from ztorch.performance.register_use import estimated_registers
from ztorch.performance.ring_clock import rounds_of
from ztorch.performance.walk import work_of
from ztorch.performance.work import WRITES, Work

# Parts of a unit of which each of its schedulers has a share: a subgroup uses that of one of them.
SCHEDULED = ("issue", "float32", "float64", "integers", "special")
SAMPLED = 4  # workgroups that share tiles and are looked at: neighbors have other shares
RESERVED_SHARED = 1024  # bytes of shared memory of each workgroup that NVIDIA's driver reserves


@dataclass(frozen=True)
class KernelPrediction:
    """The predicted time of one launch, and the quantities that explain it."""

    name: str  # of the kernel
    gpu: str  # name of the GPU
    groups: int  # workgroups of the launch
    threads: int  # per workgroup
    registers: int  # per thread
    spilled: int | None  # bytes that a thread keeps in memory for lack of registers, if known
    shared_bytes: int  # per workgroup
    resident_groups: int  # workgroups that a unit runs at the same time
    occupancy: float  # their share of the threads that a unit can hold
    flops: float  # of the launch
    peak: float  # FLOP/s of the fastest units that it multiplies with
    memory_bytes: float  # that it reads from memory or writes to it
    l2_bytes: float  # between the shared cache and the units
    shared_traffic: float  # bytes between shared memory and threads
    seconds: float  # of the launch, without the gap before it
    work_seconds: float  # the same if all units had equal shares of the work and never waited
    bound: str  # name of the bottleneck
    parts: Mapping[str, float]  # seconds of each possible bottleneck
    accesses: tuple[AccessCost, ...]  # to global and shared memory
    mix: Mapping[str, int] = field(default_factory=dict)  # opcodes in one trip of the main loop
    copies_pending: int = 0  # groups of copies in flight during a wait for others
    at_once: bool = False  # whether all workgroups run at once: no launch is early, nor the next
    joined: tuple[KernelPrediction, ...] = ()  # its parts, if workgroups are divided among several

    @property
    def matrix_per_load(self) -> float:
        """Matrix products per loaded matrix in the main loop, or 0."""
        loads = self.mix.get("mma_load", 0)
        return self.mix.get("mma", 0) / loads if loads else 0.0

    @property
    def transactions(self) -> float:
        """Lines of 128 bytes that a request for global memory touches, on average."""
        accesses = [a for a in self.accesses if a.space == "global"]
        requests = sum(a.requests for a in accesses)
        return sum(a.lines for a in accesses) / requests if requests else 0.0

    @property
    def conflicts(self) -> float:
        """How many times longer shared memory is occupied than without bank conflicts."""
        least = sum(a.least_wavefronts for a in self.accesses)
        return sum(a.wavefronts for a in self.accesses) / least if least else 1.0

    def to_json(self) -> dict[str, Any]:
        """The record as data."""
        return {
            "kernel": self.name, "gpu": self.gpu, "groups": self.groups, "threads": self.threads,
            "registers": self.registers, "spilled_bytes": self.spilled,
            "shared_bytes": self.shared_bytes, "resident_groups": self.resident_groups,
            "occupancy": self.occupancy, "flops": self.flops, "memory_bytes": self.memory_bytes,
            "l2_bytes": self.l2_bytes, "shared_traffic": self.shared_traffic,
            "seconds": self.seconds, "bound": self.bound, "parts": dict(self.parts),
            "transactions": self.transactions, "conflicts": self.conflicts,
            "main_loop": dict(self.mix), "matrix_per_load": self.matrix_per_load,
            "copies_pending": self.copies_pending,
            "joined": [p.to_json() for p in self.joined]}


def predict_kernel(kernel: Kernel, grid: Grid, gpu: Gpu, *, cached: bool = False,
                   registers: int | None = None, spilled: int | None = None,
                   part: range | None = None) -> KernelPrediction:
    """The time of one launch.

    Args:
        kernel: The kernel of one thread, in words of its target.
        grid: The workgroups of the launch.
        gpu: The GPU that it runs on.
        cached: Whether its operands and results are in the shared cache. Default: `False`.
        registers: The registers per thread that the assembler reports. Default: `None`, which
            estimates them.
        spilled: Bytes that a thread spills. Default: `None`, if that is unknown.
        part: Workgroups along x, if only they are predicted, because others run other code.
            Default: `None`.

    Examples:
        >>> from ztorch.dtypes import f32, i32
        >>> from ztorch.ir.builder import Builder
        >>> from ztorch.machines.gpus import gpu
        >>> n, b = 1 << 28, Builder("copy", i32)
        >>> _ = b.memory("x", f32, n), b.memory("y", f32, n, access="w")
        >>> b.workgroup = (256, 1, 1)
        >>> at = b.add(b.mul(b.identity("grid_id"), 256), b.identity("block_id"))
        >>> b.store("y", at, b.load("x", at))
        >>> p = predict_kernel(b.kernel(), (n // 256, 1, 1), gpu("H200"))
        >>> p.bound, p.transactions, p.memory_bytes / n
        ('memory', 1.0, 8.0)
    """
    groups, group = math.prod(grid), None
    if part is not None:
        groups, group = len(part), (part[len(part) // 2], 0, 0)
    elif "copy_tile" in kernel.opcodes():  # loops over tiles: no workgroup has more than the first
        group = (0, 0, 0)
    work, threads = work_of(kernel, grid, gpu.subgroup, group), math.prod(kernel.workgroup)
    rounds, mean = rounds_of(kernel, work.trips)
    full = groups * mean / rounds  # workgroups of `rounds` tiles each that do all the work
    used = registers or estimated_registers(kernel)
    shared = _shared_bytes(kernel)
    resident = resident_groups(gpu, threads, used, shared)
    busiest = math.ceil(groups / gpu.units)  # number of workgroups of the busiest unit
    l2, read, written = _traffic(kernel, work, groups, full, rounds, resident, gpu)
    clock = gpu.clock_of(groups)
    cycles = unit_cycles(work, gpu)
    subgroups = busiest * math.ceil(threads / gpu.subgroup)
    uneven = math.ceil(subgroups / gpu.issue) * gpu.issue / subgroups
    parts = {name: c * busiest * (uneven if name in SCHEDULED else 1.0) / clock
             for name, c in cycles.items()}
    alone = l2 * busiest / groups / gpu.l2_unit_bytes / clock  # of the busiest unit
    parts["l2"] = max(l2 / (gpu.l2_gb_s * 1e9), alone)
    parts["memory"] = 0.0 if cached else gpu.memory_seconds(read, written)
    independent = min(resident, busiest) * math.ceil(threads / gpu.subgroup) // (
        1 if "mbarrier_init" in kernel.opcodes() else IN_STEP)
    used_parts = overlapped(_in_turn(parts), independent)
    waves = math.ceil(busiest / resident)
    parts["latency"] = waves * group_cycles(kernel, work, gpu, groups, cached) / clock
    if "grid_wait" in kernel.opcodes():
        parts["latency"] = _shared_tiles(kernel, work, grid, gpu, cached) / clock
    if _in_stages(kernel, groups):  # what a stage reads does not hide the latency of others
        parts["latency"] += alone
    even = {name: c * full / gpu.units / clock for name, c in cycles.items()}
    even |= {"l2": l2 / (gpu.l2_gb_s * 1e9), "memory": parts["memory"]}
    bound = max(parts, key=lambda name: parts[name])
    wavefronts = sum(a.wavefronts for a in work.accesses.values())
    return KernelPrediction(
        kernel.name, gpu.name, groups, threads, used, spilled, shared, resident,
        min(1.0, min(resident, busiest) * threads / gpu.threads), work.flops * full,
        max(gpu.f32_rate, *(gpu.matrix_rate(of) for of in (
            "", *work.matrix_flops, *work.async_flops))),
        0.0 if cached else read + written, l2, wavefronts * LINE * full,
        max(used_parts, parts["latency"]), overlapped(_in_turn(even), independent), bound, parts,
        tuple(a for _, a in sorted(work.accesses.items())),
        dict(work.mix.most_common()), work.copies_pending,
        bool({"grid_barrier", "grid_wait"} & kernel.opcodes()))


def _in_turn(parts: Mapping[str, float]) -> list[float]:
    """The times of parts that an instruction does not use at the same time as another."""
    return [max(parts[name] for name in SCHEDULED), parts["load/store"], parts["tensor cores"],
            max(parts["l2"], parts["memory"])]


def _shared_tiles(kernel: Kernel, first: Work, grid: Grid, gpu: Gpu, cached: bool) -> float:
    """The most cycles of the first workgroup and a few others that share tiles. Where each has part
    of one tile, one is handed over while its reader waits."""
    groups, step = math.prod(grid), kernel.cluster
    others = [work_of(kernel, grid, gpu.subgroup, (n, 0, 0)) for n in (
        *range(step, min(groups, SAMPLED * step), step), groups // 2)]
    late = handed_cycles(kernel, gpu, groups) if all(
        len(ways) == 1 for ways in first.each_trip.values()) else 0.0
    return late + max(group_cycles(kernel, work, gpu, groups, cached) for work in (first, *others))


def _in_stages(kernel: Kernel, groups: int) -> bool:
    """Whether workgroups wait for all others of the launch."""
    return "grid_barrier" in kernel.opcodes() or 1 < groups == kernel.cluster


def resident_groups(gpu: Gpu, threads: int, registers: int, shared_bytes: int) -> int:
    """The number of workgroups that a unit runs at the same time, at least one.

    >>> from ztorch.machines.gpus import gpu
    >>> resident_groups(gpu("H200"), 256, 128, 0), resident_groups(gpu("H200"), 256, 32, 100 << 10)
    (2, 2)
    """
    rounded = math.ceil(threads / gpu.subgroup) * gpu.subgroup
    most = min(gpu.groups, gpu.threads // rounded, gpu.registers // (registers * rounded))
    if shared_bytes:
        most = min(most, gpu.shared_bytes // (shared_bytes + RESERVED_SHARED))
    return max(1, most)


def unit_cycles(work: Work, gpu: Gpu) -> dict[str, float]:
    """Cycles for which one workgroup occupies each part of a unit."""
    threads = gpu.subgroup
    slots = work.slots
    moved = slots["add"] * gpu.moved_additions
    cycles = {
        "issue": slots.total() / gpu.issue,
        "float32": slots["f32"] * threads / gpu.f32_lanes + moved * threads / gpu.int_lanes,
        "float64": slots["f64"] * threads / gpu.f64_lanes,
        "integers": (slots["int"] + slots["add"] - moved) * threads / gpu.int_lanes,
        "special": slots["special"] * threads / gpu.special_lanes,
        "load/store": sum(a.wavefronts or a.lines for a in work.accesses.values()),
        "tensor cores": 0.0,
    }
    clock = gpu.clock_ghz * 1e9
    for dtype, flops in work.matrix_flops.items():
        rate = gpu.matrix_rate(dtype) * gpu.mma_share / gpu.units / clock
        cycles["tensor cores"] += flops / (rate or gpu.f32_lanes * 2)
    for dtype, flops in work.async_flops.items():
        rate = gpu.matrix_rate(dtype) / gpu.units / clock
        cycles["tensor cores"] += flops / (rate or gpu.f32_lanes * 2)
    return cycles


def _shared_bytes(kernel: Kernel) -> int:
    return sum(m.size * m.dtype.bytes for m in kernel.memories if m.space == "shared")


def _traffic(kernel: Kernel, work: Work, groups: int, full: float, rounds: float, resident: int,
             gpu: Gpu) -> tuple[float, float, float]:
    """The bytes between units and the L2 cache, and those that it reads from memory and writes.

    They are those of `full` workgroups, each of which runs `rounds` tiles. Lines that a workgroup
    reads again hit the L1 cache if that holds all reads of the unit's workgroups. Lines that other
    workgroups touch again hit the L2 cache if that holds the buffer, or if they run in the same
    wave. A larger buffer that each wave may touch entirely is loaded once per wave.
    """
    sectors: Counter[tuple[str, bool]] = Counter()
    for a in work.accesses.values():
        sectors[a.mem, a.opcode in WRITES] += a.sectors  # type: ignore[assignment]
    shared = _shared_bytes(kernel) * resident
    room = gpu.cache_bytes - shared * (gpu.cache_bytes > gpu.shared_bytes)
    read = sum(t.count for (_, writes), t in work.footprint.items() if not writes)
    held = read * SECTOR * resident <= max(room, 0)
    wave = min(groups, gpu.units * resident)
    l2, memory = 0.0, [0.0, 0.0]  # read, written
    for (name, writes), touched in work.footprint.items():
        m = kernel.memory(name)
        size = float(m.size * m.dtype.bytes)
        each = touched.count * SECTOR
        l2 += (each if held else max(sectors[name, writes] * SECTOR, each)) * full
        if name in work.made_here and not writes:
            continue  # an L2 hit
        again = size > gpu.l2_bytes and each / rounds * wave >= size
        memory[writes] += min(size, each * full) * (
            math.ceil(groups / wave) * rounds if again else 1)
    return l2, memory[False], memory[True]
