"""A progress bar for your own loops, as in Keras."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ztorch.terminal.progress import blocks


class Progbar:
    """A bar of steps with the means of some values, on one line of the terminal.

    Args:
        target: Number of steps; `None` if unknown. Default: `None`.
        width: Characters of the bar. Default: `20`.
        verbose: 0 prints nothing, 1 the bar, 2 one line at the end. Default: `1`.
        interval: The least number of seconds between redraws. Default: `0.05`.
        stateful_metrics: Names of values that are shown as they are, not averaged. Default:
            `None`.
        unit_name: The name of a step. Default: `"step"`.

    Examples:
        >>> bar = Progbar(2, verbose=2)
        >>> bar.add(1, [("loss", 0.5)])
        >>> bar.add(1, [("loss", 0.25)])
        2/2 - loss: 0.3750
    """

    def __init__(self, target: int | None, width: int = 20, verbose: int = 1,
                 interval: float = 0.05, stateful_metrics: Iterable[str] | None = None,
                 unit_name: str = "step"):
        self.target, self.width, self.verbose, self.interval = target, width, verbose, interval
        self.stateful_metrics = {*(stateful_metrics or ())}
        self.unit_name = unit_name
        self._sums: dict[str, tuple[float, int]] = {}  # of values, and of their steps
        self._seen, self._shown = 0, 0.0

    def update(self, current: int, values: Sequence[tuple[str, Any]] | None = None,
               finalize: bool | None = None) -> None:
        """Updates the bar.

        Args:
            current: Number of steps done.
            values: (name, number) of this step. Default: `None`.
            finalize: Whether this is the last call; `None`: it is if all steps are done. Default:
                `None`.
        """
        steps = max(current - self._seen, 1)
        for name, value in values or ():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = ((float(value), 1) if name in self.stateful_metrics else
                                (total + float(value) * steps, count + steps))
        self._seen = current
        done = finalize if finalize is not None else (
            self.target is not None and current >= self.target)
        now = time.monotonic()
        if self.verbose == 0 or (not done and (self.verbose == 2
                                               or now - self._shown < self.interval)):
            return
        self._shown = now
        means = "".join(f" - {name}: {total / count:.4f}"
                        for name, (total, count) in self._sums.items())
        of = f"{current}/{self.target or '?'}"
        if self.verbose == 2:
            print(f"{of}{means}")
            return
        filled = round(self.width * min(current / self.target, 1.0)) if self.target else self.width
        full, _ = blocks(sys.stdout)
        bar = full * filled + " " * (self.width - filled)
        print(f"\r{of} {bar}{means}", end="\n" if done else "")
        sys.stdout.flush()

    def add(self, n: int, values: Sequence[tuple[str, Any]] | None = None) -> None:
        """Advances the bar by `n` steps, with values as in `update`.

        Args:
            n: Number of steps.
            values: (name, number) of these steps. Default: `None`.
        """
        self.update(self._seen + n, values)
