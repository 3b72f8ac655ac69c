"""The loops of evaluate and predict: they leave the weights as they are."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from ztorch.feed.call_pool import CallPool, Calls
from ztorch.feed.results import Outputs, Results
from ztorch.feed.scores import EpochScores, Scored
from ztorch.feed.staging import Batch
from ztorch.feed.under_way import UnderWay

if TYPE_CHECKING:
    from ztorch.feed.batches import BatchSource
    from ztorch.progress import Progress


def _never() -> bool:
    return False


def evaluate(calls_of: Calls, batches: BatchSource, program: Scored,
             progress: Progress | None = None, stop: Callable[[], bool] = _never,
             steps: int | None = None) -> dict[str, float] | None:
    """Loss and metrics of a program over all batches or the first `steps`; None if `stop` ended the
    loop."""
    with calls_of.of_each_bucket("evaluate") as calls:
        scores, done = EpochScores(program, "evaluate"), 0
        under_way = UnderWay(lambda _, batch: batch.add_to(scores))
        if steps is not None and batches.steps is not None:
            steps = min(steps, batches.steps)  # no row counts twice
        if progress:
            progress.begin(steps=steps or batches.steps)
        for batch in batches.epoch(calls, steps=steps, scores=scores):
            if batch.weight:
                under_way.begin(done, batch)
            done += batch.steps
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
            assert isinstance(batch, Batch), "only scores are added in stretches"
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
