"""A table for regression, computed.

J. Friedman, "Multivariate adaptive regression splines" (1991), his first function: ten numbers in
0..1, of which five decide, one of them by a square, two by a product, plus noise.
"""

from __future__ import annotations

import numpy as np

from ztorch.data.registry import Split, data_set

NOISE = 1.0  # standard deviation; its square is the least mean squared error of any model


@data_set("friedman")
def load_friedman(rows: int = 2000, columns: int = 10) -> Split:
    """x of shape (rows, columns) and y of shape (rows, 1); a fifth of the rows for the test.

    >>> (x, y), (x_test, y_test) = load_friedman()
    >>> x.shape, y_test.shape
    ((1600, 10), (400, 1))
    """
    # The raw numbers of this generator are the same in every version of NumPy; its distributions
    # may change. The sum of twelve uniform numbers is nearly normal.
    raw = np.random.PCG64(1991).random_raw(rows * (columns + 12))
    uniform = (raw.astype(np.float64) / 2.0**64).reshape(rows, columns + 12)
    x, noise = uniform[:, :columns], uniform[:, columns:].sum(1) - 6.0
    y = (10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3]
         + 5 * x[:, 4] + NOISE * noise)
    features, targets = x.astype(np.float32), y.astype(np.float32)[:, None]
    first = rows - rows // 5
    return (features[:first], targets[:first]), (features[first:], targets[first:])
