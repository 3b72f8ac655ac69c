"""Batches of arrays: the rows of one epoch after another, in a fixed or a shuffled order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztorch.dtypes import DType
from ztorch.errors import ConfigError
from ztorch.feed.adapter import Columns, DataAdapter, rows_of
from ztorch.feed.columns import store

if TYPE_CHECKING:
    from ztorch.feed.call_pool import BorrowedCalls
    from ztorch.runtime.running import BoundCall

Staging = Mapping[str, np.ndarray]  # the buffers that a native call reads, by input
Rows = slice | np.ndarray  # consecutive rows, or the numbers of rows


class Batch(NamedTuple):
    """A batch that lies in the input buffers of a call."""

    call: BoundCall
    real: int  # rows of the data; those after them fill up the batch
    weight: float  # sum of the weights of these rows
    rows: Rows  # which rows they are


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

    def slice(self, rows: slice) -> None:
        """Consecutive rows, as the first of the buffer."""
        part = self._source[rows]
        store(self._staging[:len(part)], self._dtype, part)


class _Stage:
    """Fills the input buffers of one call."""

    def __init__(self, columns: Columns, row_weights: np.ndarray | None, call: BoundCall,
                 dtypes: Mapping[str, DType]):
        staging = call.inputs
        self.call = call
        self._copiers = [_Copier(array, staging[name], dtypes[name])
                         for name, array in columns.items()
                         if name in staging]  # no loss depends on the others
        self._weights = staging.get("w")  # None: the function predicts
        self._row_weights = row_weights
        self._size = len(next(iter(staging.values())))
        self._ones = False  # whether all of `_weights` are 1 now

    def fill(self, rows: Rows, count: int) -> Batch:
        """Some rows, no more than the buffers hold. The rest of the buffers gets these rows again,
        at weight 0; to predict, it keeps rows of older data, which do no harm."""
        full, weights = count == self._size, self._weights
        if isinstance(rows, slice) and (full or weights is None):
            for copier in self._copiers:
                copier.slice(rows)
        else:
            numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            if not full:
                numbers = numbers[np.arange(self._size) % count]
            for copier in self._copiers:
                copier.gather(numbers)
        if weights is None:
            return Batch(self.call, count, float(count), rows)
        if self._row_weights is not None:
            weights[:count] = self._row_weights[rows]
        elif not (full and self._ones):
            weights[:count] = 1.0
        weights[count:] = 0.0
        self._ones = full and self._row_weights is None
        total = count if self._row_weights is None else weights.sum(dtype=np.float64)
        return Batch(self.call, count, float(total), rows)


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
        self.batch_size = batch_size
        self.steps = -(-self.rows // batch_size)
        self._adapter = adapter
        self._seed = seed

    def epoch(self, calls: BorrowedCalls, number: int = 0,
              steps: int | None = None) -> Iterator[Batch]:
        """For each step of an epoch, fills the buffers of the call that fits it."""
        stages: dict[BoundCall, _Stage] = {}
        count = steps or self.steps
        order = None
        for step in range(number * count, (number + 1) * count):
            data_pass, position = divmod(step, self.steps)
            if self._seed is not None and (order is None or position == 0):
                order = permutation(self._seed, data_pass, self.rows)
            rows = slice(position * self.batch_size,
                         min((position + 1) * self.batch_size, self.rows))
            real = rows.stop - rows.start
            call = calls.fitting((real,))
            stage = stages.get(call)
            if stage is None:
                stage = stages[call] = _Stage(self.columns, self.weights, call,
                                              self._adapter.dtypes)
            yield stage.fill(rows if order is None else order[rows], real)

    def split(self, fraction: float) -> tuple[ArrayBatches, ArrayBatches]:
        """The first rows for training, and the last `fraction` of them for validation."""
        at = int(self.rows * (1.0 - fraction))
        if not 0.0 < fraction < 1.0 or at == 0 or at == self.rows:
            raise ConfigError(f"validation_split={fraction} of {self.rows} rows leaves one side "
                              "empty; use a fraction such as 0.1")
        return self._part(slice(0, at), self._seed), self._part(slice(at, self.rows), None)

    def _part(self, rows: slice, seed: int | None) -> ArrayBatches:
        columns = {name: array[rows] for name, array in self.columns.items()}
        weights = None if self.weights is None else self.weights[rows]
        return ArrayBatches(self._adapter, columns, weights, self.batch_size, seed)
