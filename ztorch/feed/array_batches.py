"""Batches of arrays: the rows of one epoch after another, in a fixed or a shuffled order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ztorch.dtypes import DType
from ztorch.errors import ConfigError
from ztorch.feed.adapter import Columns, DataAdapter, rows_of
from ztorch.feed.columns import store

Staging = Mapping[str, np.ndarray]  # the buffers that a native call reads, by input
Filled = tuple[int, float]  # rows of a batch that are real, and the sum of their weights


def permutation(seed: int, epoch: int, rows: int) -> np.ndarray:
    """The order of rows in an epoch: a function of seed and epoch, and of nothing else.

    >>> bool((permutation(7, 0, 50) == permutation(7, 0, 50)).all())
    True
    """
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, epoch], np.uint64)
    # NumPy promises that the raw bits of Philox never change. It makes no such promise for
    # Generator.permutation. So rows are sorted by raw random numbers. The low bits hold the row
    # itself: no two keys are equal, and every sorting algorithm gives the same order.
    row_bits = np.uint64((1 << max(rows - 1, 1).bit_length()) - 1)
    keys = np.random.Philox(key=key).random_raw(rows)
    keys = (keys & ~row_bits) | np.arange(rows, dtype=np.uint64)
    keys.sort()
    return (keys & row_bits).astype(np.intp)


class _Copier:
    """Copies rows of one array to its staging buffer, converting where dtypes differ."""

    __slots__ = ("_dtype", "_gathered", "_source", "_staging")

    def __init__(self, source: np.ndarray, staging: np.ndarray, dtype: DType):
        self._source, self._staging, self._dtype = source, staging, dtype
        same_dtype = source.dtype == staging.dtype and dtype.in_numpy
        self._gathered = staging if same_dtype else np.empty(staging.shape, source.dtype)

    def gather(self, rows: np.ndarray) -> None:
        """A full batch of the rows with these numbers."""
        # mode "clip" writes straight into `out`; the default mode gathers into a copy first
        self._source.take(rows, 0, self._gathered, "clip")
        if self._gathered is not self._staging:
            store(self._staging, self._dtype, self._gathered)

    def slice(self, start: int, stop: int) -> None:
        """Consecutive rows."""
        store(self._staging[:stop - start], self._dtype, self._source[start:stop])


class ArrayBatches:
    """Batches of arrays in memory (or memory-mapped).

    Steps are numbered through all epochs, and step k depends on k alone. So an epoch of any length
    continues where the one before it stopped, and a resumed run gets the batches that it would
    have got.

    Args:
        adapter: Knows the inputs and targets of the program.
        columns: The arrays, by input and target.
        weights: The weight of each row, or None where all weigh the same.
        batch_size: The rows of a batch.
        seed: Shuffles the rows of each epoch; None keeps their order. Default: `None`.
    """

    def __init__(self, adapter: DataAdapter, columns: Columns, weights: np.ndarray | None,
                 batch_size: int, seed: int | None = None):
        self.columns, self.weights = columns, weights
        self.rows = rows_of(columns)
        adapter.need_whole_batches(self.rows, batch_size)
        self.batch_size = batch_size
        self.steps = -(-self.rows // batch_size)
        self._adapter = adapter
        self._seed = seed

    def epoch(self, staging: Staging, number: int = 0, steps: int | None = None,
              ) -> Iterator[Filled]:
        """Fills the staging buffers once for each step of an epoch."""
        dtypes = self._adapter.dtypes
        copiers = [_Copier(array, staging[name], dtypes[name])
                   for name, array in self.columns.items()
                   if name in staging]  # no loss depends on the others
        weights = staging.get("w")
        count = steps or self.steps
        batch_size, order, seed = self.batch_size, None, self._seed
        if weights is not None:
            weights.fill(1.0)
        for step in range(number * count, (number + 1) * count):
            data_pass, position = divmod(step, self.steps)
            if seed is not None and (order is None or position == 0):
                order = permutation(seed, data_pass, self.rows)
            start = position * batch_size
            real = min(batch_size, self.rows - start)
            if order is None and (real == batch_size or weights is None):
                for copier in copiers:  # (rows of old data after them do not matter to predict)
                    copier.slice(start, start + real)
                rows = None
            else:
                rows = (np.arange(start, start + real) if order is None
                        else order[start:start + real])
                if real < batch_size:
                    rows = rows[np.arange(batch_size) % real]
                for copier in copiers:
                    copier.gather(rows)
            if weights is None:
                yield real, float(real)
                continue
            if self.weights is not None:
                weights[...] = (self.weights[start:start + batch_size] if rows is None
                                else self.weights[rows])
            if real == batch_size:
                yield real, float(batch_size if self.weights is None
                                  else weights.sum(dtype=np.float64))
            else:
                weights[real:] = 0.0
                yield real, float(weights.sum(dtype=np.float64))
                weights.fill(1.0)

    def split(self, fraction: float) -> tuple[ArrayBatches, ArrayBatches]:
        """The first rows for training, and the last `fraction` of them for validation."""
        at = int(self.rows * (1.0 - fraction))
        if not 0.0 < fraction < 1.0 or at == 0 or at == self.rows:
            raise ConfigError(f"validation_split={fraction} of {self.rows} rows leaves one side "
                              "empty; use a fraction such as 0.1")
        return self._part(slice(0, at), self._seed), self._part(slice(at, self.rows), None)

    def weigh_classes(self, class_weight: Mapping[int, float] | None) -> None:
        """Multiplies the weight of each row by that of its class."""
        self.weights = self._adapter.weights(self.weights, class_weight, self.columns, self.rows)

    def _part(self, rows: slice, seed: int | None) -> ArrayBatches:
        columns = {name: array[rows] for name, array in self.columns.items()}
        weights = None if self.weights is None else self.weights[rows]
        return ArrayBatches(self._adapter, columns, weights, self.batch_size, seed)
