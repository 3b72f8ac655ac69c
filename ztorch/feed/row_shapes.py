"""The shape of the rows of data, for models that take it from the data that they meet first."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, Sized
from itertools import islice
from typing import Any

import numpy as np

from ztorch.errors import ConfigError
from ztorch.feed.columns import as_array
from ztorch.feed.sources import begin_pass, is_column, is_indexed, is_stream, says_batches

Shapes = Any  # with the batch as None: (None, 4), or a list or dict of such


def row_shapes(x: Any, most: int | None = None) -> Shapes:
    """The shape of x with None for the batch; of several inputs a list or dict.

    Args:
        x: The argument of `fit` or `predict`.
        most: The most rows of a batch, to have the number of its rows in place of None, except
            for streams of rows. Default: `None`.

    Raises:
        ConfigError: x can be read only once, so that it cannot be looked at beforehand.

    Examples:
        >>> row_shapes(np.zeros((20, 4))), row_shapes({"a": [[1.0], [2.0]]}, 32)
        ((None, 4), {'a': (2, 1)})
    """
    if is_column(x):
        return (None, *as_array(x[:1], "x").shape[1:])
    if is_stream(x, None):
        return _of_stream(x, most)
    if isinstance(x, Mapping):
        return {name: row_shapes(part, most) for name, part in x.items()}
    if isinstance(x, (list, tuple)) and all(np.ndim(part) for part in x) and all(
            hasattr(part, "shape") for part in x):
        return [row_shapes(part, most) for part in x]
    shape = x.shape if hasattr(x, "shape") else as_array(x, "x").shape
    return (None if most is None or not shape else min(most, shape[0]), *shape[1:])


def row_count(x: Any) -> int | None:
    """How many rows x has; None where it gives batches of any number, or is not data.

    >>> row_count(np.zeros((20, 4))), row_count({"a": [[1.0], [2.0]]}), row_count(iter([]))
    (20, 2, None)
    """
    if type(x) is np.ndarray:
        return len(x) if x.ndim else None
    if is_stream(x, None):
        return None
    if isinstance(x, Mapping):
        return row_count(next(iter(x.values()), None))
    if isinstance(x, (list, tuple)) and x and hasattr(x[0], "shape") and np.ndim(x[0]):
        return row_count(x[0])
    shape = getattr(x, "shape", None)
    if shape is not None:
        return shape[0] if shape else None
    return len(x) if hasattr(x, "__len__") else None


def stream_rows(x: Any) -> int | None:
    """The rows of the first batch of a stream, or of the largest in a list; None where x gives
    rows, or cannot tell without beginning a pass over its data.

    >>> stream_rows([(np.zeros((2, 4)), np.ones(2))]), stream_rows(np.zeros((2, 4)))
    (2, None)
    """
    if not is_stream(x, None) or is_column(x):
        return None
    if isinstance(rows := getattr(x, "batch_size", None), int):
        return rows
    if isinstance(x, list):
        counts = [row_count(_inputs_of(item)) for item in x]
        return max((n for n in counts if n is not None), default=None)
    if isinstance(x, LookedAt):
        item = x.first()
    elif is_indexed(x) and len(x):
        item = x[0]
    else:
        return None
    if is_indexed(x) and not _gives_batches(x, item):
        return None
    return row_count(_inputs_of(item))


def batches_inputs(x: Any, few: bool = False) -> Iterator[Any] | None:
    """The inputs of each batch of a list, of a dataset that is read by index, or of a loader that
    begins a pass each time and knows its number of batches; None where x gives rows, or cannot be
    read twice. `few` gives the first two, of a list or dataset the last, and of a generator
    the first four, which are stored.

    >>> [part.shape for part in batches_inputs([(np.zeros((2, 4)), np.ones(2))])]
    [(2, 4)]
    """
    if not is_stream(x, None) or is_column(x):
        return None
    if isinstance(x, LookedAt):
        return (_inputs_of(item) for item in x.ahead(4)) if few else None
    if isinstance(x, list) or (is_indexed(x) and len(x) and _gives_batches(x, x[0])):
        places = {*range(len(x))[:2], *range(len(x))[-1:]} if few else range(len(x))
        return (_inputs_of(x[k]) for k in sorted(places))
    return _of_a_pass(x, 2 if few else None) if is_loader(x) else None


def is_loader(x: Any) -> bool:
    """Whether x gives batches in passes and knows their number, as loaders of PyTorch do.

    >>> is_loader(np.zeros(3)), is_loader([1]), is_loader({"a": 1}.keys())
    (False, False, True)
    """
    return is_stream(x, None) and not (is_column(x) or is_indexed(x) or isinstance(
        x, (list, Iterator))) and hasattr(type(x), "__len__")


def _of_a_pass(loader: Any, most: int | None) -> Iterator[Any]:
    """The inputs of the batches of a pass that does not count."""
    epoch = getattr(loader, "epoch", None)
    for item in islice(loader, most):
        yield _inputs_of(item)
    if isinstance(epoch, int):
        begin_pass(loader, epoch)


def total_rows(x: Any) -> int | None:
    """How many rows x has, or all batches of a stream together; None where only a pass can tell.

    >>> pair = np.zeros((2, 4)), np.zeros(2)
    >>> total_rows([pair, pair]), total_rows(pair[0]), total_rows(iter([]))
    (4, 2, None)
    """
    if not is_stream(x, None) or is_column(x):
        return row_count(x)
    if isinstance(rows := getattr(x, "rows", None), int):
        return rows
    if isinstance(dataset := getattr(x, "dataset", None), Sized):  # of a loader of PyTorch
        return None if getattr(x, "drop_last", False) else len(dataset)
    if isinstance(x, list):
        counts = [row_count(_inputs_of(item)) for item in x]
        return None if None in counts else sum(n for n in counts if n is not None)
    if not is_indexed(x):
        return None
    if not len(x) or not _gives_batches(x, x[0]):
        return len(x)
    first, last = (row_count(_inputs_of(x[k])) for k in (0, len(x) - 1))
    return None if first is None or last is None else first * (len(x) - 1) + last


def _inputs_of(item: Any) -> Any:
    return item[0] if isinstance(item, (list, tuple)) else item


def stream_part(x: Any, part: int) -> Any:
    """A part of the first batch of a stream, if its batches are tuples or lists: 0 is x, 1 is y, 2
    are the weights. None where x is not a stream, or has no such part.

    >>> stream_part([(np.zeros((2, 4)), np.ones(2))], 1), stream_part(np.zeros((2, 4)), 1)
    (array([1., 1.]), None)
    """
    if not is_stream(x, None) or is_column(x):
        return None
    if is_indexed(x) or isinstance(x, list):
        return listed_part(x, part)
    item = _first_batch(x)
    return item[part] if isinstance(item, (list, tuple)) and len(item) > part else None


def listed_part(x: Any, part: int) -> Any:
    """A part of the first batch of a list of batches, of a generator, or of a dataset that is read
    by index: 1 is y, 2 are the weights. None where there is no such part, and where looking at a
    batch would begin a pass over the data.

    >>> listed_part([(np.zeros((2, 4)), np.ones(2))], 1), listed_part(iter([]), 1)
    (array([1., 1.]), None)
    """
    if not is_stream(x, None) or is_column(x):
        return None
    if isinstance(x, LookedAt):
        item = x.first()
    elif (is_indexed(x) or isinstance(x, list)) and len(x):
        item = x[0]
    else:
        return None
    if not isinstance(item, (list, tuple)) or len(item) <= part:
        return None
    if isinstance(x, (list, LookedAt)) or _gives_batches(x, item):
        return item[part]
    return {name: np.asarray(row)[None] for name, row in item[part].items()} if isinstance(
        item[part], Mapping) else np.asarray(item[part])[None]


class LookedAt(Iterator[Any]):
    """Rows that can be read only once, such as a generator, with a first item that can be looked at
    before it is read."""

    def __init__(self, source: Iterator[Any]):
        self._source = source
        self._read: list[Any] = []  # the items looked at

    def first(self) -> Any:
        """The item that comes next; None at the end."""
        return next(iter(self.ahead(1)), None)

    def ahead(self, count: int) -> list[Any]:
        """The items that come next, at most so many."""
        while len(self._read) < count:
            if self._read:  # a source may fill the same arrays for the next item
                self._read[-1] = copy.deepcopy(self._read[-1])
            item = next(self._source, None)
            if item is None:
                break
            self._read.append(item)
        return self._read[:count]

    def __next__(self) -> Any:
        return self._read.pop(0) if self._read else next(self._source)


def can_be_looked_at(x: Any) -> Any:
    """x, or where it can be read only once something that gives the same items, of which
    `row_shapes` may see the first.

    >>> x = can_be_looked_at(iter([np.zeros((2, 4))]))
    >>> row_shapes(x), len(list(x))
    ((None, 4), 1)
    """
    once = isinstance(x, Iterator) and is_stream(x, None) and iter(x) is x
    return LookedAt(x) if once else x


def first_inputs(x: Any) -> Any:
    """The inputs of the first batch of a stream; None where it gives no batches.

    >>> first_inputs(can_be_looked_at(iter([(np.zeros((2, 4)), np.ones(2))]))).shape
    (2, 4)
    """
    return _inputs_of(_first_batch(x))


def _first_batch(x: Any) -> Any:
    if isinstance(x, LookedAt):
        return x.first()
    if iter(x) is x:
        raise ConfigError("x is a generator, which can be read only once; call model.build with "
                          "the shape of its x first, such as model.build((None, 4))")
    epoch = getattr(x, "epoch", None)
    item = next(iter(x), None)
    if isinstance(epoch, int):
        begin_pass(x, epoch)  # it has not begun to count
    return item


def _gives_batches(dataset: Any, item: Any) -> bool:
    """Whether an item of a dataset that is read by index is a batch, not a row."""
    if says_batches(dataset):
        return True
    parts = item if isinstance(item, (list, tuple)) else (item,)
    counts = {np.shape(part)[:1] for part in parts[:2] if not isinstance(part, Mapping)}
    return len(parts) > 1 and len(counts) == 1 and counts != {()}


def _of_stream(x: Any, most: int | None) -> Shapes:
    if is_indexed(x):
        item = x[0]
        parts = item if isinstance(item, (list, tuple)) else (item,)
        if _gives_batches(x, item):
            return row_shapes(parts[0], most and sys.maxsize)
        if isinstance(parts[0], Mapping):
            raise ConfigError("the columns of this dataset do not say which are the inputs; call "
                              "model.build with their shapes first, such as {'a': (None, 4)}")
        return (None, *np.shape(parts[0]))
    item = _first_batch(x)
    if item is None:
        raise ConfigError("x gave no batches; pass at least one row")
    return row_shapes(item[0] if isinstance(item, (list, tuple)) else item, most and sys.maxsize)
