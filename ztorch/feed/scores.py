"""Scores of an epoch: sums over its batches, and means."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ztorch.runtime.loaded_program import ScoreSum
from ztorch.runtime.spec import SUMS

if TYPE_CHECKING:
    from ztorch.runtime.loaded_program import BoundCall


class Scored(Protocol):
    """A program, as far as its scores must know it."""

    def score_names(self, function: str) -> list[str]: ...

    def results(self, totals: Mapping[str, np.ndarray]) -> dict[str, Any]: ...


class EpochScores:
    """Loss and metrics over an epoch: weighted means over batches, and metrics that are computed
    from sums over all batches."""

    __slots__ = ("_names", "_program", "_readers", "_sums", "_totals", "_weight", "finite")

    def __init__(self, program: Scored, function: str, finite: bool = False):
        """`finite`: whether an epoch ends at a loss that is not finite."""
        self._program = program
        self._names = program.score_names(function)  # the loss is the first
        self._readers: dict[BoundCall, list[Callable[[], float]]] = {}
        self._sums = array("d")
        self._totals: dict[str, np.ndarray] = {}  # by output of the calls
        self._weight = 0.0
        self.finite = finite

    def add(self, call: BoundCall, weight: float) -> float:
        """Adds the scores of the batch that a call has just computed; returns its loss, or
        0 where a custom step returns only sums."""
        readers = self._readers.get(call)
        if readers is None:
            readers = self._begin(call)
        values = [read() for read in readers]
        sums = self._sums
        for k, value in enumerate(values):
            sums[k] += value * weight
        self._weight += weight
        for name, total in self._totals.items():
            total += np.asarray(call.outputs[name])
        return values[0] if values else 0.0

    def places(self, call: BoundCall, weight: float) -> list[ScoreSum]:
        """Where `steps` of a call add the scores of a batch of this weight, the loss first."""
        self._begin(call)
        sums = self._sums.buffer_info()[0]
        names = [name for name in self._names if name in call.outputs]
        return [*(ScoreSum(call.outputs[name], sums + 8 * k, weight)
                  for k, name in enumerate(names)),
                *(ScoreSum(call.outputs[name], total.ctypes.data, 1.0)
                  for name, total in self._totals.items())]

    def added(self, call: BoundCall, weight: float) -> float:
        """Notes the sums that the steps of a call have added, with the weight of all their batches;
        returns the last loss."""
        self._weight += weight
        readers = self._readers[call]
        return readers[0]() if readers else 0.0

    def ends_at(self, call: BoundCall) -> bool:
        """Whether an epoch ends where the first of the `places` of a call is not finite. Sums of a
        custom step that returns no loss do not end it."""
        return self.finite and bool(self._readers[call])

    def means(self) -> dict[str, Any]:
        """The scores so far."""
        weight = self._weight or 1.0  # an epoch without weight scores 0
        sums = iter(self._sums or [0.0] * len(self._names))
        computed = self._program.results(self._totals) if self._totals else {}
        return {name: computed[name] if name in computed else next(sums) / weight
                for name in self._names}

    def _begin(self, call: BoundCall) -> list[Callable[[], float]]:
        readers: list[Callable[[], float]] = [
            call.outputs[name].item for name in self._names if name in call.outputs]
        self._readers[call] = readers
        self._sums = self._sums or array("d", [0.0] * len(readers))
        for name, y in call.outputs.items():
            if name.startswith(SUMS) and name not in self._totals:
                self._totals[name] = np.zeros(np.shape(y))
        return readers
