"""1797 handwritten digits of 8 x 8 pixels, in the package: something real to train on at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ztorch.data.registry import Split, data_set

FILE = Path(__file__).with_name("digits.npz")


@data_set("digits")
def load_digits() -> Split:
    """Images of shape (8, 8, 1) in 0..1, and the digits 0..9 as int32."""
    with np.load(FILE, allow_pickle=False) as stored:
        x = stored["images"].astype(np.float32)[..., None] / 16.0
        y = stored["labels"].astype(np.int32)
    # Every fifth image of each digit: stratified, and the same for everyone for ever, which no
    # random generator promises.
    test = np.zeros(len(y), bool)
    for digit in range(10):
        test[np.flatnonzero(y == digit)[::5]] = True
    return (x[~test], y[~test]), (x[test], y[test])
