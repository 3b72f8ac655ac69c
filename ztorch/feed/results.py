"""Predictions: the outputs of all batches, without their padding rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ztorch.feed.columns import DIRECT_BYTES
from ztorch.runtime.buckets import parse_open_axes
from ztorch.runtime.result_memory import empty

if TYPE_CHECKING:
    from ztorch.feed.staging import Batch

Rows = np.ndarray | list[np.ndarray]  # a list where rows differ in size
Outputs = dict[str, Rows]  # y, or y/NAME where there are several


class Results:
    """Collects outputs batch by batch.

    Args:
        total: Number of rows; 0 if that is not known beforehand.
        open_axes: The axes that vary, by output, as metadata have them.
        sizes_vary: Whether rows of outputs may differ in size. Default: `False`.
        into: Arrays for all rows of the outputs. Default None: new ones.
    """

    def __init__(self, total: int, open_axes: Mapping[str, str], sizes_vary: bool = False,
                 into: Mapping[str, np.ndarray] | None = None):
        self._total, self._sizes_vary = total, sizes_vary
        self._open_axes = {name: parse_open_axes(text) for name, text in open_axes.items()}
        self._arrays = dict(into or {})
        self._parts: dict[str, list[np.ndarray]] = {}
        self._rows: dict[str, dict[int, np.ndarray]] = {}  # by the number of the row
        self._names: list[str] = []  # in the order of the model's outputs
        self._written: set[str] = set()  # outputs of this batch that the call writes in their place

    def prepare(self, batch: Batch) -> None:
        """Makes the call of a full batch write large outputs in place."""
        self._written.clear()
        if not self._total or self._sizes_vary or self._open_axes or (
                not isinstance(batch.rows, slice)):
            return
        for name, y in batch.call.outputs.items():
            if len(y) == batch.real and y.nbytes >= DIRECT_BYTES and batch.call.write_to(
                    name, self._all(name, y)[batch.rows]):
                self._written.add(name)

    def add(self, batch: Batch) -> None:
        """Takes the outputs that the call of a batch has just computed."""
        self._names = list(batch.call.outputs)
        for name, y in batch.call.outputs.items():
            if name in self._written:
                continue
            if self._sizes_vary or name in self._open_axes:
                numbers = (range(batch.rows.start, batch.rows.stop)
                           if isinstance(batch.rows, slice) else batch.rows.tolist())
                sizes = {axis: open_axis.size(batch.lengths[open_axis.name]).tolist()
                         for axis, open_axis in self._open_axes.get(name, {}).items()}
                parts = [tuple(slice(sizes[axis][k] if axis in sizes else None)
                               for axis in range(y.ndim - 1)) for k in range(len(numbers))]
                self._rows.setdefault(name, {}).update(
                    (row, y[k][part].copy())
                    for k, (row, part) in enumerate(zip(numbers, parts, strict=True)))
            elif not self._total:
                self._parts.setdefault(name, []).append(y[:batch.real].copy())
            else:
                self._all(name, y)[batch.rows] = y[:batch.real]

    def _all(self, name: str, y: np.ndarray) -> np.ndarray:
        """The array of all rows of an output; `y` are those of a batch."""
        if name not in self._arrays:
            self._arrays[name] = empty((self._total, *y.shape[1:]), y.dtype)
        return self._arrays[name]

    def outputs(self) -> Outputs:
        """The outputs for all rows, in their order."""
        return {name: self._arrays[name] if name in self._arrays else
                np.concatenate(self._parts[name]) if name in self._parts else
                stacked([row for _, row in sorted(self._rows[name].items(), key=lambda r: r[0])])
                for name in self._names}


def stacked(rows: Sequence[np.ndarray]) -> Rows:
    """Rows as one array, or as a list where they differ in size."""
    return np.stack(rows) if len({row.shape for row in rows}) == 1 else list(rows)
