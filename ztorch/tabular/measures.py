"""The quality of predictions: confusion, calibration, the worst of them, and feature importance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

BINS = 10  # of probabilities, for calibration
TINY = 1e-7  # the least probability in a logarithm
REPEATS = 3  # shuffles of a column


def confusion(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How many rows of each class (by row) were predicted to be of each class (by column).

    >>> confusion(np.array([0, 1, 1]), np.array([0, 0, 1]), 2).tolist()
    [[1, 0], [1, 1]]
    """
    return np.bincount(truth * classes + predicted, minlength=classes**2).reshape(classes, classes)


def calibration(truth: np.ndarray, probabilities: np.ndarray) -> list[tuple[float, float, int]]:
    """Of the predictions in each tenth of probability: how sure they were on average, how often
    they were right, and how many there are.

    >>> calibration(np.array([0, 0, 0]), np.array([[1.0, 0.0], [0.85, 0.15], [0.45, 0.55]]))
    [(0.55, 0.0, 1), (0.85, 1.0, 1), (1.0, 1.0, 1)]
    """
    sure = probabilities.max(1).astype(np.float64)
    right = probabilities.argmax(1) == truth
    at = np.minimum((sure * BINS).astype(int), BINS - 1)
    return [(round(float(sure[at == k].mean()), 6), float(right[at == k].mean()),
             int((at == k).sum())) for k in range(BINS) if (at == k).any()]


def calibration_error(bins: Sequence[tuple[float, float, int]]) -> float:
    """The expected calibration error: how far sureness and success differ, on average over rows.

    >>> calibration_error([(0.55, 0.0, 1), (0.95, 1.0, 1)])
    0.3
    """
    rows = sum(count for *_, count in bins)
    return round(sum(abs(sure - right) * count for sure, right, count in bins) / rows, 6)


def row_losses(truth: np.ndarray, outputs: np.ndarray, classifies: bool) -> np.ndarray:
    """The loss of each row: minus the logarithm of the true class's probability, or the absolute
    error.

    >>> row_losses(np.array([1.0, 2.0]), np.array([[1.5], [2.0]]), False).tolist()
    [0.5, 0.0]
    """
    if classifies:
        return -np.log(np.maximum(outputs[np.arange(len(truth)), truth], TINY))
    rows = len(truth)
    return np.abs(outputs.reshape(rows, -1) - truth.reshape(rows, -1)).mean(1)


Inputs = dict[str, np.ndarray]  # rows by input
Place = tuple[str, Sequence[int] | None]  # an input and the features of it; None: all of it


def permutation_importance(inputs: Inputs, columns: Mapping[str, Place],
                           score: Callable[[Inputs], float], seed: int = 0) -> dict[str, float]:
    """How much worse the score gets when the cells of a column are permuted among the rows: the
    contribution of this column alone. The most important comes first.

    Args:
        inputs: The inputs, of shape (rows, ...).
        columns: The columns of the features that belong together, by name.
        score: The loss for inputs; lower is better.
        seed: Of the shuffles.

    >>> x = np.arange(20.0).reshape(10, 2)
    >>> result = permutation_importance({"x": x}, {"a": ("x", [0]), "b": ("x", [1])},
    ...                                 lambda z: float(np.abs(z["x"][:, 0] - x[:, 0]).mean()))
    >>> result["a"] > 1, result["b"]
    (True, 0.0)
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    base = score(inputs)
    result = {}
    for name, (place, features) in columns.items():
        losses = []
        for _ in range(REPEATS):
            shuffled = inputs[place][rng.permutation(len(inputs[place]))]
            if features is not None:
                changed = inputs[place].copy()
                changed[:, features] = shuffled[:, features]
                shuffled = changed
            losses.append(score({**inputs, place: shuffled}))
        result[name] = float(np.mean(losses)) - base
    return dict(sorted(result.items(), key=lambda item: -item[1]))
