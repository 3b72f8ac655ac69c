"""What predicting gives: the outputs of all batches, without what filled these up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ztorch.feed.columns import DIRECT_BYTES

if TYPE_CHECKING:
    from ztorch.feed.array_batches import Batch

Rows = np.ndarray | list[np.ndarray]  # a list where rows differ in size
Outputs = dict[str, Rows]  # y, or y/NAME where there are several


class Results:
    """Collects outputs batch by batch.

    Args:
        total: How many rows there are; 0 if that is not known beforehand.
        open_axes: The name of the axis that varies, by output.
    """

    def __init__(self, total: int, open_axes: Mapping[str, str]):
        self._total, self._open_axes = total, open_axes
        self._whole: dict[str, np.ndarray] = {}
        self._parts: dict[str, list[np.ndarray]] = {}
        self._rows: dict[str, dict[int, np.ndarray]] = {}  # by the number of the row
        self._written: set[str] = set()  # outputs of this batch that the call writes in their place

    def prepare(self, batch: Batch) -> None:
        """Has the call of a full batch write large outputs where they belong."""
        self._written.clear()
        if not self._total or self._open_axes or not isinstance(batch.rows, slice):
            return
        for name, y in batch.call.outputs.items():
            if len(y) == batch.real and y.nbytes >= DIRECT_BYTES and batch.call.write_to(
                    name, self._all(name, y)[batch.rows]):
                self._written.add(name)

    def add(self, batch: Batch) -> None:
        """Takes the outputs that the call of a batch has just computed."""
        for name, y in batch.call.outputs.items():
            if name in self._written:
                continue
            if name in self._open_axes:
                numbers = (range(batch.rows.start, batch.rows.stop)
                           if isinstance(batch.rows, slice) else batch.rows.tolist())
                lengths = batch.lengths[self._open_axes[name]].tolist()
                self._rows.setdefault(name, {}).update(
                    (row, y[k, :n].copy())
                    for k, (row, n) in enumerate(zip(numbers, lengths, strict=True)))
            elif not self._total:
                self._parts.setdefault(name, []).append(y[:batch.real].copy())
            else:
                self._all(name, y)[batch.rows] = y[:batch.real]

    def _all(self, name: str, y: np.ndarray) -> np.ndarray:
        """The array of all rows of an output; `y` are those of a batch."""
        if name not in self._whole:
            self._whole[name] = np.empty((self._total, *y.shape[1:]), y.dtype)
        return self._whole[name]

    def outputs(self) -> Outputs:
        """The outputs for all rows, in their order."""
        names = [*self._whole, *self._parts, *self._rows]
        return {name: self._whole[name] if name in self._whole else
                np.concatenate(self._parts[name]) if name in self._parts else
                stacked([row for _, row in sorted(self._rows[name].items(), key=lambda r: r[0])])
                for name in names}


def stacked(rows: Sequence[np.ndarray]) -> Rows:
    """Rows as one array, or as a list where they differ in size."""
    return np.stack(rows) if len({row.shape for row in rows}) == 1 else list(rows)
