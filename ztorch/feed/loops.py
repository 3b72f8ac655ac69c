"""The loops of evaluate and predict: they leave the weights as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from ztorch.feed.call_pool import CallPool, Calls
from ztorch.feed.results import Outputs, Results

if TYPE_CHECKING:
    from ztorch.feed.batches import BatchSource
    from ztorch.progress import Progress
    from ztorch.runtime.running import BoundCall

class MeanScores:
    """The means of loss and metrics over an epoch. Each batch counts by its weight."""

    __slots__ = ("_names", "_readers", "_sums", "_weight")

    def __init__(self, scores: Iterable[str]):
        self._names = ["loss", *(name for name in scores if name != "loss")]
        self._readers: dict[BoundCall, list[Callable[[], float]]] = {}
        self._sums = [0.0] * len(self._names)
        self._weight = 0.0

    def add(self, call: BoundCall, weight: float) -> float:
        """Adds the scores of the batch that a call has just computed; returns its loss."""
        readers = self._readers.get(call)
        if readers is None:
            readers = self._readers[call] = [call.outputs[name].item for name in self._names]
        values = [read() for read in readers]
        self._sums = [s + v * weight for s, v in zip(self._sums, values)]  # noqa: B905 (hot)
        self._weight += weight
        return values[0]

    def means(self) -> dict[str, float]:
        """The means so far."""
        weight = self._weight or 1.0  # an epoch without weight scores 0
        return {name: s / weight for name, s in zip(self._names, self._sums, strict=True)}


def _never() -> bool:
    return False


def evaluate(calls_of: Calls, batches: BatchSource, names: Iterable[str],
             progress: Progress | None = None, stop: Callable[[], bool] = _never,
             steps: int | None = None) -> dict[str, float] | None:
    """Loss and metrics, of these names, over all batches or the first `steps`; None if `stop` ended
    the loop."""
    with calls_of.of_each_bucket("evaluate") as calls:
        scores, done = MeanScores(names), 0
        if steps is not None and batches.steps is not None:
            steps = min(steps, batches.steps)  # no row counts twice
        if progress:
            progress.begin(steps=steps or batches.steps)
        for call, _, weight, *_ in batches.epoch(calls, steps=steps):
            if weight:
                call()
                scores.add(call, weight)
            done += 1
            if progress and progress.live and perf_counter() > progress.due:
                progress.draw(done, scores.means())
            if stop():
                return None
        means = scores.means()
        if progress:
            progress.trained(done)
            progress.end(means)
        return means


def predict(pool: CallPool, batches: BatchSource, open_axes: Mapping[str, str],
            progress: Progress | None = None) -> Outputs:
    """The model's outputs for every row. `open_axes` names the axis that varies, by output."""
    results = Results(getattr(batches, "rows", 0), open_axes)  # 0: not known beforehand
    with pool.of_each_bucket("predict") as calls:
        done = 0
        if progress:
            progress.begin(steps=batches.steps)
        for batch in batches.epoch(calls):
            results.prepare(batch)
            batch.call()
            results.add(batch)
            done += 1
            if progress and progress.live and perf_counter() > progress.due:
                progress.draw(done, {})
        if progress:
            progress.trained(done)
            progress.end({})
        return results.outputs()
