"""Batches of arrays: the rows of one epoch after another, in a fixed or a shuffled order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ztorch.errors import ConfigError
from ztorch.feed.adapter import Columns, DataAdapter, rows_of
from ztorch.feed.staging import Batch, Kept, Rows, Stage
from ztorch.feed.stretches import Stretch

if TYPE_CHECKING:
    from ztorch.feed.call_pool import BorrowedCalls
    from ztorch.feed.scores import EpochScores
    from ztorch.runtime.loaded_program import BoundCall, NativeSteps


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
        self._planned: tuple[int, list[Rows]] | None = None  # a pass, and the rows of its batches
        self._ordered: tuple[int, np.ndarray] | None = None  # a pass, and the order of its rows
        self._staged_for: BorrowedCalls | None = None
        self._stages: dict[BoundCall, Stage] = {}
        self._begun = False  # whether an epoch has begun
        self._kept: Kept | None = None  # from the second epoch on: the device's copy of the rows

    def epoch(self, calls: BorrowedCalls, number: int = 0, steps: int | None = None,
              scores: EpochScores | None = None) -> Iterator[Batch | Stretch]:
        """For each step of an epoch, fills the buffers of the call that fits it. With `scores`,
        full batches that follow one another come as a stretch where a native call can run them."""
        if self._begun and self._kept is None:
            self._kept, self._stages = Kept(), {}
        self._begun = True
        count = steps or self.steps
        step, end = number * count, (number + 1) * count
        begun: set[NativeSteps] = set()  # that know where to add scores
        while step < end:
            steps_per_check = self._at_once(step, end) if scores is not None else 0
            stage = self._stage(calls, (self.batch_size,)) if steps_per_check else None
            native = stage.native if stage is not None and stage.size == self.batch_size else None
            if scores is not None and stage is not None and native is not None:
                if native not in begun:
                    begun.add(native)
                    native.add_to(scores.places(stage.call, float(self.batch_size)),
                                  scores.ends_at(stage.call))
                stage.fill_weights()
                data_pass, position = divmod(step, self.steps)
                stretch = Stretch(native, self._order(data_pass), position * self.batch_size,
                                  min(steps_per_check, native.steps_per_check), self.batch_size)
                yield stretch
                step += stretch.steps
            else:
                rows = self._rows(step)
                real = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
                lengths = {axis: n[rows] for axis, n in self.lengths.items()}
                sizes = real, *[int(n.max()) for n in lengths.values()]
                if stage is None:  # asked once a step: calls of devices take turns
                    stage = self._stage(calls, sizes)
                yield stage.fill(rows, real, lengths)
                step += 1

    def _stage(self, calls: BorrowedCalls, sizes: tuple[int, ...]) -> Stage:
        """A function that fills the buffers of a call that holds these sizes."""
        if self._staged_for is not calls:
            self._staged_for, self._stages = calls, {}
        call = calls.fitting(sizes)
        stage = self._stages.get(call)
        if stage is None:
            stage = self._stages[call] = Stage(self.columns, self.weights, call,
                                               self._adapter.dtypes, self._kept)
        return stage

    def _at_once(self, step: int, end: int) -> int:
        """How many full batches of rows in one order follow one another from a step on."""
        if self._groups is not None or self.lengths:
            return 0
        return min(end - step, self.rows // self.batch_size - step % self.steps)

    def rows_of_steps(self, number: int, steps: int | None) -> Iterator[tuple[Rows, int]]:
        """For each step of an epoch, which rows its batch has and how many these are."""
        count = steps or self.steps
        for step in range(number * count, (number + 1) * count):
            rows = self._rows(step)
            yield rows, rows.stop - rows.start if isinstance(rows, slice) else len(rows)

    def _rows(self, step: int) -> Rows:
        """The rows of a step, numbered through all epochs."""
        data_pass, position = divmod(step, self.steps)
        if self._planned is None or (self._seed is not None and self._planned[0] != data_pass):
            self._planned = data_pass, self._plan(data_pass)
        return self._planned[1][position]

    def _order(self, data_pass: int) -> np.ndarray | None:
        """The order of rows in a pass over the data; None: as stored."""
        if self._seed is None:
            return None
        if self._ordered is None or self._ordered[0] != data_pass:
            self._ordered = data_pass, permutation(self._seed, data_pass, self.rows)
        return self._ordered[1]

    def _plan(self, data_pass: int) -> list[Rows]:
        """The rows of each batch of a pass over the data. Rows of one bucket of lengths go
        together; the rest of them goes with longer ones. So only the last batch is not full."""
        slices = self._slices()
        order = self._order(data_pass)
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
        several groups unless they are never padded."""
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

    def first(self, rows: int) -> ArrayBatches:
        """The first rows alone."""
        return self._part(slice(0, rows), self._seed)

    def weigh_classes(self, class_weight: Mapping[int, float] | None) -> None:
        """Multiplies the weight of each row by that of its class."""
        self.weights = self._adapter.weights(self.weights, class_weight, self.columns, self.rows)

    def _part(self, rows: slice, seed: int | None) -> ArrayBatches:
        columns = {name: array[rows] for name, array in self.columns.items()}
        weights = None if self.weights is None else self.weights[rows]
        return ArrayBatches(self._adapter, columns, weights, self.batch_size, seed)
