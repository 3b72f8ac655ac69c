"""Random numbers that are the same in every version of NumPy, for computed data sets."""

from __future__ import annotations

import numpy as np


class StableRandom:
    """Uniform random numbers, made from the raw numbers of a generator.

    NumPy keeps raw numbers stable between versions, but not its distributions.

    Args:
        seed: The seed.

    >>> StableRandom(7).between(0, 1, 2, 3).shape
    (2, 3)
    """

    def __init__(self, seed: int):
        self._generator = np.random.PCG64(seed)

    def between(self, low: float, high: float, *shape: int) -> np.ndarray:
        """Float64 numbers in a range."""
        raw = self._generator.random_raw(int(np.prod(shape)))
        return low + (high - low) * (raw.astype(np.float64) / 2.0**64).reshape(shape)

    def below(self, n: int, *shape: int) -> np.ndarray:
        """Int32 numbers from 0 to n - 1."""
        return self.between(0, n, *shape).astype(np.int32)

    def noise(self, level: float, *shape: int) -> np.ndarray:
        """Float32 numbers from -level to level, in steps of 1 / 127.5 of it, as pixels have."""
        count = int(np.prod(shape))
        words = self._generator.random_raw(-(-count // 8)).astype("<u8")
        return (words.view(np.uint8)[:count].reshape(shape) - np.float32(127.5)) * np.float32(
            level / 127.5)
