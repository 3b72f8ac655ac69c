"""Fair timing on machines that are never quite quiet.

Contestants take turns in short blocks, so that a slower clock or a busy neighbour hits all of them
alike; what is compared is the median of the ratios within one round, not the ratio of two medians
taken minutes apart. One thread is timed by the CPU clock of the process, which does not run while
somebody else has the core, and counts what a library does in threads that it was told not to use;
several threads can only be timed by the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import repeat
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

Samples = np.ndarray


@dataclass(frozen=True)
class Contestant:
    """Something to call. `reset` runs before each block, untimed: training puts its weights back,
    or else thousands of steps on one batch would end in denormal numbers, which are slow."""

    name: str
    run: Callable[[], object]
    reset: Callable[[], object] | None = None


@dataclass(frozen=True)
class Effort:
    """How long a block lasts at least, and how many turns to take."""

    block: float
    least: int
    most: int
    seconds: float  # for all turns of one comparison, once the least is reached
    rest: float = 0.15  # between two: threads spin on after their work, OpenBLAS's for 0.1 s
    warm: float = 0.5  # of calls before the first turn: ztorch tries numbers of threads in them


FULL = Effort(block=2.5e-3, least=11, most=101, seconds=4.0)
QUICK = Effort(block=2e-4, least=3, most=3, seconds=0.1, warm=0.0)


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, over all rounds. `ratio` is this time over that of the first
    contestant: how many times faster the first one is."""

    name: str
    seconds: float
    p10: float
    p90: float
    wall: float
    cpu: float
    ratio: float
    ratio_p10: float
    ratio_p90: float
    turns: int
    calls: int

    @property
    def clocks_differ(self) -> bool:
        """Whether the thread waited for its core: then only the CPU clock can be trusted."""
        return abs(self.wall - self.cpu) > 0.05 * self.wall

    def shared_by(self, count: int) -> Timing:
        """The time of one of several calls that were timed as one."""
        return replace(self, **{name: getattr(self, name) / count
                                for name in ("seconds", "p10", "p90", "wall", "cpu")})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(contestants: Sequence[Contestant], single: bool, effort: Effort) -> list[Timing]:
    """Times contestants in turns; the first one is the measure of the others.

    >>> fast = Contestant("fast", lambda: None)
    >>> slow = Contestant("slow", lambda: sum(range(2000)))
    >>> compare([fast, slow], True, QUICK)[1].ratio > 1
    True
    """
    calls = [_calls_per_block(c, effort, 0.0 if single else effort.warm) for c in contestants]
    wall: list[list[float]] = [[] for _ in contestants]
    cpu: list[list[float]] = [[] for _ in contestants]
    end = perf_counter() + effort.seconds
    for turn in range(effort.most):
        # Every other turn runs backwards: who follows whom must not matter either.
        order = range(len(contestants)) if turn % 2 == 0 else range(len(contestants) - 1, -1, -1)
        for k in order:
            w, c = _block(contestants[k], calls[k], 0.0 if single else effort.rest)
            wall[k].append(w)
            cpu[k].append(c)
        used = np.array(cpu if single else wall)
        if turn + 1 >= effort.least and (perf_counter() > end or _settled(used)):
            break
    return [_timing(c.name, np.array(wall[k]), np.array(cpu[k]), used[k], used[0], calls[k])
            for k, c in enumerate(contestants)]


def _calls_per_block(c: Contestant, effort: Effort, warm: float) -> int:
    """As many calls as fill a block, doubled until the clock can see them."""
    if c.reset:
        c.reset()
    end = perf_counter() + warm
    c.run()  # the first call of all may compile, allocate or wake threads
    while perf_counter() < end:
        c.run()
    calls = 1
    while True:
        if c.reset:
            c.reset()
        start = perf_counter()
        for _ in repeat(None, calls):
            c.run()
        took = perf_counter() - start
        if took >= effort.block:
            return calls
        calls = max(calls + 1, min(calls * 8, round(1.2 * calls * effort.block / max(took, 1e-7))))


def _block(c: Contestant, calls: int, rest: float) -> tuple[float, float]:
    """Wall and CPU seconds of one call."""
    if c.reset:
        c.reset()
    run = c.run
    if rest:
        sleep(rest)
    for _ in repeat(None, min(calls, 8)):  # bring code and data back into the caches
        run()
    cpu, wall = process_time(), perf_counter()
    for _ in repeat(None, calls):
        run()
    return (perf_counter() - wall) / calls, (process_time() - cpu) / calls


def _settled(samples: Samples) -> bool:
    """Whether every median ratio is known to about half a percent."""
    ratios = samples[1:] / samples[0] if len(samples) > 1 else samples
    low, middle, high = np.percentile(ratios, (25, 50, 75), axis=1)
    return bool(np.all((high - low) / middle / np.sqrt(samples.shape[1]) < 0.005))


def _timing(name: str, wall: Samples, cpu: Samples, used: Samples, base: Samples,
            calls: int) -> Timing:
    p10, middle, p90 = (float(p) for p in np.percentile(used, (10, 50, 90)))
    low, ratio, high = (float(p) for p in np.percentile(used / base, (10, 50, 90)))
    return Timing(name, middle, p10, p90, float(np.median(wall)), float(np.median(cpu)),
                  ratio, low, high, len(used), calls)
