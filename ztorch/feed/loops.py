"""The loops of evaluate and predict: they leave the weights as they are."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from ztorch.feed.call_pool import CallPool, Calls

if TYPE_CHECKING:
    from ztorch.feed.batches import BatchSource
    from ztorch.progress import Progress
    from ztorch.runtime.running import BoundCall

Outputs = dict[str, np.ndarray]  # y, or y/NAME where there are several


class MeanScores:
    """The means of loss and metrics over an epoch. Each batch counts by its weight."""

    __slots__ = ("_names", "_readers", "_sums", "_weight")

    def __init__(self, call: BoundCall):
        self._names = ["loss", *(name for name in call.outputs if name != "loss")]
        self._readers = [call.outputs[name].item for name in self._names]
        self._sums = [0.0] * len(self._names)
        self._weight = 0.0

    def add(self, weight: float) -> float:
        """Adds the scores of the batch that the call has just computed; returns its loss."""
        values = [read() for read in self._readers]
        self._sums = [s + v * weight for s, v in zip(self._sums, values)]  # noqa: B905 (hot)
        self._weight += weight
        return values[0]

    def means(self) -> dict[str, float]:
        """The means so far."""
        weight = self._weight or 1.0  # an epoch without weight scores 0
        return {name: s / weight for name, s in zip(self._names, self._sums, strict=True)}


def _never() -> bool:
    return False


def evaluate(calls: Calls, batches: BatchSource, progress: Progress | None = None,
             stop: Callable[[], bool] = _never, steps: int | None = None,
             ) -> dict[str, float] | None:
    """Loss and metrics over all batches, or the first `steps`; None if `stop` ended the loop."""
    with calls.borrow("evaluate") as call:
        scores, done = MeanScores(call), 0
        if steps is not None and batches.steps is not None:
            steps = min(steps, batches.steps)  # no row counts twice
        if progress:
            progress.begin(steps=steps or batches.steps)
        for _, weight in batches.epoch(call.inputs, steps=steps):
            if weight:
                call()
                scores.add(weight)
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


def predict(calls: CallPool, batches: BatchSource, progress: Progress | None = None) -> Outputs:
    """The model's outputs for every row."""
    with calls.borrow("predict") as call:
        outputs, total = call.outputs, getattr(batches, "rows", 0)  # 0: not known beforehand
        whole = {name: np.empty((total, *y.shape[1:]), y.dtype) for name, y in outputs.items()}
        parts: dict[str, list[np.ndarray]] = {name: [] for name in outputs}
        done = row = 0
        if progress:
            progress.begin(steps=batches.steps)
        for rows, _ in batches.epoch(call.inputs):
            call()
            for name, y in outputs.items():
                if total:
                    whole[name][row:row + rows] = y[:rows]
                else:
                    parts[name].append(y[:rows].copy())
            row, done = row + rows, done + 1
            if progress and progress.live and perf_counter() > progress.due:
                progress.draw(done, {})
        if progress:
            progress.trained(done)
            progress.end({})
        return whole if total else {name: np.concatenate(p) for name, p in parts.items()}
