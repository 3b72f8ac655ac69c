"""Results of many elements together.

A variable that every iteration of a loop changes in the same way (`+=`, `*=`, `max`, `min`, `and`,
`or`) is a reduction: its iterations run at once and are combined. A variable that is set before the
outer loop is combined over both loops; one that is set inside starts again in every row.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def norm(x):
    """The root of the sum of all squares: one number."""
    total = 0.0
    for i, j in zt.grid(*x.shape):
        total += x[i, j] * x[i, j]
    return math.sqrt(total)


@zt.kernel
def row_statistics(x):
    """Sum, product, least and largest element of each row."""
    rows, columns = x.shape
    out = np.empty((rows, 4), x.dtype)
    for i in range(rows):
        total, product, low, high = 0.0, 1.0, math.inf, -math.inf
        for j in range(columns):
            total += x[i, j]
            product *= x[i, j]
            low = min(low, x[i, j])
            high = max(high, x[i, j])
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = total, product, low, high
    return out


@zt.kernel
def row_truths(x, bound=0.0):
    """Whether any, and whether all elements of each row are larger than a bound."""
    some = np.empty(x.shape[0], np.bool_)
    every = np.empty(x.shape[0], np.bool_)
    for i in range(x.shape[0]):
        one, all_of_them = False, True
        for j in range(x.shape[1]):
            one = one or x[i, j] > bound
            all_of_them = all_of_them and x[i, j] > bound
        some[i], every[i] = one, all_of_them
    return some, every


@zt.kernel
def row_argmin(x):
    """Where the least element of each row is: the first of equal ones."""
    out = np.empty(x.shape[0], np.int32)
    for i in range(x.shape[0]):
        low, at = math.inf, 0
        for j in range(x.shape[1]):
            if x[i, j] < low:
                low, at = x[i, j], j
        out[i] = at
    return out


@zt.kernel
def row_max(x):
    """The largest element of each row and where it is: a pair."""
    value = np.empty(x.shape[0], x.dtype)
    place = np.empty(x.shape[0], np.int32)
    for i in range(x.shape[0]):
        best, at = -math.inf, 0
        for j in range(x.shape[1]):
            if x[i, j] > best:
                best, at = x[i, j], j
        value[i], place[i] = best, at
    return value, place
