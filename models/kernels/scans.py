"""Loops whose iterations need the one before.

`total` is read in the iteration after the one that sets it, so the iterations of the inner loop run
in order. The rows do not depend on one another: they still run at once.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def running_sum(x):
    """The sum of each row up to every element."""
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        total = 0.0
        for t in range(x.shape[1]):
            total += x[i, t]
            out[i, t] = total
    return out


@zt.kernel
def running_max(x):
    """The largest element of each row so far."""
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        best = -math.inf
        for t in range(x.shape[1]):
            best = max(best, x[i, t])
            out[i, t] = best
    return out


@zt.kernel
def leaky_sum(x, keep):
    """`h = keep * h + x` along each row, as in a recurrent layer: `keep` says how much stays."""
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        h = 0.0
        for t in range(x.shape[1]):
            h = keep[i, t] * h + x[i, t]
            out[i, t] = h
    return out
