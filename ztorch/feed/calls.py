"""Runs of native calls that leave the weights as they are, and how calls are shared by threads."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ztorch.feed.batches import Batches
    from ztorch.progress import Progress
    from ztorch.runtime.running import BoundCall, Running


Outputs = dict[str, np.ndarray]  # y, or y/NAME where there are several


class Calls:
    """The bound calls of an executable, lent to one thread at a time and used again."""

    def __init__(self, executable: Running):
        self._executable = executable
        self._free: dict[str, deque[BoundCall]] = defaultdict(deque)

    def lend(self, function: str) -> Lent:
        """A call for a `with` block."""
        free = self._free[function]
        try:
            call = free.pop()  # atomic, so no lock
        except IndexError:
            call = self._executable.bind(function)
        return Lent(call, free)


class Lent:
    """A call that goes back when its block ends."""

    __slots__ = ("_call", "_home")

    def __init__(self, call: BoundCall, home: deque[BoundCall]):
        self._call, self._home = call, home

    def __enter__(self) -> BoundCall:
        return self._call

    def __exit__(self, *exception: object) -> None:
        self._home.append(self._call)


class Meter:
    """Means over an epoch of what a call measures: each batch counts by its weight."""

    __slots__ = ("_names", "_reads", "_sums", "_weight")

    def __init__(self, call: BoundCall):
        self._names = ["loss", *(n for n in call.outputs if n != "loss")]
        self._reads = [call.outputs[n].item for n in self._names]
        self._sums = [0.0] * len(self._names)
        self._weight = 0.0

    def add(self, weight: float) -> float:
        """Takes in the last call's values and gives its loss."""
        values = [read() for read in self._reads]
        self._sums = [s + v * weight for s, v in zip(self._sums, values)]  # noqa: B905 (hot)
        self._weight += weight
        return values[0]

    def means(self) -> dict[str, float]:
        weight = self._weight or 1.0  # an epoch without weight scores 0
        return {n: s / weight for n, s in zip(self._names, self._sums, strict=True)}


def never() -> bool:
    return False


def evaluate(calls: Calls, batches: Batches, progress: Progress | None = None,
             stop: Callable[[], bool] = never, steps: int | None = None) -> dict[str, float] | None:
    """Loss and metrics over all batches, or the first `steps`; None if asked to stop."""
    with calls.lend("evaluate") as call:
        meter, done = Meter(call), 0
        if steps is not None and batches.steps is not None:
            steps = min(steps, batches.steps)  # no row counts twice
        if progress:
            progress.begin(steps=steps or batches.steps)
        for _, weight in batches.epoch(call.inputs, steps=steps):
            if weight:
                call()
                meter.add(weight)
            done += 1
            if progress and progress.live and perf_counter() > progress.due:
                progress.draw(done, meter.means())
            if stop():
                return None
        means = meter.means()
        if progress:
            progress.trained(done)
            progress.end(means)
        return means


def predict(calls: Calls, batches: Batches, progress: Progress | None = None) -> Outputs:
    """The model's outputs for every row."""
    with calls.lend("predict") as call:
        outputs, total = call.outputs, getattr(batches, "rows", 0)
        whole = {n: np.empty((total, *y.shape[1:]), y.dtype) for n, y in outputs.items()}
        parts: dict[str, list[np.ndarray]] = {n: [] for n in outputs}
        done = row = 0
        if progress:
            progress.begin(steps=batches.steps)
        for rows, _ in batches.epoch(call.inputs):
            call()
            for n, y in outputs.items():
                if total:
                    whole[n][row:row + rows] = y[:rows]
                else:
                    parts[n].append(y[:rows].copy())
            row, done = row + rows, done + 1
            if progress and progress.live and perf_counter() > progress.due:
                progress.draw(done, {})
        if progress:
            progress.trained(done)
            progress.end({})
        return whole if total else {n: np.concatenate(part) for n, part in parts.items()}
