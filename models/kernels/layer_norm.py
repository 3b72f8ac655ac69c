"""Layer normalization fused with the residual before it, as between the parts of a transformer.

A row is a value: `row.mean()` and arithmetic on it need no inner loop. Two arrays come back: the
sum, which is the next residual, and the normalized rows.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def add_layer_norm(x, residual, gamma, beta, eps=1e-5):
    """`x + residual`, and that with mean 0 and variance 1 in each row, scaled and shifted."""
    total = np.empty_like(x)
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        row = x[i] + residual[i]
        centered = row - row.mean()
        variance = (centered * centered).mean()
        scale = 1.0 / math.sqrt(variance + eps)  # one division for the row
        total[i] = row
        out[i] = centered * scale * gamma + beta
    return total, out


@zt.kernel
def rms_norm(x, gamma, eps=1e-6):
    """Each row divided by the root of the mean of its squares."""
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        squares = 0.0
        for j in range(x.shape[1]):
            squares += x[i, j] * x[i, j]
        scale = 1.0 / math.sqrt(squares / x.shape[1] + eps)
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * scale * gamma[j]
    return out
