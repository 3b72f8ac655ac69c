"""Rows of arrays on their way into the input buffers of a native call."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztorch.dtypes import DType
from ztorch.feed.adapter import Columns
from ztorch.feed.columns import reads_in_place, store
from ztorch.feed.sequences import Ragged

if TYPE_CHECKING:
    from ztorch.feed.other_sizes import LentStates
    from ztorch.feed.scores import EpochScores
    from ztorch.runtime.loaded_program import BoundCall, NativeSteps

Staging = Mapping[str, np.ndarray]  # the buffers that a native call reads, by input
Rows = slice | np.ndarray  # consecutive rows, or the numbers of rows


class Batch(NamedTuple):
    """A batch that is in the input buffers of a call."""

    call: BoundCall
    real: int  # rows of the data; those after them pad the batch
    weight: float  # of its scores in those of an epoch
    rows: Rows  # which rows they are
    lengths: dict[str, np.ndarray]  # their sizes along axes that vary
    states: LentStates | None = None  # those of another program, for the run

    @property
    def overlaps(self) -> bool:
        """Whether the host may continue during a run."""
        return self.call.overlaps and self.states is None

    @property
    def steps(self) -> int:
        """How many of an epoch it is."""
        return 1

    def start(self) -> None:
        """Starts a run of the call, which overlaps the host's work until `finish`."""
        self.call.start()

    def finish(self) -> None:
        """Waits for the run."""
        self.call.finish()

    def run(self) -> None:
        """Runs the call."""
        if self.states is None:
            self.call()
        else:
            with self.states:
                self.call()

    def add_to(self, scores: EpochScores) -> float:
        """Adds the scores of the call to those of an epoch; returns its loss."""
        return scores.add(self.call, self.weight)


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
        """Consecutive rows, as the first of the buffer; a full batch is read in place."""
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


class Kept:
    """The columns of a data set in the memory of the device that reads them again and again."""

    def __init__(self) -> None:
        self._columns: Any = None
        self._asked = False

    def of(self, call: BoundCall, columns: Mapping[str, np.ndarray]) -> Any:
        """The columns for `steps` of a call; None where the device keeps none."""
        if not self._asked:
            self._columns, self._asked = call.program.keep(columns), True
        return self._columns


class Stage:
    """Fills the input buffers of one call.

    Args:
        columns: All rows, by input and target.
        row_weights: The weight of each row; None where all weigh the same.
        call: The call.
        dtypes: The dtype of each input and target.
        kept: Where the rows are read again, their place on the device. Default: `None`.
    """

    def __init__(self, columns: Columns, row_weights: np.ndarray | None, call: BoundCall,
                 dtypes: Mapping[str, DType], device_columns: Kept | None = None):
        staging = call.inputs
        self.call = call
        self._copiers = [
            _SequenceCopier(array, staging[name], dtypes[name]) if isinstance(array, Ragged) else
            _Copier(array, call, name, dtypes[name])
            for name, array in columns.items() if name in staging]  # no loss depends on the others
        self._real = staging.get("real")
        self._weights = staging.get("w")  # None: the function predicts
        self._row_weights = row_weights
        self.size = len(next(iter(staging.values())))
        self._ones = False  # whether all of `_weights` are 1 now
        self._columns, self._dtypes, self._kept = columns, dtypes, device_columns

    @functools.cached_property
    def native(self) -> NativeSteps | None:
        """A runner of full batches in native code, if that can be."""
        if self._weights is None or self._real is None:
            return None
        arrays: dict[str, np.ndarray] = {}
        for name, array in self._columns.items():
            if name not in self.call.inputs:
                continue
            if isinstance(array, Ragged) or not self._dtypes[name].in_numpy:
                return None
            arrays[name] = array
        if self._row_weights is not None:
            arrays["w"] = self._row_weights
        return self.call.steps(arrays, self._kept and self._kept.of(self.call, arrays))

    def fill_weights(self) -> None:
        """Makes ready for full batches, whose rows all are real. Weights of rows come with them."""
        assert self._weights is not None and self._real is not None
        self.call.release()
        self._real[:] = 1
        self._weights[:] = 1.0
        self._ones = True

    def fill(self, rows: Rows, count: int, lengths: dict[str, np.ndarray]) -> Batch:
        """Some rows, no more than the buffers hold. The rest of the buffers gets these rows again,
        at weight 0; to predict, it keeps rows of older data, which do no harm."""
        full, weights = count == self.size, self._weights
        self.call.release()
        if isinstance(rows, slice) and (full or weights is None):
            for copier in self._copiers:
                copier.slice(rows)
        else:
            numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            if not full:
                numbers = numbers[np.arange(self.size) % count]
            for copier in self._copiers:
                copier.gather(numbers)
        if self._real is not None:
            self._real[:count], self._real[count:] = 1, 0
        if weights is not None and self._row_weights is not None:
            weights[:count], weights[count:] = self._row_weights[rows], 0.0
        elif weights is not None and not self._ones:
            weights[:], self._ones = 1.0, True
        return Batch(self.call, count, float(count), rows, lengths)
