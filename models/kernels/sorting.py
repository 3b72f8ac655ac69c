"""The rows of a matrix, sorted by a network: pairs that are in the wrong order change places.

Runs of 2 elements are sorted, then of 4, of 8 ... First each element of a run meets its mirror
image, so that all of one half are less than all of the other; then halves are divided likewise,
with partners half as far away in each step. All pairs of a step are compared at once, and `tuple`
has the loops over steps written out, so that each knows how far away partners are.
"""

import math

import ztorch as zt


@zt.kernel
def sort_rows(x):
    """Each row from its least to its largest element."""
    rows, n = x.shape
    columns = x.T.copy()  # neighbors are of different rows: whole vectors are compared
    for size in tuple(range(1, math.ceil(math.log2(n)) + 1)):
        for step in tuple(range(size)):
            distance = 2 ** size - 1 if step == 0 else 2 ** (size - step - 1)
            after = columns.copy()
            for j, i in zt.grid(n, rows):
                k = j ^ distance  # the partner; those behind the last would be infinite
                if k < n:
                    low, high = min(columns[j, i], columns[k, i]), max(columns[j, i], columns[k, i])
                    after[j, i] = low if j < k else high
            columns = after
    return columns.T
