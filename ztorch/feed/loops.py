"""The loops of evaluate and predict: they leave the weights as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ztorch.feed.call_pool import CallPool, Calls
from ztorch.feed.results import Outputs, Results
from ztorch.feed.under_way import UnderWay
from ztorch.runtime.spec import SUMS

if TYPE_CHECKING:
    from ztorch.feed.batches import BatchSource
    from ztorch.progress import Progress
    from ztorch.runtime.running import BoundCall


class Scored(Protocol):
    """A program, as far as its scores must know it."""

    def score_names(self, function: str) -> list[str]: ...

    def results(self, totals: Mapping[str, np.ndarray]) -> dict[str, float]: ...


class EpochScores:
    """Loss and metrics over an epoch: means, in which each batch counts by its weight, and what is
    computed from sums over all batches."""

    __slots__ = ("_names", "_program", "_readers", "_sums", "_totals", "_weight")

    def __init__(self, program: Scored, function: str):
        self._program = program
        self._names = program.score_names(function)  # the loss is the first
        self._readers: dict[BoundCall, list[Callable[[], float]]] = {}
        self._sums: list[float] = []
        self._totals: dict[str, np.ndarray] = {}  # by output of the calls
        self._weight = 0.0

    def add(self, call: BoundCall, weight: float) -> float:
        """Adds the scores of the batch that a call has just computed; returns its loss."""
        readers = self._readers.get(call)
        if readers is None:
            readers = self._begin(call)
        values = [read() for read in readers]
        self._sums = [s + v * weight for s, v in zip(self._sums, values)]  # noqa: B905 (hot)
        self._weight += weight
        for name, total in self._totals.items():
            total += np.asarray(call.outputs[name])
        return values[0]

    def means(self) -> dict[str, float]:
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
        self._sums = self._sums or [0.0] * len(readers)
        for name, y in call.outputs.items():
            if name.startswith(SUMS) and name not in self._totals:
                self._totals[name] = np.zeros(np.shape(y))
        return readers


def _never() -> bool:
    return False


def evaluate(calls_of: Calls, batches: BatchSource, program: Scored,
             progress: Progress | None = None, stop: Callable[[], bool] = _never,
             steps: int | None = None) -> dict[str, float] | None:
    """Loss and metrics of a program over all batches or the first `steps`; None if `stop` ended the
    loop."""
    with calls_of.of_each_bucket("evaluate") as calls:
        scores, done = EpochScores(program, "evaluate"), 0
        under_way = UnderWay(lambda _, batch: scores.add(batch.call, batch.weight))
        if steps is not None and batches.steps is not None:
            steps = min(steps, batches.steps)  # no row counts twice
        if progress:
            progress.begin(steps=steps or batches.steps)
        for batch in batches.epoch(calls, steps=steps):
            if batch.weight:
                under_way.begin(done, batch)
            done += 1
            if progress and progress.live and perf_counter() > progress.due:
                progress.draw(done, scores.means())
            if stop():
                return None
        under_way.finish()
        means = scores.means()
        if progress:
            progress.trained(done)
            progress.end(means)
        return means


def predict(pool: CallPool, batches: BatchSource, results: Results,
            progress: Progress | None = None) -> Outputs:
    """The model's outputs for every row, by way of `results`."""
    with pool.of_each_bucket("predict") as calls:
        done = 0
        if progress:
            progress.begin(steps=batches.steps)
        under_way = UnderWay(lambda _, batch: results.add(batch))
        for batch in batches.epoch(calls):
            results.prepare(batch)
            under_way.begin(done, batch)
            done += 1
            if progress and progress.live and perf_counter() > progress.due:
                progress.draw(done, {})
        under_way.finish()
        if progress:
            progress.trained(done)
            progress.end({})
        return results.outputs()
