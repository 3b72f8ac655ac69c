"""Runs in flight: the device computes one while the host fetches the next batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ztorch.feed.staging import Batch
from ztorch.feed.stretches import Stretch


class UnderWay:
    """Runs of a function that have begun. Where they overlap, one is left to the device while the
    next batch is fetched and begun.

    Args:
        on_end: Called with the step of each run, its batch and how many runs after it have begun,
            when its outputs are there, in the order of runs.
    """

    def __init__(self, on_end: Callable[[int, Any, int], object]):
        self._on_end = on_end
        self._begun: deque[tuple[int, Batch | Stretch]] = deque()

    def begin(self, step: int, batch: Batch | Stretch, ahead: bool = True) -> None:
        """Runs the call of a batch. With `ahead`, it may still run when this returns."""
        if ahead and batch.overlaps:
            batch.start()
            self._begun.append((step, batch))
            self.finish(1)
            return
        if self._begun:
            self.finish()
        batch.run()
        self._on_end(step, batch, 0)

    def finish(self, most: int = 0) -> None:
        """Waits until at most `most` runs are in flight."""
        while len(self._begun) > most:
            step, batch = self._begun.popleft()
            batch.finish()
            self._on_end(step, batch, len(self._begun))
