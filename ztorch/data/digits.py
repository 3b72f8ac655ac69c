"""1,797 handwritten digits of 8 x 8 pixels, which ship with the package."""

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
    # The test set is every fifth image of each digit, so that it is stratified and never changes.
    test = np.zeros(len(y), bool)
    for digit in range(10):
        test[np.flatnonzero(y == digit)[::5]] = True
    return (x[~test], y[~test]), (x[test], y[test])


@data_set("digits_28")
def load_digits_28() -> Split:
    """The digits scaled by 3 and with a border of 2 pixels, (28, 28, 1), for models of MNIST.

    >>> (x, _), _ = load_digits_28()
    >>> x.shape
    (1433, 28, 28, 1)
    """
    (x, y), (x_test, y_test) = load_digits()

    def large(images: np.ndarray) -> np.ndarray:
        wide = images.repeat(3, axis=1).repeat(3, axis=2)
        return np.pad(wide, ((0, 0), (2, 2), (2, 2), (0, 0)))

    return (large(x), y), (large(x_test), y_test)
