"""Searches the fastest schedule of a kernel among candidates, by their times."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ztorch.errors import DeviceError
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import Schedule
from ztorch.tune.candidates import alternatives, by_library, other_kinds, stages
from ztorch.tune.clocks import FINAL_ROUNDS, ROUNDS, Clock


@dataclass(frozen=True)
class SearchResult:
    """The fastest schedule that was tried, and that of the rules."""

    best: Schedule
    seconds: float
    rule: Schedule
    rule_seconds: float


def search(kernel: RegionKernel, clock: Clock,
           until: float = float("inf")) -> SearchResult:
    """Varies the fields of the rules' schedule in stages. Each stage starts from the best schedule
    of the previous one. The last one is compared with the rules' schedule once more.

    Args:
        kernel: The kernel.
        clock: Tells the times of schedules.
        until: The time of `time.perf_counter()` after which no stage starts. Default: no limit.
    """
    rule = best = kernel.proposal()

    def fastest(schedules: list[Schedule]) -> Schedule:
        """The fastest of these schedules and the current best."""
        if not schedules:
            return best
        candidates = [best, *schedules]
        times = _seconds(kernel, candidates, clock, ROUNDS)
        return candidates[times.index(min(times))]

    best = fastest(other_kinds(kernel, rule))
    for fields in stages(best):
        if time.perf_counter() > until:
            break
        best = fastest(alternatives(kernel, best, fields, clock.most))
    if best == rule:
        [seconds] = _seconds(kernel, [rule], clock, ROUNDS)
        return SearchResult(rule, seconds, rule, seconds)
    rule_seconds, seconds = _seconds(kernel, [rule, best], clock, FINAL_ROUNDS)
    if seconds > rule_seconds * clock.share:
        return SearchResult(rule, rule_seconds, rule, rule_seconds)
    return SearchResult(best, seconds, rule, rule_seconds)


def search_library(kernel: RegionKernel, library: str, ours: Schedule,
                   clock: Clock) -> SearchResult | None:
    """Measures a library beside our fastest schedule, which is the `rule` of the result. None if
    the library cannot compute the kernel.

    Args:
        kernel: The kernel.
        library: The name of the library.
        ours: Our fastest schedule.
        clock: Tells the times of schedules.
    """
    candidates = by_library(kernel, library)
    if not candidates:
        return None
    try:
        times = _seconds(kernel, candidates, clock, ROUNDS)
    except DeviceError:  # the library has no algorithm for these sizes
        return None
    best = candidates[times.index(min(times))]
    our_seconds, seconds = _seconds(kernel, [ours, best], clock, FINAL_ROUNDS)
    if seconds > our_seconds * clock.share:
        return SearchResult(ours, our_seconds, ours, our_seconds)
    return SearchResult(best, seconds, ours, our_seconds)


def _seconds(kernel: RegionKernel, schedules: list[Schedule], clock: Clock,
             rounds: int) -> list[float]:
    return clock.seconds(kernel, schedules, rounds)
