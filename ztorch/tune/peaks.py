"""Measures the peak rates of a processor, multiply-adds and reads, with kernels of our own IR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.abi import BUFFER_ALIGN
from ztorch.codegen.targets import Target
from ztorch.dtypes import f32
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import Limits
from ztorch.lower.locations import Location
from ztorch.lower.region_kernel import KernelStep
from ztorch.tune.kernel_benchmark import KernelBenchmark

ITERATIONS = 40_000  # of the multiply-add loop, so that the call overhead is negligible
READ_BYTES = 8 << 20  # bytes that each thread reads in total; small buffers are read repeatedly
ROUNDS = 9  # measurements of each kernel
# Bytes of a thread's buffer, from the first-level cache to memory.
BUFFER_SIZES = tuple(1 << k for k in (15, 18, 20, 21, 22, 24, 26))


@dataclass(frozen=True)
class Peaks:
    """The peak rates of a processor, for float32."""

    flops: float  # FLOP/s; a multiply-add counts as 2
    reads: tuple[tuple[int, float], ...]  # bytes of a buffer, and bytes/s of repeated reads of it

    def rate(self, nbytes: float) -> float:
        """The bytes per second that are read from buffers of a total size: interpolated linearly
        in logarithms."""
        sizes, rates = (np.log([pair[k] for pair in self.reads]) for k in (0, 1))
        return float(np.exp(np.interp(np.log(max(nbytes, 1)), sizes, rates)))

    def seconds(self, flops: float, nbytes: float) -> float:
        """The minimum time for work on buffers that were used just before."""
        return max(flops / self.flops, nbytes / self.rate(nbytes))


def measured_peaks(target: Target, threads: int) -> Peaks:
    """Measures the peak rates of this machine, which takes some tenths of a second.

    Args:
        target: The target to compile for; this machine must run it.
        threads: The worker threads that share the work.
    """
    kernel, flops = fma_kernel(target.limits, threads)
    fma = flops / _seconds(kernel, target, threads)
    rates = []
    for nbytes in BUFFER_SIZES:
        kernel, read = read_kernel(target.limits, threads, nbytes * threads)
        rates.append((nbytes * threads, read / _seconds(kernel, target, threads)))
    return Peaks(fma, tuple(rates))


def _seconds(kernel: Kernel, target: Target, threads: int) -> float:
    x, y = (m.size * m.dtype.bytes for m in kernel.memories)
    second = -(-x // BUFFER_ALIGN) * BUFFER_ALIGN
    step = KernelStep(kernel, (Location("arena", 0, x), Location("arena", second, y)),
                      (False, True), cycles=1e12)  # enough to wake all workers
    benchmark = KernelBenchmark([step], target, threads)
    [seconds] = benchmark.seconds(ROUNDS, statistic=min)  # the least disturbed measurement
    return seconds


def fma_kernel(limits: Limits, threads: int) -> tuple[Kernel, float]:
    """A kernel with only multiply-adds in registers, and its FLOPs. The 12 independent chains hide
    the latency of two units with 4 cycles, and leave registers to spare."""
    lanes, chains = limits.lanes(f32), 12
    b = Builder("fma_peak")
    b.memory("x", f32, 2 * lanes)
    b.memory("y", f32, threads * lanes, access="w")
    factor, term = b.load("x", 0, lanes=lanes), b.load("x", lanes, lanes=lanes)
    sums = [b.var(f32, lanes, init=0.1 * k) for k in range(chains)]
    with b.loop(0, ITERATIONS):
        for s in sums:
            b.set(s, b.fma(b.get(s), factor, term))
    _store_sums(b, sums, lanes)
    return b.kernel(), 2.0 * lanes * chains * ITERATIONS * threads


def read_kernel(limits: Limits, threads: int, nbytes: int) -> tuple[Kernel, float]:
    """A kernel in which each thread sums its share of a buffer of `nbytes`, and the bytes that it
    reads."""
    lanes, chains = limits.lanes(f32), 8
    step = lanes * chains
    part = max(1, nbytes // (4 * step * threads)) * step
    b = Builder("read")
    b.memory("x", f32, part * threads)
    b.memory("y", f32, threads * lanes, access="w")
    passes = max(1, READ_BYTES // (4 * part))
    first = b.mul(b.identity("worker"), part)
    sums = [b.var(f32, lanes, init=0.0) for _ in range(chains)]
    with b.loop(0, passes), b.loop(0, part, step) as i:
        at = b.add(first, i)
        for k, s in enumerate(sums):
            b.set(s, b.add(b.get(s), b.load("x", at, off=k * lanes, lanes=lanes)))
    _store_sums(b, sums, lanes)
    return b.kernel(), 4.0 * part * threads * passes


def _store_sums(b: Builder, sums: list[Any], lanes: int) -> None:
    """Stores the sum of all chains, so that none of them is dead code."""
    total = b.get(sums[0])
    for s in sums[1:]:
        total = b.add(total, b.get(s))
    b.store("y", b.mul(b.identity("worker"), lanes), total)
