"""Softmax of each row: three passes that are written apart and run as one kernel."""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def softmax(x):
    """Positive numbers that add up to 1. The largest is subtracted first, so `exp` stays finite."""
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        top = -math.inf
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = 0.0
        for j in range(x.shape[1]):
            total += math.exp(x[i, j] - top)
        scale = 1.0 / total  # one division for the row: arithmetic is done as it is written
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - top) * scale
    return out
