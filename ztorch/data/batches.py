"""Data in files: rows are read batch by batch, and again in every epoch."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch.config import fraction, positive, whole, whole_seed
from ztorch.data.registry import Pair
from ztorch.errors import ConfigError


def shuffled(seed: int, epoch: int, rows: int) -> np.ndarray:
    """The order of rows in an epoch: a function of seed and epoch, the same in every NumPy.

    >>> bool((np.sort(shuffled(7, 0, 50)) == np.arange(50)).all())
    True
    """
    key = np.array([seed, epoch], np.uint64)  # NumPy promises that raw numbers never change
    return np.argsort(np.random.Philox(key=key).random_raw(rows), kind="stable")


class Batches:
    """Base of batches (x, y) that are read from files: iterate over them once an epoch.

    With a seed, each epoch has an order of its own. It depends on the seed and on `epoch`, the
    number of the next epoch: set `epoch` to continue an earlier run. Files must not change while
    they are in use.

    Args:
        rows: How many rows there are.
        batch_size: The rows of a batch.
        seed: Shuffles the rows; None keeps their order.
    """

    def __init__(self, rows: int, batch_size: int, seed: int | None):
        self.batch_size = positive(f"{type(self).__name__}: batch_size", batch_size)
        self.seed = None if seed is None else whole_seed(seed)
        self.epoch = 0
        self._rows = np.arange(rows)  # of the files, that belong to these batches

    @property
    def rows(self) -> int:
        """The rows of all batches together."""
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

    def arrays(self) -> Any:
        """Reads all rows into memory.

        Returns:
            x and y, in the order of the files; x alone where there are no labels.
        """
        parts = [self.read(self._rows[k:k + self.batch_size])
                 for k in range(0, len(self._rows), self.batch_size)]
        if not isinstance(parts[0], tuple):
            return np.concatenate(parts)
        x, y = zip(*parts, strict=True)
        return np.concatenate(x), np.concatenate(y)

    def split(self, share: float) -> tuple[Batches, Batches]:
        """Splits the rows into training and validation. The choice is always the same.

        Args:
            share: The part of the rows for validation, between 0 and 1.

        Returns:
            Training batches and validation batches.

        Raises:
            ConfigError: One side would be empty.

        Examples:
            ```python
            train, validation = zt.data.image_folder("photos", size=(64, 64), seed=0).split(0.2)
            program.fit(train, validation_data=validation)
            ```
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
