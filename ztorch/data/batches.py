"""What data in files has in common: rows read batch by batch, again in every epoch."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np

from ztorch.config import fraction, positive, whole, whole_seed
from ztorch.data.registry import Pair
from ztorch.errors import ConfigError


def shuffled(seed: int, number: int, rows: int) -> np.ndarray:
    """The order of rows in one pass: a function of seed and pass, the same in every NumPy.

    >>> bool((np.sort(shuffled(7, 0, 50)) == np.arange(50)).all())
    True
    """
    key = np.array([seed, number], np.uint64)  # NumPy promises these raw numbers for ever
    return np.argsort(np.random.Philox(key=key).random_raw(rows), kind="stable")


class Batches:
    """Batches (x, y) to iterate over: once an epoch, as often as wanted; `len` counts them.

    With a seed, each pass has an order of its own, which depends on the seed and `epoch`, the
    number of the next pass. Set `epoch` to go on where an earlier run stopped. Files that change
    while they are read are the reader's risk.
    """

    def __init__(self, rows: int, batch_size: int, seed: int | None):
        self.batch_size = positive(f"{type(self).__name__}: batch_size", batch_size)
        self.seed = None if seed is None else whole_seed(seed)
        self.epoch = 0
        self._rows = np.arange(rows)  # those of the whole that are here

    @property
    def rows(self) -> int:
        """How many rows all batches have together."""
        return len(self._rows)

    def __len__(self) -> int:
        return -(-len(self._rows) // self.batch_size)

    def __iter__(self) -> Iterator[Pair]:
        order = self._rows
        if self.seed is not None:
            order = order[shuffled(self.seed, whole("epoch", self.epoch), len(order))]
        self.epoch += 1
        for k in range(0, len(order), self.batch_size):
            yield self.read(order[k:k + self.batch_size])

    def read(self, rows: np.ndarray) -> Pair:
        """x and y of some rows, by their numbers."""
        raise NotImplementedError

    def arrays(self) -> Pair:
        """All rows as x and y in memory, in the order of the files."""
        parts = [self.read(self._rows[k:k + self.batch_size])
                 for k in range(0, len(self._rows), self.batch_size)]
        x, y = zip(*parts, strict=True)
        return np.concatenate(x), np.concatenate(y)

    def split(self, share: float) -> tuple[Batches, Batches]:
        """Training rows, and a share of all for validation: drawn once, the same for everyone.

            train, validation = zt.data.image_folder("photos", size=(64, 64), seed=0).split(0.2)
            program.fit(train, validation_data=validation)
        """
        count = int(len(self._rows) * fraction("split(...)", share))
        if not 0 < count < len(self._rows):
            raise ConfigError(f"a share of {share} of {len(self._rows)} rows leaves one side empty")
        order = shuffled(0, 0, len(self._rows))
        return (self._part(np.sort(self._rows[order[count:]]), self.seed),
                self._part(np.sort(self._rows[order[:count]]), None))

    def _part(self, rows: np.ndarray, seed: int | None) -> Batches:
        part = copy.copy(self)
        part._rows, part.seed, part.epoch = rows, seed, 0
        return part
