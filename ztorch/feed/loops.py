"""The loops of evaluate and predict: they leave the weights as they are."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from ztorch.feed.call_pool import CallPool, Calls
from ztorch.feed.results import Outputs, Results
from ztorch.feed.scores import EpochScores, Scored
from ztorch.feed.staging import Batch
from ztorch.feed.under_way import UnderWay

if TYPE_CHECKING:
    from ztorch.feed.batches import BatchSource
    from ztorch.terminal.progress import Progress


class Called(Protocol):
    """The callbacks of a run."""

    def has(self, name: str) -> bool: ...

    def call(self, name: str, *args: Any) -> None: ...


class _NoHooks:
    def has(self, name: str) -> bool:
        return False

    def call(self, name: str, *args: Any) -> None:
        pass


NO_HOOKS = _NoHooks()


def _never() -> bool:
    return False


def evaluate(calls_of: Calls, batches: BatchSource, program: Scored,
             progress: Progress | None = None, stop: Callable[[], bool] = _never,
             steps: int | None = None, hooks: Called = NO_HOOKS) -> dict[str, Any] | None:
    """Loss and metrics of a program over all batches or the first `steps`; None if `stop` ended the
    loop."""
    hooks.call("on_test_begin", {})
    begins, ends = hooks.has("on_test_batch_begin"), hooks.has("on_test_batch_end")
    with calls_of.of_each_bucket("evaluate") as calls:
        scores, step = EpochScores(program, "evaluate"), 0
        under_way = UnderWay(lambda step, batch, begun: batch.add_to(scores))
        if steps is not None and batches.steps is not None:
            steps = min(steps, batches.steps)  # no row counts twice
        if progress:
            progress.begin(steps=steps or batches.steps)
        in_a_row = None if begins or ends else scores  # a hook is called for each batch
        for batch in batches.epoch(calls, steps=steps, scores=in_a_row):
            if begins:
                hooks.call("on_test_batch_begin", step, {})
            if batch.weight:
                under_way.begin(step, batch, ahead=not ends)
            if ends:
                hooks.call("on_test_batch_end", step, scores.means())
            step += batch.steps
            if progress and progress.live and perf_counter() > progress.due:
                progress.draw(step, scores.means())
            if stop():
                return None
        under_way.finish()
        means = scores.means()
        if progress:
            progress.trained(step)
            progress.end(means)
    hooks.call("on_test_end", dict(means))
    return means


def predict(pool: CallPool, batches: BatchSource, results: Results,
            progress: Progress | None = None, steps: int | None = None, hooks: Called = NO_HOOKS,
            as_declared: Callable[[Any], Any] = dict) -> Outputs:
    """The model's outputs for every row of all batches or the first `steps`, through `results`;
    callbacks see those of a batch as they were declared."""
    begins, ends = hooks.has("on_predict_batch_begin"), hooks.has("on_predict_batch_end")
    hooks.call("on_predict_begin", {})
    with pool.of_each_bucket("predict") as calls:
        step = 0
        if progress:
            progress.begin(steps=steps or batches.steps)
        under_way = UnderWay(lambda step, batch, begun: results.add(batch))
        for batch in batches.epoch(calls, steps=steps):
            assert isinstance(batch, Batch), "only scores are added in stretches"
            if begins:
                hooks.call("on_predict_batch_begin", step, {})
            if not ends:
                results.prepare(batch)
            under_way.begin(step, batch, ahead=not ends)
            if ends:
                outputs = {name: y[:batch.real].copy() for name, y in batch.call.outputs.items()}
                hooks.call("on_predict_batch_end", step, {"outputs": as_declared(outputs)})
            step += 1
            if progress and progress.live and perf_counter() > progress.due:
                progress.draw(step, {})
        under_way.finish()
        if progress:
            progress.trained(step)
            progress.end({})
    hooks.call("on_predict_end", {})
    return results.outputs()
