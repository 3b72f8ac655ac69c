"""Measures the times of kernels that compute the same with different schedules."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from ztorch.abi import BUFFER_ALIGN
from ztorch.codegen.targets import Target
from ztorch.compile.cpu_code import cpu_code
from ztorch.compile.description import describe_program
from ztorch.compile.watch import Watch
from ztorch.dtypes import DType, to_storage
from ztorch.host.settings import using
from ztorch.lower.barriers import LoopSpan
from ztorch.lower.locations import SLOTS, Location
from ztorch.lower.params import Params
from ztorch.lower.plan import Plan
from ztorch.lower.region_kernel import KernelStep
from ztorch.runtime.executable import Executable

CALL_SECONDS = 3e-4  # duration of a timed call with many runs, since clocks have a step of 1e-6
CYCLES_PER_SECOND = 3e9  # assumed clock, to choose the number of runs in a call
MAX_RUNS = 2000  # runs of a kernel in a call
MIN_ROUNDS = 3  # rounds of all kernels before slow ones are dropped
SLOW_RATIO = 1.15  # kernels are slow if they take more than this multiple of the fastest time
BENCHMARK_SECONDS = 2.0  # time limit, once all kernels have run MIN_ROUNDS times


class KernelBenchmark:
    """A program with a function for each kernel, which runs it many times on the same buffers.

    Args:
        steps: A kernel with different schedules, on the same buffers.
        target: The target, which this machine must run.
        threads: The largest number of workers that share a kernel.
    """

    def __init__(self, steps: Sequence[KernelStep], target: Target, threads: int):
        locations, arena = compact(steps[0].locations)
        self.runs = max(1, min(MAX_RUNS, int(CALL_SECONDS * CYCLES_PER_SECOND
                                             / max(steps[0].cycles, 1.0))))
        alone = [replace(step, locations=locations, barrier=True, skipped=False) for step in steps]
        plans = {f"s{k}": Plan(f"s{k}", [], [], [step], arena, [], [LoopSpan(0, 1, self.runs)])
                 for k, step in enumerate(alone)}
        spec = describe_program("race", target, plans, Params(target.limits))
        with using(debug=(), dump=None):
            code = cpu_code(plans, target, spec, Watch()).code
        self.program = Executable(spec, code, threads=threads)
        self.calls = [self.program.bind(name) for name in plans]
        self.workers = max(call.workers for call in self.calls)  # workers that share a kernel
        self._initial = initial_values(steps[0], locations, arena)
        self._restores = any(m.access == "rw" for m in steps[0].kernel.memories
                             if m.space == "global")
        self.program.arena[:arena] = self._initial

    def seconds(self, rounds: int,
                statistic: Callable[[list[float]], float] = median) -> list[float]:
        """Measures the seconds of one run of each kernel.

        Each round runs all kernels in sequence, so that other load on the machine affects all of
        them. Clearly slow ones are dropped after some rounds.

        Args:
            rounds: The number of rounds.
            statistic: The function of a kernel's times that is returned. Default: the median.
        """
        clock = time.perf_counter if self.workers > 1 else time.thread_time
        times: list[list[float]] = [[] for _ in self.calls]
        running = set(range(len(self.calls)))
        end = time.perf_counter() + BENCHMARK_SECONDS
        for call in self.calls:
            call()  # warms up pages and caches
        for number in range(rounds):
            if number >= MIN_ROUNDS and time.perf_counter() > end:
                break
            for k in sorted(running):
                if self._restores:  # else values would grow from run to run
                    self.program.arena[:len(self._initial)] = self._initial
                start = clock()
                self.calls[k]()
                times[k].append((clock() - start) / self.runs)
            if number + 1 >= MIN_ROUNDS:
                best = min(min(t) for t in times)
                running = {k for k in running if min(times[k]) <= best * SLOW_RATIO}
        return [statistic(t) for t in times]


def compact(locations: Sequence[Location],
            align: int = BUFFER_ALIGN) -> tuple[tuple[Location, ...], int]:
    """New locations one after another in the arena, and its bytes. Locations that overlap keep
    their distances."""
    groups: list[list[Location]] = []  # groups of overlapping locations
    for place in locations:
        fixed = replace(place, strides=())
        joined = [g for g in groups if any(fixed.overlaps(other) for other in g)]
        groups = [g for g in groups if g not in joined]
        groups.append([fixed, *(other for g in joined for other in g)])
    moved: dict[Location, Location] = {}
    end = 0
    for group in groups:
        begins = [place.start if place.space in SLOTS else place.offset for place in group]
        low = min(begins)
        size = max(begin - low + place.size for begin, place in zip(begins, group, strict=True))
        for begin, place in zip(begins, group, strict=True):
            moved[place] = Location("arena", end + begin - low, place.size)
        end += -(-size // align) * align
    return tuple(moved[replace(place, strides=())] for place in locations), end


def initial_values(step: KernelStep, locations: Sequence[Location], arena: int) -> np.ndarray:
    """Initial values of the buffers: floats of moderate size, and zeros for integers, which may be
    indices."""
    block = np.zeros(arena, np.uint8)
    rng = np.random.default_rng(0)
    memories = [m for m in step.kernel.memories if m.space == "global"]
    for memory, place in zip(memories, locations, strict=True):
        if memory.dtype.is_float:
            part = block[place.offset:place.offset + place.size]
            part[:] = _stored(memory.dtype, rng.uniform(0.1, 1.0, memory.size))
    return block


def _stored(d: DType, values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(to_storage(d, values)).view(np.uint8).reshape(-1)
