"""Rows whose size varies along several axes, such as images of several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np


class Grids:
    """Rows in an array each.

    Args:
        rows: The rows.
        axes: The axes of a row whose size varies.

    Examples:
        >>> rows = Grids([np.array([[1, 2, 3]]), np.array([[4], [5]])], (0, 1))
        >>> rows.sizes[0], rows.sizes[1]
        (array([1, 2]), array([3, 1]))
        >>> rows.padded(np.array([1]), (2, 2))
        array([[[4, 4],
                [5, 5]]])
    """

    __slots__ = ("_rows", "axes", "sizes")

    def __init__(self, rows: Sequence[np.ndarray], axes: Sequence[int]):
        self._rows, self.axes = rows, tuple(axes)
        self.sizes = {axis: np.array([row.shape[axis] for row in rows]) for axis in self.axes}

    @property
    def dtype(self) -> np.dtype:
        return self._rows[0].dtype

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, rows: int) -> np.ndarray: ...

    @overload
    def __getitem__(self, rows: slice) -> Grids: ...

    def __getitem__(self, rows: int | slice) -> np.ndarray | Grids:
        if isinstance(rows, slice):
            return Grids(self._rows[rows], self.axes)
        return self._rows[rows]

    def padded(self, rows: np.ndarray, shape: tuple[int, ...],
               out: np.ndarray | None = None) -> np.ndarray:
        """Rows of these numbers, all of one shape: the last elements of each fill it up."""
        result = np.empty((len(rows), *shape), self.dtype) if out is None else out
        for target, number in zip(result, rows.tolist(), strict=True):
            row = self._rows[number]
            target[tuple(map(slice, row.shape))] = row
            for axis in self.axes:
                n, along = row.shape[axis], np.moveaxis(target, axis, 0)  # a view
                along[n:] = along[n - 1:n]
        return result
