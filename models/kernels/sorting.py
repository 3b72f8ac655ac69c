"""The rows of a matrix, sorted: neighbours that are in the wrong order change places.

In every round all pairs are compared at once: first (0, 1), (2, 3) and so on, in the next round
(1, 2), (3, 4). After as many rounds as there are columns every row is in order. `row` is an array
of the kernel's own.
"""

import numpy as np

import ztorch as zt


@zt.kernel
def sort_rows(x):
    """Each row from its least to its largest element."""
    rows, n = x.shape
    out = np.empty_like(x)
    for i in range(rows):
        row = x[i].copy()
        for turn in range(n):
            swapped = row.copy()
            for j in range(n):
                k = j + 1 - 2 * ((j + turn) % 2)  # the partner in this round
                if 0 <= k < n:
                    swapped[j] = min(row[j], row[k]) if j < k else max(row[j], row[k])
            row = swapped
        out[i] = row
    return out
