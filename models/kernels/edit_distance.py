"""Dynamic programming: how many letters must change to make one word of another.

Each cell needs the one above, the one to the left and the one between, so the loops run in order.
Nobody has to say so.
"""

import numpy as np

import ztorch as zt


@zt.kernel
def edit_distance(a, b):
    """Levenshtein's distance of two sequences of integers."""
    rows, columns = a.shape[0] + 1, b.shape[0] + 1
    steps = np.zeros((rows, columns), np.int32)
    for i in range(rows):
        steps[i, 0] = i
    for j in range(columns):
        steps[0, j] = j
    for i in range(1, rows):
        for j in range(1, columns):
            change = 0 if a[i - 1] == b[j - 1] else 1
            steps[i, j] = min(steps[i - 1, j - 1] + change,
                              steps[i - 1, j] + 1, steps[i, j - 1] + 1)
    return steps[rows - 1, columns - 1]
