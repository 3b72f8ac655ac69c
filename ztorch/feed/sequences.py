"""Rows of different lengths: the data of an axis whose size varies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from ztorch.feed.grids import Grids


class Sequences:
    """Rows whose steps are stored one after the other in one array.

    Args:
        steps: The steps of all rows.
        lengths: How many of them each row has.

    Examples:
        >>> rows = Sequences(np.array([1, 2, 3, 4, 5, 6]), np.array([2, 1, 3]))
        >>> rows[2], rows[1:].lengths
        (array([4, 5, 6]), array([1, 3]))
        >>> rows.padded(np.array([0, 2]), (4,))
        array([[1, 2, 2, 2],
               [4, 5, 6, 6]])
        >>> rows[:1].joined(2)
        array([[1, 2]])
    """

    __slots__ = ("_starts", "lengths", "steps")

    def __init__(self, steps: np.ndarray, lengths: np.ndarray):
        self.steps, self.lengths = steps, lengths
        self._starts = np.cumsum(lengths) - lengths

    @classmethod
    def of(cls, rows: Sequence[np.ndarray]) -> Sequences:
        """Rows from an array each."""
        return cls(np.concatenate(rows), np.array([len(row) for row in rows]))

    @property
    def dtype(self) -> np.dtype:
        return self.steps.dtype

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, rows: int) -> np.ndarray: ...

    @overload
    def __getitem__(self, rows: slice) -> Sequences: ...

    def __getitem__(self, rows: int | slice) -> np.ndarray | Sequences:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step != 1:
                return Sequences.of([self[row] for row in range(start, stop, step)])
            lengths = self.lengths[rows]
            first = self._starts[start] if len(lengths) else 0
            return Sequences(self.steps[first:first + lengths.sum()], lengths)
        return self.steps[self._starts[rows]:self._starts[rows] + self.lengths[rows]]

    @property
    def sizes(self) -> dict[int, np.ndarray]:
        """The sizes of rows, by the axis of a row."""
        return {0: self.lengths}

    def joined(self, size: int) -> np.ndarray | Sequences:
        """The rows as one array, without a copy, if all have `size` steps; else unchanged."""
        if len(self.steps) != len(self) * size or (self.lengths != size).any():
            return self
        return self.steps.reshape(len(self), size, *self.steps.shape[1:])

    def padded(self, rows: np.ndarray, shape: tuple[int, ...],
               out: np.ndarray | None = None) -> np.ndarray:
        """Rows of these numbers, all of one shape: its last step pads each. So all steps are
        such as the model was made for."""
        steps = np.minimum(np.arange(shape[0]), self.lengths[rows, None] - 1)
        return self.steps.take(self._starts[rows, None] + steps, 0, out, "clip")


Ragged = Sequences | Grids  # rows that differ in size


def joined(parts: Sequence[np.ndarray | Ragged]) -> np.ndarray | Ragged:
    """Several arrays, or several rows of sequences, one after the other."""
    if isinstance(parts[0], Grids):
        rows = [part[k] for part in parts for k in range(len(part))]
        return Grids(rows, parts[0].axes)
    if isinstance(parts[0], Sequences):
        sequences = [part for part in parts if isinstance(part, Sequences)]
        return Sequences(np.concatenate([part.steps for part in sequences]),
                         np.concatenate([part.lengths for part in sequences]))
    return np.concatenate([np.asarray(part) for part in parts])
