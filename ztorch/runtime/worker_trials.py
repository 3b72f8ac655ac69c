"""How many workers share a run: the fastest number, found while it is called again and again.

A barrier takes a hundred nanoseconds on one machine and six times as long on another. Where other
programs keep the cores busy, it takes as long as they occupy a core. Workers may sleep between
calls, but not between the steps of an epoch. So no fixed rule is right everywhere: from time to
time, other numbers of workers are tried briefly. Results are the same bits for any number.
"""

from __future__ import annotations

from statistics import median

TRIED_CYCLES = 4e7  # of one worker, some 10 ms: steps with more work follow the rule alone
AWAKE_CYCLES = 40_000  # work of a step for each further worker that is awake: some 10 microseconds
TRIAL_SECONDS = 4e-4
# At least, of single calls: the first one wakes workers that sleep, and it takes the system a few
# milliseconds to move one that it woke on the core of the caller.
SINGLE_RUNS, SINGLE_SECONDS = 3, 8e-3
TRIALS_SHARE = 0.01  # share of the run time for trials of numbers that were slower
SLOW_SHARE = 0.25  # weight of a slower run: another process may have had the core for a moment
SLOW_SECONDS = 0.05  # of single calls that count as much together
TIMED_SECONDS = 5e-4  # of single calls, of which one is timed: that takes some 2 microseconds
SLOW_MOST = 2.0  # a slower run counts as at most this many times the known figure


class WorkerTrials:
    """Chooses the number of workers for each stretch of runs: a call, or steps of an epoch.

    Args:
        rule: The number for a single call.
        most: How many there are.
        cycles: The estimated work of a run.
        guess: Seconds of a run, before any was measured.
        single: Whether stretches are single calls, several of which are a trial. Default: `False`.

    Examples:
        >>> trials = WorkerTrials(rule=1, most=2, cycles=1e5, guess=1e-3)
        >>> for seconds in (2e-5, 1e-5):  # of a step by one worker, and by two
        ...     trials.took(seconds, 1e-3)
        >>> trials.workers
        2
    """

    def __init__(self, rule: int, most: int, cycles: float, guess: float,
                 single: bool = False):
        counts = {rule: None}  # in the order of trials
        if most > 1 and cycles < TRIED_CYCLES:
            counts |= {max(1, min(most, int(cycles / AWAKE_CYCLES) + 1)): None, 1: None}
        self._untried = list(counts)[1:]
        # Stretches and seconds of a trial, at least, and how many stretches there were so far.
        self._least = (SINGLE_RUNS, SINGLE_SECONDS) if single else (1, 0.0)
        self._moment = SLOW_SECONDS if single else TRIAL_SECONDS
        self._single, self._timed = single, TIMED_SECONDS if single else 0.0
        self._runs: list[float] = []  # seconds of the single calls of a trial: their median counts
        self.untimed = 0  # single calls before the next one that is timed
        self._alike = 1  # the calls that a timed one stands for
        self._ran = 0
        self.workers = rule
        self.seconds = guess  # of a step
        self.trial = True  # whether the next stretch is a short one
        self._seconds: dict[int, float] = {}  # of a step, by number of workers
        self._cost = 0.0  # seconds of the trial so far
        self._costs: dict[int, float] = {}  # seconds of its last trial
        self._tried: dict[int, float] = {}  # after how many seconds of runs that was
        self._spent = 0.0  # seconds of all runs: those between calls are not ours

    def took(self, seconds: float, whole: float) -> None:
        """Records the seconds of a step and of the stretch, and chooses the number for the next."""
        whole *= self._alike
        self._spent += whole
        now, last = self._spent, self.workers
        self._tried[last] = now
        if self._single and self.trial:
            self._runs.append(seconds)
        else:
            known = self._seconds.get(last, seconds)
            slower = max(0.0, min(seconds, SLOW_MOST * known) - known)
            share = SLOW_SHARE * min(1.0, whole / self._moment)
            faster = (share if self._single else 1.0) * max(0.0, known - seconds)
            self._seconds[last] = known - faster + share * slower
        if self.trial:
            self._cost += whole
            self._ran += 1
            if self._ran < self._least[0] or self._cost < self._least[1]:
                return
            self._costs[last], self._cost, self._ran = self._cost, 0.0, 0
            if self._single:
                self._seconds[last], self._runs = median(self._runs), []
        self.workers = self._untried.pop(0) if self._untried else self._choice(now)
        self.trial = self.workers != last
        self.untimed = 0 if self.trial else int(self._timed / max(seconds, 1e-6))
        self._alike = 1 + self.untimed
        self.seconds = self._seconds.get(self.workers, seconds)

    def _choice(self, now: float) -> int:
        best = min(self._seconds, key=lambda n: self._seconds[n])
        return next((n for n, then in self._tried.items() if n != best
                     and (now - then) * TRIALS_SHARE > self._costs[n]), best)
