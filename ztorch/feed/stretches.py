"""Full batches that follow one another in an epoch, which one native call runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ztorch.feed.scores import EpochScores
    from ztorch.runtime.loaded_program import BoundCall, NativeSteps


class Stretch:
    """Takes the place of several batches of an epoch. Its scores are added as it runs.

    Args:
        native: Runs the batches.
        order: The numbers of rows in the order of the epoch; None: as stored.
        first: The place of its first row in it.
        count: Number of batches.
        rows: The rows of each.
    """

    __slots__ = ("_count", "_first", "_native", "_order", "_rows", "call", "steps", "weight")

    def __init__(self, native: NativeSteps, order: np.ndarray | None, first: int, count: int,
                 rows: int):
        self._native, self._order, self._first = native, order, first
        self._count, self._rows = count, rows
        self.call: BoundCall = native.call
        self.steps = 0  # that were run
        self.weight = float(count * rows)

    @property
    def overlaps(self) -> bool:
        """Whether the host may continue during a run."""
        return self.call.overlaps

    def start(self) -> None:
        """Starts a run that overlaps the host's work until `finish`."""
        self._native.start(self._order, self._first, self._count)
        self.steps = self._count

    def finish(self) -> None:
        """Waits for the run."""
        self.steps = self._native.finish()

    def run(self) -> None:
        """Runs the batches, up to one whose loss is not finite where that ends the epoch."""
        self.steps = self._native.run(self._order, self._first, self._count)

    def add_to(self, scores: EpochScores) -> float:
        """Takes note of the scores; returns the last loss."""
        return scores.added(self.call, float(self.steps * self._rows))
