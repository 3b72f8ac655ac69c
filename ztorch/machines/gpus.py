"""The table of GPUs, with the numbers of the performance model.

Units, clocks, sizes, memory bandwidth and rates of matrix instructions come from the makers' data
sheets. Latencies, bandwidths of shared caches, shares and gaps between launches are rounded from
published measurements (for NVIDIA's chips Luo et al. 2024, "Benchmarking and Dissecting the Nvidia
Hopper GPU Architecture", and Chips and Cheese), or guesses if a comment says so. Predictions were
compared with measured kernels on the H200 only. Limits of threads and workgroups come from the CUDA
programming guide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ztorch.errors import unknown
from ztorch.machines.unit_rates import UnitRates

KIB, MIB = 1 << 10, 1 << 20

# Edges between the launches before a barrier and those behind it, up to which each of these is put
# in place early (programmatic dependent launch). More are joined in one node of a graph, behind
# which no kernel can start early. A guess.
EARLY_EDGES = 32


@dataclass(frozen=True)
class Gpu:
    """A GPU in the performance model. A unit is a multiprocessor, compute unit or core."""

    name: str  # its product name
    targets: tuple[str, ...]  # the targets whose code it runs, the fastest first
    units: int  # multiprocessors, compute units or cores
    clock_ghz: float  # boost clock of the units, for which `matrix_tflops` are
    memory_gb_s: float  # memory bandwidth, from the data sheet
    l2_bytes: int  # size of the L2 cache, which all units share
    l2_gb_s: float  # bandwidth of the L2 cache
    shared_bytes: int  # shared memory of a unit, for all its workgroups
    cache_bytes: int  # first-level cache of a unit, including shared memory if they are one
    matrix_tflops: tuple[tuple[str, float], ...]  # dense TFLOP/s of matrix instructions, by dtype
    f32_lanes: int = 128  # float32 multiply-adds that a unit starts in a cycle
    f64_lanes: int = 2  # float64 multiply-adds that a unit starts in a cycle
    int_lanes: int = 64  # integer operations that a unit starts in a cycle
    special_lanes: int = 16  # roots, reciprocals and conversions that a unit starts in a cycle
    issue: int = 4  # instructions of subgroups that a unit starts in a cycle
    subgroup: int = 32  # threads that run in lockstep
    registers: int = 64 << 10  # 32-bit registers of a unit
    threads: int = 2048  # resident threads of a unit, at most
    groups: int = 32  # resident workgroups of a unit, at most
    mma_share: float = 1.0  # share of matrix_tflops that a subgroup's instructions reach
    held_ghz: float = 0.0  # clock that all units hold while they multiply; 0: the boost clock
    copy_share: float = 0.9  # share of memory_gb_s that a copy reaches
    read_share: float = 0.9  # share of memory_gb_s at which it is read
    write_share: float = 0.9  # the same of writes; they alternate with reads
    memory_cycles: int = 480  # latency of a load from memory
    l2_cycles: int = 262  # latency of a load that hits the L2 cache
    l2_unit_bytes: int = 64  # bytes that a unit alone reads from the L2 cache in a cycle
    shared_cycles: int = 30  # latency of a load from shared memory
    arithmetic_cycles: int = 4  # latency of an arithmetic instruction
    mma_cycles: int = 33  # latency of a matrix instruction
    tile_copy_cycles: int = 250  # latency that a tile copy adds to that of a load; a guess
    busy_cycles: int = 950  # latency of a load from memory while all units load
    barrier_cycles: int = 20  # cost of a barrier at which all threads arrive together
    cluster_cycles: int = 600  # cost of a barrier of a cluster that orders global memory; a guess
    launch_barrier_cycles: int = 2000  # the same of all workgroups of a launch; a guess
    signal_cycles: int = 1000  # until a workgroup sees the signal of another one; a guess
    launch_us: float = 0.9  # from the end of a kernel to the start of the next one
    early_launch_us: float = 0.5  # the same, if the next one was started early
    branch_us: float = 1.25  # between the starts of kernels that do not wait for one another
    step_us: float = 15.0  # of a call without its kernels: from the replay to the end of the wait

    def clock_of(self, groups: int) -> float:
        """Cycles per second while so many workgroups run: each busy unit takes its share of the
        power for which clocks fall.

        >>> gpu("H200").clock_of(1) > gpu("H200").clock_of(66) > gpu("H200").clock_of(1000)
        True
        """
        busy = min(1.0, groups / self.units)
        return 1e9 * (self.clock_ghz + busy * ((self.held_ghz or self.clock_ghz) - self.clock_ghz))

    @property
    def held_share(self) -> float:
        """Share of the boost clock that all units hold while they multiply."""
        return self.clock_of(self.units) / self.clock_ghz * 1e-9

    def memory_seconds(self, read: float, written: float) -> float:
        """Seconds in which bytes are read from memory and written to it."""
        return (read / self.read_share + written / self.write_share) / self.memory_gb_s * 1e-9

    @property
    def copy_rate(self) -> float:
        """Bytes per second that a copy reads and writes."""
        return self.memory_gb_s * 1e9 * self.copy_share

    def matrix_rate(self, dtype: str) -> float:
        """FLOP/s of matrix instructions for a dtype or "tf32"; 0 if there are none."""
        return dict(self.matrix_tflops).get(dtype, 0.0) * 1e12

    @property
    def f32_rate(self) -> float:
        """FLOP/s of float32 multiply-adds of threads."""
        return self.units * self.f32_lanes * 2 * self.clock_ghz * 1e9

    @property
    def moved_additions(self) -> float:
        """Share of the additions of 32-bit integers that the units of float32 start. NVIDIA's
        assembler writes them as products (IMAD.IADD) where integers have fewer units: 40 of 70 in
        dropout on sm_75 to sm_100, 0.55 to 0.58 in attention, and none on sm_120."""
        return 0.5 if self.targets[0].startswith("cuda:") and self.int_lanes == 64 else 0.0

    @property
    def rates(self) -> UnitRates:
        """The rates of one unit per cycle."""
        cycles = self.units * self.clock_ghz * 1e9
        products = self.matrix_rate("f16") / 2 / cycles
        tf32 = self.matrix_rate("tf32") / 2 / cycles
        return UnitRates(products, products * self.mma_share, tf32, tf32 * self.mma_share,
                         self.f32_lanes, self.l2_gb_s * 1e9 / cycles, self.copy_rate / cycles,
                         copy_cycles=self.busy_cycles + self.tile_copy_cycles)

    def __str__(self) -> str:
        return self.name


GPUS: dict[str, Gpu] = {row.name: row for row in (
    # mma.sync reaches 63 % of the peak; only wgmma reaches all. The bandwidth of the L2 cache is an
    # estimate: it is what products in tiles of 128x256, without clusters, read at 610 TFLOP/s.
    # Measured on an H200 on 28 November 2026, and guesses on other rows:
    # - `held_ghz`: with it, products of 4096 and 8192 in 16 bits and float32 take what they took.
    #   cuBLAS' product of random numbers ran at 687 TFLOP/s there, on other cards at 769 to 798,
    #   and at 894 on zeros, which need less power.
    # - `read_share`: sums of rows read 4.39 TB/s. `write_share`: with it, softmax and layer norm,
    #   which write what they read, move 4.09 TB/s.
    # - `launch_us`: 100 kernels in a row take 0.94 us each. `step_us`: a call of one takes 15.7 us.
    #   `branch_us`: what each further kernel between two barriers adds to steps of small models.
    # `early_launch_us` is a guess on all rows.
    Gpu("H200", ("cuda:sm_90a", "cuda:sm_90"), 132, 1.98, 4800, 60 * MIB, 7000, 228 * KIB,
        256 * KIB, (("f16", 989.0), ("bf16", 989.0), ("tf32", 494.0), ("f64", 67.0)),
        f64_lanes=64, mma_share=0.63, held_ghz=1.55, read_share=0.915, write_share=0.8),
    # The same chip with older memory and less cache.
    Gpu("H100", ("cuda:sm_90a", "cuda:sm_90"), 132, 1.98, 3350, 50 * MIB, 7000, 228 * KIB,
        256 * KIB, (("f16", 989.0), ("bf16", 989.0), ("tf32", 494.0), ("f64", 67.0)),
        f64_lanes=64, mma_share=0.63, held_ghz=1.55, read_share=0.915, write_share=0.8),
    # The SXM module with 80 GB. The L2 cache delivers 5,120 bytes per cycle.
    Gpu("A100", ("cuda:sm_80",), 108, 1.41, 2039, 40 * MIB, 7200, 164 * KIB, 192 * KIB,
        (("f16", 312.0), ("bf16", 312.0), ("tf32", 156.0), ("f64", 19.5)), f32_lanes=64,
        f64_lanes=32, memory_cycles=466),
    # The SXM module. Its code has the matrix instructions of sm_80, which are assumed to be as fast
    # as on a Hopper. The L2 latency is that of the nearer half (Chips and Cheese); its bandwidth is
    # a guess.
    Gpu("B200", ("cuda:sm_100",), 148, 1.965, 8000, 126 * MIB, 12000, 228 * KIB, 256 * KIB,
        (("f16", 2250.0), ("bf16", 2250.0), ("tf32", 1125.0), ("f64", 37.0)), f64_lanes=64,
        mma_share=0.31, memory_cycles=640, l2_cycles=295),
    # Cards with low memory bandwidth. The bandwidths of their L2 caches are guesses: RTX 4090's,
    # scaled by units and clock.
    # T4: its code uses no matrix instructions. It does not sustain this clock with 70 W.
    Gpu("T4", ("cuda:sm_75",), 40, 1.59, 320, 4 * MIB, 1000, 64 * KIB, 96 * KIB,
        (("f16", 65.1),), f32_lanes=64, threads=1024, groups=16),
    Gpu("A40", ("cuda:sm_86",), 84, 1.74, 696, 6 * MIB, 2250, 100 * KIB, 128 * KIB,
        (("f16", 149.7), ("bf16", 149.7), ("tf32", 74.8)), threads=1536, groups=16),
    # On GeForce cards, float32 sums halve the rate of matrix products; these are the halved rates.
    Gpu("RTX 3090", ("cuda:sm_86",), 82, 1.695, 936, 6 * MIB, 2150, 100 * KIB, 128 * KIB,
        (("f16", 71.0), ("bf16", 71.0), ("tf32", 35.6)), threads=1536, groups=16),
    # It does not sustain this clock with 72 W.
    Gpu("L4", ("cuda:sm_89",), 58, 2.04, 300, 48 * MIB, 1800, 100 * KIB, 128 * KIB,
        (("f16", 121.0), ("bf16", 121.0), ("tf32", 60.0)), threads=1536, groups=24,
        memory_cycles=541, l2_cycles=273),
    Gpu("RTX 4090", ("cuda:sm_89",), 128, 2.52, 1008, 72 * MIB, 5000, 100 * KIB, 128 * KIB,
        (("f16", 165.2), ("bf16", 165.2), ("tf32", 82.6)), threads=1536, groups=24,
        memory_cycles=541, l2_cycles=273),
    Gpu("RTX 5090", ("cuda:sm_120",), 170, 2.407, 1792, 96 * MIB, 6300, 100 * KIB, 128 * KIB,
        (("f16", 209.5), ("bf16", 209.5), ("tf32", 104.8)), int_lanes=128, threads=1536, groups=24,
        memory_cycles=541, l2_cycles=273),
    # A unit starts one instruction of each of its four SIMDs in a cycle. The L2 fields describe the
    # last-level cache. Latencies other than that of memory are guesses.
    Gpu("MI300X", ("rocm:gfx942",), 304, 2.1, 5300, 256 * MIB, 11900, 64 * KIB, 32 * KIB,
        (("f16", 1307.4), ("bf16", 1307.4), ("tf32", 653.7), ("f32", 163.4), ("f64", 163.4)),
        f32_lanes=128, f64_lanes=64, int_lanes=64, subgroup=64, registers=128 << 10, copy_share=0.8,
        memory_cycles=1300, l2_cycles=500, shared_cycles=64, mma_cycles=32, launch_us=3.0,
        step_us=20.0),
    # One die. The L2 cache delivers 4,096 bytes per cycle. The latencies are those of MI300X, a
    # guess.
    Gpu("MI210", ("rocm:gfx90a",), 104, 1.7, 1638, 8 * MIB, 6960, 64 * KIB, 16 * KIB,
        (("f16", 181.0), ("bf16", 181.0), ("f32", 45.3), ("f64", 45.3)), f32_lanes=64, f64_lanes=64,
        int_lanes=64, subgroup=64, registers=128 << 10, copy_share=0.8, memory_cycles=1300,
        l2_cycles=500, shared_cycles=64, mma_cycles=32, launch_us=3.0, step_us=20.0),
    # f32_lanes is half of the data sheet's, which counts two instructions per cycle that code
    # seldom reaches. The L2 bandwidth and the latencies are guesses.
    Gpu("RX 7900 XTX", ("rocm:gfx1100",), 96, 2.5, 960, 96 * MIB, 3000, 64 * KIB, 32 * KIB,
        (("f16", 122.8), ("bf16", 122.8)), f32_lanes=64, int_lanes=64, issue=2,
        registers=96 << 10, groups=16, memory_cycles=700, l2_cycles=400, shared_cycles=60,
        launch_us=3.0, step_us=20.0),
    # As above; the L2 bandwidth is that of the row above, scaled by units.
    Gpu("RX 9070 XT", ("rocm:gfx1201",), 64, 2.97, 640, 64 * MIB, 2400, 64 * KIB, 32 * KIB,
        (("f16", 195.0), ("bf16", 195.0)), f32_lanes=64, int_lanes=64, issue=2,
        registers=96 << 10, groups=16, memory_cycles=700, l2_cycles=400, shared_cycles=60,
        launch_us=3.0, step_us=20.0),
    # 38 cores. Apple does not publish registers, threads, caches and latencies: these are guesses
    # and measurements of third parties. Matrix instructions run at the rate of threads.
    Gpu("M2 Max", ("metal",), 38, 1.398, 400, 48 * MIB, 900, 60 * KIB, 8 * KIB,
        (("f16", 13.6), ("f32", 13.6)), int_lanes=64, registers=52 << 10, threads=3072, groups=32,
        memory_cycles=500, launch_us=5.0, step_us=60.0),
)}


_OTHER_CARDS = "D|Ti|Super|Laptop|Max-Q"  # suffixes of names that denote another card


def gpu(name: str) -> Gpu:
    """The row of a GPU by its name in any case.

    >>> gpu("h200").matrix_rate("bf16")
    989000000000000.0
    """
    for row in GPUS.values():
        if row.name.lower() == name.lower():
            return row
    raise unknown("GPU", name, GPUS)


def gpu_by_short_name(name: str) -> Gpu | None:
    """The row of a GPU by its name without spaces, or without the name of its series; or None.

    >>> gpu_by_short_name("rtx4090").name, gpu_by_short_name("4090").name, gpu_by_short_name("cpu")
    ('RTX 4090', 'RTX 4090', None)
    """
    letters = re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("nvidia")
    return next((row for row in GPUS.values() if letters in (
        row.name.lower().replace(" ", ""), row.name.lower().removeprefix("rtx "))), None)


def gpus_of(target: str) -> tuple[Gpu, ...]:
    """The GPUs that run the code of a target. Those whose best target it is come first. CUDA C++
    for a chip runs where other code for it does.

    >>> [g.name for g in gpus_of("cuda:sm_89")], gpus_of("cuda:c:sm_80")[0].name
    (['L4', 'RTX 4090'], 'A100')
    """
    target = target.replace("cuda:c:", "cuda:")
    running = [g for g in GPUS.values() if target in g.targets]
    return tuple(sorted(running, key=lambda g: g.targets.index(target)))


def gpu_of_device(device_name: str) -> Gpu | None:
    """The row of a GPU by its driver's name for it; None if there is no row.

    >>> gpu_of_device("NVIDIA A100-SXM4-80GB").name, gpu_of_device("NVIDIA L40S")
    ('A100', None)
    >>> gpu_of_device("NVIDIA GeForce RTX 3090 Ti"), gpu_of_device("NVIDIA GeForce RTX 5090 Laptop")
    (None, None)
    """
    return next((g for g in GPUS.values() if re.search(
        rf"\b{re.escape(g.name)}\b(?! ({_OTHER_CARDS})\b)", device_name, re.IGNORECASE)), None)
