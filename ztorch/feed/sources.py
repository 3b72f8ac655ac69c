"""The kinds of x: rows in arrays, streams of batches, or datasets that are read by index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ztorch.errors import DataError
from ztorch.foreign_frames import streams_columns


def is_stream(x: Any, y: Any) -> bool:
    """Whether x gives batches, not rows: an iterator, a loader, a dataset, or a list of tuples."""
    if isinstance(x, list):
        return y is None and bool(x) and all(isinstance(item, tuple) for item in x)
    return not _is_data(x) and (hasattr(x, "__iter__") or is_indexed(x)) and (
        y is None or not is_column(x))


def is_indexed(x: Any) -> bool:
    """Whether x is a dataset that is read by index: it has a length and items, and is not an array.

    >>> is_indexed([1, 2]), is_indexed(range(3))
    (False, True)
    """
    kind = type(x)  # Python looks for both on the class
    return (hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and not _is_data(x)
            and not isinstance(x, (list, type)))


def says_batches(x: Any) -> bool:
    """Whether a dataset that is read by index says that its items are batches, as those of Keras do
    (`PyDataset`)."""
    return hasattr(type(x), "num_batches") and is_indexed(x)


def need_no_splits(x: Any, name: str) -> None:
    """Raises where x is a dict of datasets, the splits of one. Errors call it `name`."""
    if isinstance(x, Mapping) and x and all(map(is_indexed, x.values())):
        raise DataError(f"{name} is a {type(x).__name__} of the datasets {', '.join(map(str, x))}; "
                        f"pass one of them, such as data[{next(iter(x))!r}]")


def need_no_mapping(x: Any, name: str) -> None:
    """Raises where x is a mapping. Errors call it `name`."""
    need_no_splits(x, name)
    if isinstance(x, Mapping):
        raise DataError(f"{name} is a mapping; the model has one input: pass its array")


def is_column(x: Any) -> bool:
    """Whether x is read by index and its slices are rows, as a column of a dataset is that reads
    from disk when it is asked. With targets it is treated as an array.

    >>> is_column([1, 2]), is_column(range(3))
    (False, False)
    """
    if not is_indexed(x):
        return False
    try:
        rows = x[0:1]
    except Exception:  # items of datasets raise anything
        return False
    if isinstance(rows, list) and rows and isinstance(rows[0], tuple):  # (x, y), not a row
        return False
    return (isinstance(rows, list) or hasattr(rows, "__array__")) and len(rows) == min(len(x), 1)


def begin_pass(source: Any, number: int) -> None:
    """Tells a source that counts its passes which one comes next; those of Hugging Face have a
    method for that."""
    if hasattr(source, "set_epoch"):
        source.set_epoch(number)
    else:
        source.epoch = number


def _is_data(x: Any) -> bool:
    """Whether x is an array, or holds some."""
    return (hasattr(x, "__array__") or hasattr(x, "__dlpack__") or streams_columns(x)
            or hasattr(x, "__array_interface__") or isinstance(x, (str, bytes, tuple, Mapping)))
