"""Rows with gaps to fill, computed: data for a model of masked words.

The second half of each row repeats the first, so the letters in a gap can be read in the other
half.
"""

from __future__ import annotations

import numpy as np

from ztorch.data.registry import Split, data_set

WORDS = 32  # the numbers in rows are below this; 0 is a gap
GAPS = 0.15  # the fraction of numbers that is hidden


@data_set("gaps")
def load_gaps(rows: int = 5000, length: int = 24) -> Split:
    """Rows of `length` numbers, some of them 0, and the rows as they were; a fifth for the test.

    >>> (x, y), _ = load_gaps()
    >>> x.shape, bool((y[:, :12] == y[:, 12:]).all()), round(float((x == 0).mean()), 2)
    ((4000, 24), True, 0.15)
    """
    # The raw numbers of this generator are the same in every version of NumPy.
    raw = np.random.PCG64(7).random_raw(rows * (length // 2 + length))
    uniform = (raw.astype(np.float64) / 2.0**64).reshape(rows, -1)
    half = (1 + uniform[:, :length // 2] * (WORDS - 1)).astype(np.int32)
    whole = np.concatenate([half, half], 1)
    seen = np.where(uniform[:, length // 2:] < GAPS, 0, whole).astype(np.int32)
    first = rows - rows // 5
    return (seen[:first], whole[:first]), (seen[first:], whole[first:])
