"""Kernels that compute the same by different schedules, timed against one another."""

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
from ztorch.lower.params import Params
from ztorch.lower.placement import Location
from ztorch.lower.plan import Plan
from ztorch.lower.region_kernel import KernelStep
from ztorch.runtime.executable import Executable

CALL_SECONDS = 3e-4  # of a timed call, in which a kernel runs many times: clocks are exact to 1e-6
CYCLES_PER_SECOND = 3e9  # assumed clock, to choose the number of runs in a call
RUNS_MAX = 2000  # runs of a kernel in a call, at most
ROUNDS_MIN = 3  # rounds of all kernels before slow ones are dropped
SLOW = 1.15  # a kernel is slow from this multiple of the fastest time on
RACE_SECONDS = 2.0  # time limit of a race, once all kernels have run ROUNDS_MIN times


class Race:
    """One program with a function for each kernel, which runs it many times on the same buffers.

    Args:
        steps: One kernel by different schedules, each on the same buffers.
        target: The machine, which is this one.
        threads: The most workers that share a kernel.
    """

    def __init__(self, steps: Sequence[KernelStep], target: Target, threads: int):
        places, arena = _compact(steps[0].locations)
        self.runs = max(1, min(RUNS_MAX, int(CALL_SECONDS * CYCLES_PER_SECOND
                                             / max(steps[0].cycles, 1.0))))
        plans = {f"s{k}": Plan(f"s{k}", [], [], [replace(step, locations=places, barrier=True)],
                               arena, [], [LoopSpan(0, 1, self.runs)])
                 for k, step in enumerate(steps)}
        spec = describe_program("race", target, plans, Params(target.limits))
        with using(debug=(), dump=None):
            code = cpu_code(plans, target, spec, Watch()).code
        self.program = Executable(spec, code, threads=threads)
        self.calls = [self.program.bind(name) for name in plans]
        self.workers = max(call.workers for call in self.calls)  # that share a kernel
        self._first = _values(steps[0], places, arena)
        self._changes = any(m.access == "rw" for m in steps[0].kernel.memories
                            if m.space == "global")
        self.program.arena[:arena] = self._first

    def seconds(self, rounds: int, of: Callable[[list[float]], float] = median) -> list[float]:
        """The median time, or another statistic, of one run of each kernel. Rounds run all kernels
        in sequence, so that other load on the machine affects all of them; clearly slow ones are
        dropped after some rounds."""
        clock = time.perf_counter if self.workers > 1 else time.thread_time
        times: list[list[float]] = [[] for _ in self.calls]
        running = set(range(len(self.calls)))
        end = time.perf_counter() + RACE_SECONDS
        for call in self.calls:
            call()  # pages and caches are warm then
        for number in range(rounds):
            if number >= ROUNDS_MIN and time.perf_counter() > end:
                break
            for k in sorted(running):
                if self._changes:  # else sums would grow without end
                    self.program.arena[:len(self._first)] = self._first
                start = clock()
                self.calls[k]()
                times[k].append((clock() - start) / self.runs)
            if number + 1 >= ROUNDS_MIN:
                best = min(min(t) for t in times)
                running = {k for k in running if min(times[k]) <= best * SLOW}
        return [of(t) for t in times]


def _compact(locations: Sequence[Location]) -> tuple[tuple[Location, ...], int]:
    """Buffers one after another in the arena, those that overlap in one piece; and its bytes."""
    groups: list[list[Location]] = []  # of locations that overlap
    for place in locations:
        fixed = replace(place, strides=())
        joined = [g for g in groups if any(fixed.overlaps(other) for other in g)]
        groups = [g for g in groups if g not in joined]
        groups.append([fixed, *(other for g in joined for other in g)])
    moved: dict[Location, Location] = {}
    end = 0
    for group in groups:
        numbered = group[0].space not in ("params", "arena")
        low = 0 if numbered else min(place.offset for place in group)
        size = max((place.start if numbered else place.offset - low) + place.size
                   for place in group)
        for place in group:
            inside = place.start if numbered else place.offset - low
            moved[place] = Location("arena", end + inside, place.size)
        end += -(-size // BUFFER_ALIGN) * BUFFER_ALIGN
    return tuple(moved[replace(place, strides=())] for place in locations), end


def _values(step: KernelStep, places: Sequence[Location], arena: int) -> np.ndarray:
    """First values of the buffers: numbers that are neither tiny nor large, and zeros for
    integers, which may be positions."""
    block = np.zeros(arena, np.uint8)
    rng = np.random.default_rng(0)
    memories = [m for m in step.kernel.memories if m.space == "global"]
    for memory, place in zip(memories, places, strict=True):
        if memory.dtype.is_float:
            part = block[place.offset:place.offset + place.size]
            part[:] = _stored(memory.dtype, rng.uniform(0.1, 1.0, memory.size))
    return block


def _stored(d: DType, values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(to_storage(d, values)).view(np.uint8).reshape(-1)
