"""A computed table for regression: the first function of Friedman's "Multivariate adaptive
regression splines" (1991).

Of ten numbers from 0 to 1, five determine the target, to which noise is added.
"""

from __future__ import annotations

import numpy as np

from ztorch.data.registry import Split, data_set
from ztorch.data.stable_random import StableRandom

NOISE = 1.0  # its standard deviation; no model has a mean squared error below its square


@data_set("friedman")
def load_friedman(rows: int = 2000, columns: int = 10) -> Split:
    """x of shape (rows, columns) and y of shape (rows, 1); a fifth of the rows is the test set.

    >>> (x, y), (x_test, y_test) = load_friedman()
    >>> x.shape, y_test.shape
    ((1600, 10), (400, 1))
    """
    uniform = StableRandom(1991).between(0, 1, rows, columns + 12)
    # The sum of twelve uniform numbers is nearly normal.
    x, noise = uniform[:, :columns], uniform[:, columns:].sum(1) - 6.0
    y = (10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3]
         + 5 * x[:, 4] + NOISE * noise)
    features, targets = x.astype(np.float32), y.astype(np.float32)[:, None]
    first = rows - rows // 5
    return (features[:first], targets[:first]), (features[first:], targets[first:])
