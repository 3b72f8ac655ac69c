"""Rows of different lengths, one after the other in one array: row r goes from `starts[r]` to
`starts[r + 1]`. Sparse matrices, graphs and batches of sentences come that way.

The bounds of the inner loops are data, so each row runs by itself, as long as it is. `zt.grid`
says that rows have no order, which the compiler cannot see where `out[k]` is written.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def sparse_product(starts, columns, values, x):
    """A sparse matrix times a vector: row r has `values[k]` in column `columns[k]`."""
    out = np.empty(starts.shape[0] - 1, values.dtype)
    for r in range(starts.shape[0] - 1):
        total = 0.0
        for k in range(starts[r], starts[r + 1]):
            total += values[k] * x[columns[k]]
        out[r] = total
    return out


@zt.kernel(max_steps=1000)
def ragged_softmax(x, starts):
    """softmax of each row, of up to 1000 elements: the gradient keeps all values of a row."""
    out = np.empty_like(x)
    for r in zt.grid(starts.shape[0] - 1):
        high, total = -math.inf, 0.0
        for k in range(starts[r], starts[r + 1]):
            high = max(high, x[k])
        for k in range(starts[r], starts[r + 1]):
            out[k] = math.exp(x[k] - high)
            total += out[k]
        for k in range(starts[r], starts[r + 1]):
            out[k] /= total
    return out
