"""Batches of tensors that are on the program's device: numbers of rows go there, rows stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ztorch.feed.array_batches import ArrayBatches
from ztorch.feed.staging import Batch


class _RowNumbers(NamedTuple):
    """Stands for an adapter whose only column is the numbers of rows."""

    need_whole_batches: Callable[[int, int], None]  # of the program's adapter

    def lengths(self, columns: Any) -> dict[str, np.ndarray]:
        """No axis varies."""
        return {}


class DeviceBatches:
    """Batches of columns on a device, in the order that `ArrayBatches` gives rows of arrays.

    Args:
        feed: The tensor feed of the program; see `dispatch.feed`.
        columns: Tensors by input and target.
        numbers: The numbers of the rows, with the weight of each.
    """

    def __init__(self, feed: Any, columns: Mapping[str, Any], numbers: ArrayBatches):
        self.feed = feed
        self._columns = columns
        self._numbers = numbers
        self.rows, self.steps = numbers.rows, numbers.steps

    @classmethod
    def of(cls, feed: Any, batch_size: int, x: Any, y: Any, sample_weight: Any = None,
           class_weight: Mapping[int, float] | None = None,
           seed: int | None = None) -> DeviceBatches:
        """The batches of x and y; the other arguments are those of `batches`."""
        columns = feed.columns(x, y)
        weights = feed.weights(sample_weight, class_weight, columns)
        rows = np.arange(len(next(iter(columns.values()))), dtype=np.int32)
        adapter: Any = _RowNumbers(feed.adapter.need_whole_batches)
        return cls(feed, columns, ArrayBatches(adapter, {"rows": rows}, weights, batch_size, seed))

    def epoch(self, calls: Any, number: int = 0, steps: int | None = None,
              scores: object = None) -> Iterator[Batch]:
        """For each step of an epoch, fills the inputs of the call that fits it."""
        numbers = np.asarray(self._numbers.columns["rows"])
        row_weights = self._numbers.weights
        for rows, real in self._numbers.rows_of_steps(number, steps):
            call = calls.fitting((real,))
            weights = np.zeros(call.batch_size, np.float32)
            weights[:real] = 1.0 if row_weights is None else row_weights[rows]
            # the batch is padded with the same rows again, at weight 0
            call.inputs.fill(self._columns, np.resize(numbers[rows], call.batch_size), weights,
                             real)
            yield Batch(call, real, float(real), rows, {})

    def split(self, fraction: float) -> tuple[DeviceBatches, DeviceBatches]:
        """The first rows for training, and the last `fraction` of them for validation."""
        first, last = self._numbers.split(fraction)
        return (DeviceBatches(self.feed, self._columns, first),
                DeviceBatches(self.feed, self._columns, last))

    def first(self, rows: int) -> DeviceBatches:
        """The first rows alone."""
        return DeviceBatches(self.feed, self._columns, self._numbers.first(rows))

    def weigh_classes(self, class_weight: Mapping[int, float] | None) -> None:
        """Multiplies the weight of each row by that of its class."""
        if class_weight is None:
            return
        by_row = self.feed.weights(None, class_weight, self._columns)
        own = by_row[self._numbers.columns["rows"]]
        before = self._numbers.weights
        self._numbers.weights = own if before is None else before * own
