"""Batches of arrays: the rows of one epoch after another, in a fixed or a shuffled order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztorch.dtypes import DType
from ztorch.errors import ConfigError
from ztorch.feed.adapter import Columns, DataAdapter, rows_of
from ztorch.feed.columns import reads_in_place, store
from ztorch.feed.sequences import Ragged

if TYPE_CHECKING:
    from ztorch.feed.call_pool import BorrowedCalls
    from ztorch.runtime.running import BoundCall

Staging = Mapping[str, np.ndarray]  # the buffers that a native call reads, by input
Rows = slice | np.ndarray  # consecutive rows, or the numbers of rows


class Batch(NamedTuple):
    """A batch that lies in the input buffers of a call."""

    call: BoundCall
    real: int  # rows of the data; those after them fill up the batch
    weight: float  # what its scores count in those of an epoch
    rows: Rows  # which rows they are
    lengths: dict[str, np.ndarray]  # their sizes along axes that vary


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


def weight_of_scores(call: BoundCall, real: int, row_weights: np.ndarray) -> float:
    """What the scores of a batch count in those of an epoch: as many as it has rows. Programs that
    know no such rows, those of older artifacts, divide by the weights of rows instead."""
    return float(real if "real" in call.inputs else row_weights.sum(dtype=np.float64))


class _Copier:
    """Copies rows of one array to its staging buffer, converting where dtypes differ."""

    __slots__ = ("_call", "_dtype", "_gathered", "_name", "_source", "_staging")

    def __init__(self, source: np.ndarray, call: BoundCall, name: str, dtype: DType):
        staging = call.inputs[name]
        self._source, self._staging, self._dtype = source, staging, dtype
        self._call, self._name = call, name
        same_dtype = source.dtype == staging.dtype and dtype.in_numpy
        self._gathered = staging if same_dtype else np.empty(staging.shape, source.dtype)

    def gather(self, rows: np.ndarray) -> None:
        """A full batch of the rows with these numbers."""
        # mode "clip" writes straight into `out`; the default mode gathers into a copy first
        self._source.take(rows, 0, self._gathered, "clip")
        if self._gathered is not self._staging:
            store(self._staging, self._dtype, self._gathered)

    def slice(self, rows: slice) -> None:
        """Consecutive rows, as the first of the buffer; a full batch is read where it lies."""
        part = self._source[rows]
        if not reads_in_place(self._call, self._name, part, self._dtype):
            store(self._staging[:len(part)], self._dtype, part)


class _SequenceCopier:
    """Copies sequences to their staging buffer, and fills them up to its size."""

    __slots__ = ("_dtype", "_source", "_staging")

    def __init__(self, source: Ragged, staging: np.ndarray, dtype: DType):
        self._source, self._staging, self._dtype = source, staging, dtype

    def gather(self, rows: np.ndarray) -> None:
        """The rows with these numbers, as the first of the buffer."""
        target, shape = self._staging[:len(rows)], self._staging.shape[1:]
        if self._source.dtype == target.dtype and self._dtype.in_numpy:
            self._source.padded(rows, shape, target)
        else:
            store(target, self._dtype, self._source.padded(rows, shape))

    def slice(self, rows: slice) -> None:
        """Consecutive rows, as the first of the buffer."""
        self.gather(np.arange(rows.start, rows.stop))


class _Stage:
    """Fills the input buffers of one call."""

    def __init__(self, columns: Columns, row_weights: np.ndarray | None, call: BoundCall,
                 dtypes: Mapping[str, DType]):
        staging = call.inputs
        self.call = call
        self._copiers = [
            _SequenceCopier(array, staging[name], dtypes[name]) if isinstance(array, Ragged) else
            _Copier(array, call, name, dtypes[name])
            for name, array in columns.items() if name in staging]  # no loss depends on the others
        self._real = staging.get("real")
        self._weights = staging.get("w")  # None: the function predicts
        self._row_weights = row_weights
        self._size = len(next(iter(staging.values())))
        self._ones = False  # whether all of `_weights` are 1 now

    def fill(self, rows: Rows, count: int, lengths: dict[str, np.ndarray]) -> Batch:
        """Some rows, no more than the buffers hold. The rest of the buffers gets these rows again,
        at weight 0; to predict, it keeps rows of older data, which do no harm."""
        full, weights = count == self._size, self._weights
        self.call.release()
        if isinstance(rows, slice) and (full or weights is None):
            for copier in self._copiers:
                copier.slice(rows)
        else:
            numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            if not full:
                numbers = numbers[np.arange(self._size) % count]
            for copier in self._copiers:
                copier.gather(numbers)
        if self._real is not None:
            self._real[:count], self._real[count:] = 1, 0
        if weights is None:
            return Batch(self.call, count, float(count), rows, lengths)
        if self._row_weights is not None:
            weights[:count] = self._row_weights[rows]
        elif not (full and self._ones):
            weights[:count] = 1.0
        weights[count:] = 0.0
        self._ones = full and self._row_weights is None
        return Batch(self.call, count, weight_of_scores(self.call, count, weights), rows, lengths)


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
        self._adapter = adapter
        self._seed = seed
        self.lengths = adapter.lengths(columns)
        self._groups = self._rows_by_length()
        self.steps = len(self._slices())

    def epoch(self, calls: BorrowedCalls, number: int = 0,
              steps: int | None = None) -> Iterator[Batch]:
        """For each step of an epoch, fills the buffers of the call that fits it."""
        stages: dict[BoundCall, _Stage] = {}
        for rows, real in self.rows_of_steps(number, steps):
            lengths = {axis: n[rows] for axis, n in self.lengths.items()}
            call = calls.fitting((real, *[int(n.max()) for n in lengths.values()]))
            stage = stages.get(call)
            if stage is None:
                stage = stages[call] = _Stage(self.columns, self.weights, call,
                                              self._adapter.dtypes)
            yield stage.fill(rows, real, lengths)

    def rows_of_steps(self, number: int, steps: int | None) -> Iterator[tuple[Rows, int]]:
        """For each step of an epoch, which rows its batch has and how many these are."""
        count = steps or self.steps
        plan: list[Rows] = []
        for step in range(number * count, (number + 1) * count):
            data_pass, position = divmod(step, self.steps)
            if not plan or (self._seed is not None and position == 0):
                plan = self._plan(data_pass)
            rows = plan[position]
            yield rows, rows.stop - rows.start if isinstance(rows, slice) else len(rows)

    def _plan(self, data_pass: int) -> list[Rows]:
        """The rows of each batch of a pass over the data. Rows of one bucket of lengths go
        together; what is left of them goes with longer ones. So only the last batch is not full."""
        slices = self._slices()
        order = None if self._seed is None else permutation(self._seed, data_pass, self.rows)
        if self._groups is None:
            return slices if order is None else [order[rows] for rows in slices]
        order = np.arange(self.rows) if order is None else order
        by_length = order[np.argsort(self._groups[order], kind="stable")]
        batches: list[Rows] = [by_length[rows] for rows in slices]
        if self._seed is None:
            return batches
        return [batches[k] for k in permutation(self._seed, data_pass, len(batches))]

    def _slices(self) -> list[Rows]:
        """The rows of each batch, numbered in the order of their groups. A batch has rows of
        several groups unless they are never filled up."""
        ends = [self.rows]
        if self._groups is not None and self._adapter.buckets.whole_axes:
            ends = np.cumsum(np.unique(self._groups, return_counts=True)[1]).tolist()
        size = self.batch_size
        return [slice(at, min(at + size, end)) for start, end in pairwise([0, *ends])
                for at in range(start, end, size)]

    def _rows_by_length(self) -> np.ndarray | None:
        """A number for each row, the same for rows of one bucket of lengths; None where there is
        one such bucket, and where a layer remembers states: then the order of rows stays."""
        if self.lengths and self._adapter.stateful:
            return None
        group = np.zeros(self.rows, np.intp)
        for axis, lengths in self.lengths.items():
            sizes = self._adapter.buckets.axes[axis]
            group = group * len(sizes) + np.searchsorted(sizes, lengths)
        return group if (group != group[0]).any() else None

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
