"""Computed rows with gaps to fill, for a model that predicts masked words.

The second half of each row repeats the first, so that a number in a gap is known from the other
half.
"""

from __future__ import annotations

import numpy as np

from ztorch.data.registry import Split, data_set
from ztorch.data.stable_random import StableRandom

WORDS = 32  # numbers in rows are below this; 0 is a gap
GAPS = 0.15  # the fraction of numbers that are replaced by 0


@data_set("gaps")
def load_gaps(rows: int = 5000, length: int = 24) -> Split:
    """Rows of `length` numbers, some of them masked by 0, and the complete rows.

    A fifth is the test set.

    >>> (x, y), _ = load_gaps()
    >>> x.shape, bool((y[:, :12] == y[:, 12:]).all()), round(float((x == 0).mean()), 2)
    ((4000, 24), True, 0.15)
    """
    uniform = StableRandom(7).between(0, 1, rows, length // 2 + length)
    half = (1 + uniform[:, :length // 2] * (WORDS - 1)).astype(np.int32)
    complete = np.concatenate([half, half], 1)
    masked = np.where(uniform[:, length // 2:] < GAPS, 0, complete).astype(np.int32)
    first = rows - rows // 5
    return (masked[:first], complete[:first]), (masked[first:], complete[first:])
