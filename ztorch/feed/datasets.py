"""Datasets that are read by index: objects with `__len__` and `__getitem__`.

These are the map-style datasets of PyTorch, whose items are rows; `keras.utils.PyDataset`, whose
items are batches; and those of Hugging Face, whose items are rows as dicts. Whether an item is a
row or a batch follows from the shape of its x.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.errors import DataError
from ztorch.feed.adapter import DataAdapter
from ztorch.feed.array_batches import permutation
from ztorch.feed.columns import as_array
from ztorch.feed.frames import columns_of, is_frame
from ztorch.feed.named_columns import parts_of_columns
from ztorch.feed.sources import is_indexed, says_batches


def as_stream(adapter: DataAdapter, source: Any, batch_size: int, with_targets: bool,
              seed: int | None = None) -> Any:
    """The source of batches: the given one itself, or the batches of a dataset that is read by
    index.

    Args:
        adapter: Knows the inputs and targets of the program.
        source: The user's argument.
        batch_size: The rows of a batch.
        with_targets: Whether batches must hold y; False to predict.
        seed: Shuffles a dataset; None keeps its order. Default: `None`.
    """
    return IndexedDataset(adapter, source, batch_size, with_targets, seed) if is_indexed(
        source) else source


class IndexedDataset:
    """The batches of a dataset that is read by index; iterate over them once an epoch."""

    def __init__(self, adapter: DataAdapter, dataset: Any, rows_at_once: int, with_targets: bool,
                 seed: int | None):
        self.epoch = 0  # the number of the next pass, which the order depends on
        self._adapter, self._dataset, self._seed = adapter, dataset, seed
        self._with_targets = with_targets
        self._needs_targets = with_targets and bool(adapter.target_ports)
        self._count = len(dataset)
        if not self._count:
            raise DataError(f"this {type(dataset).__name__} is empty: its len() is 0; pass at "
                            "least one row")
        item = dataset[0]
        # Datasets of Hugging Face cannot give several items that are tables.
        self._several = hasattr(dataset, "__getitems__") and not is_frame(item)
        first_item = self._parts(item)
        port = adapter.input_ports[0]
        first = first_item[0]
        if adapter.several_inputs:
            first = first[port.name] if isinstance(first, Mapping) else first[0]
        texts = port.reader is not None
        x = np.asarray(first) if texts else as_array(first, "x of item 0")
        row = port.reader.shape if port.reader else port.shape
        gives_batches = says_batches(dataset)
        varies = bool(port.axes)
        self._items_are_rows = not gives_batches and _is_row(x.shape, row, varies and not texts)
        fits = gives_batches or texts or self._items_are_rows or _is_row(x.shape[1:], row, varies)
        if x.ndim == len(row) > 1 and not fits:
            channels = x.shape[1:] + x.shape[:1] == row
            raise DataError(f"x of item 0 has shape {x.shape}, and the model takes rows of shape "
                            f"{row}; {'put channels last' if channels else 'bring items to it'}, "
                            "as .map(function) of a dataset does, or a transform")
        # Number of rows, where that is known, and the rows of each batch.
        self.rows = self._count if self._items_are_rows else None
        self.batch_size = rows_at_once if self._items_are_rows or not x.ndim else len(x)

    def __len__(self) -> int:
        return -(-self._count // self.batch_size) if self._items_are_rows else self._count

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        order = (np.arange(self._count) if self._seed is None else
                 permutation(self._seed, self.epoch, self._count))
        self.epoch += 1
        size = self.batch_size if self._items_are_rows else 1
        for at in range(0, self._count, size):
            items = [self._parts(item) for item in self._read(order[at:at + size].tolist())]
            if not self._items_are_rows:
                yield items[0]
                continue
            yield tuple(collated(parts) for parts in zip(*items, strict=True))
        end = getattr(self._dataset, "on_epoch_end", None)  # of Keras' datasets
        if callable(end):
            end()

    def _read(self, indices: list[int]) -> Sequence[Any]:
        """The items with these numbers, at once where the dataset can do that."""
        if self._items_are_rows and self._several:
            return self._dataset.__getitems__(indices)
        return [self._dataset[k] for k in indices]

    def _parts(self, item: Any) -> tuple[Any, ...]:
        """x, or x, y and the weights, of an item."""
        if is_frame(item):  # of one row
            item = {name: np.asarray(column)[0] for name, column in columns_of(item).items()}
        if isinstance(item, Mapping):
            return parts_of_columns(self._adapter, item, self._needs_targets,
                                    f"items of this {type(self._dataset).__name__} have")
        if isinstance(item, list) and self._with_targets:
            item = tuple(item)
        parts = item if isinstance(item, tuple) else (item,)
        if not self._with_targets:
            return parts[:1]
        if not 1 + self._needs_targets <= len(parts) <= 3:
            raise DataError(f"an item of this {type(self._dataset).__name__} has {len(parts)} "
                            "parts; items are (x, y) or (x, y, sample_weight)")
        return parts


def _is_row(shape: tuple[int, ...], row: tuple[int, ...], sizes_vary: bool) -> bool:
    """Whether an x of this shape is one row of an input; else it is a batch of them."""
    if sizes_vary:
        return len(shape) == len(row)
    return shape == row or (*shape, 1) == row or shape == (*row, 1)


def collated(values: Sequence[Any]) -> Any:
    """Values of rows as one array, or as a dict or list of arrays; a list where rows differ in
    shape.

    >>> collated([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    """
    first = values[0]
    if isinstance(first, Mapping):
        return {name: collated([v[name] for v in values]) for name in first}
    if isinstance(first, tuple):
        return [collated(parts) for parts in zip(*values, strict=True)]
    kind = getattr(getattr(first, "dtype", None), "kind", "")  # PyTorch's dtypes have none
    if isinstance(first, (str, bytes)) or (kind and kind in "OUS"):
        return np.array(values, object)
    arrays = [as_array(v, "an item of the dataset") for v in values]
    return np.stack(arrays) if len({a.shape for a in arrays}) == 1 else arrays
