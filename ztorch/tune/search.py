"""Searches the fastest schedule of a kernel, by measuring candidates."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ztorch.codegen.targets import Target
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import Schedule
from ztorch.tune.candidates import alternatives, other_kinds, stages
from ztorch.tune.kernel_benchmark import KernelBenchmark

ROUNDS = 7  # measurements of the schedules of a stage
FINAL_ROUNDS = 21  # measurements of the fastest schedule and the rules' schedule
MAX_RATIO = 0.97  # a schedule replaces the rules' if it takes at most this share of its time


@dataclass(frozen=True)
class SearchResult:
    """The fastest schedule that was measured, and that of the rules."""

    best: Schedule
    seconds: float
    rule: Schedule
    rule_seconds: float


def search(kernel: RegionKernel, target: Target, threads: int,
           until: float = float("inf")) -> SearchResult:
    """Varies the fields of the rules' schedule in stages. Each stage starts from the best schedule
    of the previous one. The last one is compared with the rules' schedule once more.

    Args:
        kernel: The kernel.
        target: The target, which this machine must run.
        threads: The largest number of workers that share a kernel.
        until: The time of `time.perf_counter()` after which no stage starts. Default: no limit.
    """
    rule = best = kernel.proposal()

    def fastest(schedules: list[Schedule]) -> Schedule:
        """The fastest of these schedules and the current best."""
        if not schedules:
            return best
        candidates = [best, *schedules]
        times = _seconds(kernel, candidates, target, threads, ROUNDS)
        return candidates[times.index(min(times))]

    best = fastest(other_kinds(kernel, rule))
    for fields in stages(best):
        if time.perf_counter() > until:
            break
        best = fastest(alternatives(kernel, best, fields))
    if best == rule:
        [seconds] = _seconds(kernel, [rule], target, threads, ROUNDS)
        return SearchResult(rule, seconds, rule, seconds)
    rule_seconds, seconds = _seconds(kernel, [rule, best], target, threads, FINAL_ROUNDS)
    if seconds > rule_seconds * MAX_RATIO:
        return SearchResult(rule, rule_seconds, rule, rule_seconds)
    return SearchResult(best, seconds, rule, rule_seconds)


def _seconds(kernel: RegionKernel, schedules: list[Schedule], target: Target, threads: int,
             rounds: int) -> list[float]:
    steps = [kernel.with_schedule(s).step() for s in schedules]
    return KernelBenchmark(steps, target, threads).seconds(rounds)
