"""Finds the fastest schedule of a kernel."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ztorch.codegen.targets import Target
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import Schedule
from ztorch.tune.candidates import alternatives, other_kinds, stages
from ztorch.tune.race import Race

ROUNDS = 7  # of a race between the schedules of a stage
FINAL_ROUNDS = 21  # of the race between the fastest schedule and that of the rules
GAIN = 0.97  # a schedule must take at most this share of the time of the rules' schedule


@dataclass(frozen=True)
class Finding:
    """The fastest schedule that was measured, and that of the rules."""

    best: Schedule
    seconds: float
    rule: Schedule
    rule_seconds: float


def search(kernel: RegionKernel, target: Target, threads: int,
           until: float = float("inf")) -> Finding:
    """Varies the fields of the rules' schedule stage by stage. The winner of a stage is where the
    next one starts, and the last winner must beat the rules' schedule once more.

    Args:
        kernel: The kernel.
        target: The machine, which is this one.
        threads: The most workers that share a kernel.
        until: When to begin no further stage, on `time.perf_counter()`. Default: no limit.
    """
    rule = best = kernel.proposal()

    def fastest(schedules: list[Schedule]) -> Schedule:
        """The fastest of the best so far and these."""
        if not schedules:
            return best
        runners = [best, *schedules]
        times = _race(kernel, runners, target, threads, ROUNDS)
        return min(zip(times, range(len(runners)), runners, strict=True))[2]

    best = fastest(other_kinds(kernel, rule))
    for fields in stages(best):
        if time.perf_counter() > until:
            break
        best = fastest(alternatives(kernel, best, fields))
    if best == rule:
        [seconds] = _race(kernel, [rule], target, threads, ROUNDS)
        return Finding(rule, seconds, rule, seconds)
    rule_seconds, seconds = _race(kernel, [rule, best], target, threads, FINAL_ROUNDS)
    if seconds > rule_seconds * GAIN:
        return Finding(rule, rule_seconds, rule, rule_seconds)
    return Finding(best, seconds, rule, rule_seconds)


def _race(kernel: RegionKernel, schedules: list[Schedule], target: Target, threads: int,
          rounds: int) -> list[float]:
    steps = [kernel.with_schedule(s).step() for s in schedules]
    return Race(steps, target, threads).seconds(rounds)
