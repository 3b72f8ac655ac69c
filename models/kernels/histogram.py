"""How often each value occurs: iterations that write the same element must say how they combine.

`counts[...] += 1` does: sums come out right in any order. `counts[...] = 1` in a loop without order
is an error.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def histogram(x, low=0.0, high=1.0, bins=10):
    """The number of elements in each of `bins` parts from `low` to `high`; others do not count."""
    counts = np.zeros(bins, np.int32)
    for i in range(x.shape[0]):
        place = math.floor((x[i] - low) / (high - low) * bins)
        if 0 <= place < bins:
            counts[place] += 1
    return counts


@zt.kernel
def weighted_histogram(labels, weights, bins=10):
    """The sum of the weights of each label, from 0 to bins - 1."""
    sums = np.zeros(bins, weights.dtype)
    for i in range(labels.shape[0]):
        sums[labels[i]] += weights[i]
    return sums
