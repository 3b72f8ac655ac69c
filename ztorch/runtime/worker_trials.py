"""Finds the fastest number of workers for a function while it is called repeatedly.

A barrier takes a hundred nanoseconds on one machine and six times as long on another. If other
programs keep the cores busy, it takes as long as they occupy a core. Workers may sleep between
calls, but not between the steps of an epoch. No fixed rule suits all of this, so other numbers of
workers are tried briefly from time to time. Results have the same bits for any number.
"""

from __future__ import annotations

import math

# Cycles of one worker (some 10 ms) from which a step has no trials, unless workers meet so often
# in it that they wait for busy cores: its kernels have fewer cycles than this (some 30 us).
TRIED_CYCLES, SHORT_KERNEL_CYCLES = 4e7, 1e5
AWAKE_CYCLES = 40_000  # work of a step for each further worker, if awake: some 10 microseconds
TRIAL_SECONDS = 4e-4  # duration of a trial of steps
# Least number of single calls in a trial, and least duration of all but the first. The mean of all
# but the slowest counts: a worker whose core another process uses delays many calls, by up to a
# tenth of a second; a single delay is chance.
SINGLE_RUNS, SINGLE_SECONDS = 8, 8e-3
LONG_RUNS, LONG_SECONDS = 3, 0.1  # the same for calls that take longer than such delays
TRIALS_SHARE = 0.01  # share of the run time for trials of numbers that were slower
# The same for single calls, by the trials of a number until then. The first ones are often
# disturbed: for up to a second, the system moves threads that have just started.
EARLY_SHARES = {1: 0.16, 2: 0.04}
# The same for a number that was once faster than the chosen one: its last trial may have been
# disturbed.
ONCE_FASTER_SHARE = 0.04
SLOW_SHARE = 0.25  # weight of a slower measurement, which another process may have caused
SLOW_SECONDS = 0.05  # duration of single calls that get this weight together
TIMED_SECONDS = 5e-4  # one single call is timed per this duration, as timing takes some 2 us
MAX_SLOWDOWN = 2.0  # a slower measurement counts as at most this multiple of the previous one
MAX_DELAY = 8.0  # a single call of a trial counts as at most this multiple of its fastest one


def have_trials(cycles: float, runs: int) -> bool:
    """Whether steps of so many cycles of one worker and runs of kernels are short enough for
    trials, or have kernels that are.

    >>> have_trials(1e9, 20), have_trials(1e9, 20_000)
    (False, True)
    """
    return cycles < max(TRIED_CYCLES, SHORT_KERNEL_CYCLES * runs)


class WorkerTrials:
    """Chooses the number of workers for each native call: a single run, or steps of an epoch.

    Args:
        rule: The number that is used first.
        most: The largest number.
        cycles: The estimated work of a run.
        guess: The assumed seconds of a run before the first measurement.
        single: Whether native calls are single runs, several of which make a trial.
            Default: `False`.
        loops: Whether there are loops that one worker may run by itself while others wait. Such a
            number of workers is negative. Default: `False`.
        runs: The number of runs of kernels. Default: `1`.

    Examples:
        >>> trials = WorkerTrials(rule=1, most=2, cycles=1e5, guess=1e-3)
        >>> for seconds in (2e-5, 1e-5):  # of a step by one worker, and by two
        ...     trials.record(seconds, 1e-3)
        >>> trials.workers
        2
    """

    def __init__(self, rule: int, most: int, cycles: float, guess: float,
                 single: bool = False, loops: bool = False, runs: int = 1):
        counts = {rule: None}  # in the order of trials
        if most > 1 and have_trials(cycles, runs):
            counts |= {max(1, min(most, int(cycles / AWAKE_CYCLES) + 1)): None, 1: None}
            counts |= {-n: None for n in counts if loops and n > 1}
        self._untried = list(counts)[1:]
        # Least numbers and seconds of native calls in a trial.
        self._min_trials = ((1, 0.0),) if not single else (
            (SINGLE_RUNS, SINGLE_SECONDS), (LONG_RUNS, LONG_SECONDS))
        self._full_weight_seconds = SLOW_SECONDS if single else TRIAL_SECONDS
        self._single, self._timed_seconds = single, TIMED_SECONDS if single else 0.0
        self._run_seconds: list[float] = []  # of each single call of a trial
        self.untimed = 0  # number of single calls before the next timed one
        self._calls_per_timed = 1  # number of calls that a timed call represents
        self._trial_runs = 0
        self.workers = rule
        self.seconds = guess  # estimated seconds of the next step
        self.trial = True  # whether the next native call is part of a trial
        self._seconds: dict[int, float] = {}  # seconds of a step by number of workers
        self._trial_seconds = 0.0  # seconds of the current trial
        self._judged_seconds = 0.0  # the same without delays, on which its end depends
        self._fastest_run = math.inf  # seconds of its fastest run
        self._last_trial_seconds: dict[int, float] = {}  # seconds of the last trial of each number
        self._trials: dict[int, int] = {}  # finished trials of each number
        self._fastest_trial: dict[int, float] = {}  # seconds of a step in the fastest of them
        self._tried_at: dict[int, float] = {}  # time of its last measurement, in `_elapsed` seconds
        self._elapsed = 0.0  # seconds of all runs

    def record(self, seconds: float, total: float) -> None:
        """Records the seconds of a step and of the whole native call, and chooses the number of
        workers of the next one."""
        total *= self._calls_per_timed
        self._elapsed += total
        elapsed, last = self._elapsed, self.workers
        self._tried_at[last] = elapsed
        if self._single and self.trial:
            self._run_seconds.append(seconds)
        else:
            self._seconds[last] = self._updated(self._seconds.get(last, seconds), seconds, total)
        if self.trial:
            # The first single call of a trial starts or wakes workers, and is not judged.
            self._trial_runs += 1
            first = self._single and self._trial_runs == 1
            if not first:
                self._trial_seconds += total
                self._fastest_run = min(seconds, self._fastest_run)
                self._judged_seconds += min(total, MAX_DELAY * self._fastest_run)
            if not any(self._trial_runs >= runs and self._judged_seconds >= least
                       for runs, least in self._min_trials):
                return
            self._last_trial_seconds[last] = self._trial_seconds
            self._trials[last] = self._trials.get(last, 0) + 1
            self._trial_seconds, self._judged_seconds, self._trial_runs = 0.0, 0.0, 0
            self._fastest_run = math.inf
            if self._single:
                judged, self._run_seconds = sorted(self._run_seconds[1:])[:-1], []
                most = MAX_DELAY * judged[0]
                mean = sum(min(seconds, most) for seconds in judged) / len(judged)
                self._seconds[last] = mean
                self._fastest_trial[last] = min(mean, self._fastest_trial.get(last, mean))
        self.workers = self._untried.pop(0) if self._untried else self._choice(elapsed)
        self.trial = self.workers != last
        self.untimed = 0 if self.trial else int(self._timed_seconds / max(seconds, 1e-6))
        self._calls_per_timed = 1 + self.untimed
        self.seconds = self._seconds.get(self.workers, seconds)

    def _updated(self, previous: float, seconds: float, total: float) -> float:
        """The seconds of a step after one more measurement: slower ones have little weight."""
        slower = max(0.0, min(seconds, MAX_SLOWDOWN * previous) - previous)
        share = SLOW_SHARE * min(1.0, total / self._full_weight_seconds)
        faster = (share if self._single else 1.0) * max(0.0, previous - seconds)
        return previous - faster + share * slower

    def _choice(self, elapsed: float) -> int:
        """The fastest number, or one whose last trial was long enough ago."""
        best = min(self._seconds, key=lambda n: self._seconds[n])
        return next((n for n, tried_at in self._tried_at.items() if n != best
                     and (elapsed - tried_at) * self._trials_share(n, best)
                     > self._last_trial_seconds[n]), best)

    def _trials_share(self, n: int, best: int) -> float:
        """The share of the run time for the next trial of a number that was slower."""
        if not self._single:
            return TRIALS_SHARE
        once_faster = self._fastest_trial[n] < self._seconds[best]
        return EARLY_SHARES.get(self._trials[n], ONCE_FASTER_SHARE if once_faster else TRIALS_SHARE)
