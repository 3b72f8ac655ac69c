"""The likelihood of labels without time positions, as a kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.kernels import grid, kernel

NEVER = -1e30  # log-probability of impossible events; finite, so that its sums are finite


@kernel
def unlikelihood(labels: Any, logs: Any, label_counts: Any, step_counts: Any, blank: Any) -> Any:
    """The negative log-probability of each row's labels, over all alignments in time.

    A path visits states: a blank, the first label, a blank ... a blank. An iteration computes the
    probability of being in each state after one more step.

    Args:
        labels: Class numbers `(rows, labels)`.
        logs: Logarithms of probabilities `(rows, steps, classes)`.
        label_counts: Number of labels in each row.
        step_counts: Number of steps in each row.
        blank: The class of the blank.
    """
    (rows, steps, _), places = logs.shape, 2 * labels.shape[1] + 1
    out = np.empty(rows, logs.dtype)
    for r in range(rows):
        classes = np.full(places, blank, np.int32)
        for k in range(labels.shape[1]):
            classes[2 * k + 1] = labels[r, k]
        emitted = np.empty((steps, places), logs.dtype)
        for t, s in grid(steps, places):
            emitted[t, s] = logs[r, t, classes[s]]
        paths = np.full(places, NEVER, logs.dtype)
        paths[:2] = emitted[0, :2]
        for t in range(1, steps):
            new = np.empty_like(paths)
            for s in range(places):
                skips = s > 1 and classes[s] != blank and classes[s] != classes[s - 2]
                one_back = paths[s - 1] if s > 0 else NEVER
                two_back = paths[s - 2] if skips else NEVER
                new[s] = log_sum(paths[s], one_back, two_back) + emitted[t, s]
            if t < step_counts[r]:
                paths = new
        last = 2 * label_counts[r]
        out[r] = -np.logaddexp(paths[last], paths[last - 1] if last > 0 else NEVER)
    return out


def log_sum(a: Any, b: Any, c: Any) -> Any:
    """log(exp(a) + exp(b) + exp(c))."""
    top = max(a, b, c)
    return top + math.log(math.exp(a - top) + math.exp(b - top) + math.exp(c - top))
