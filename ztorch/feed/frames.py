"""Tables in memory: frames of pandas and polars, tables of Arrow, and single columns of them.

A column of categories is read as the numbers of its categories.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.errors import DataError
from ztorch.foreign_frames import DURATION, is_gap, streams_columns, with_names


def is_frame(x: Any) -> bool:
    """Whether x has named columns: a frame of pandas or polars, or a table of Arrow.

    >>> is_frame(np.ones((2, 2)))
    False
    """
    kind = type(x)  # a class that answers to every name would seem to be a frame, too
    return hasattr(kind, "__dataframe__") or streams_columns(x) or (
        hasattr(kind, "__arrow_c_stream__") and (
            hasattr(kind, "columns") or hasattr(kind, "column_names")))


def columns_of(x: Any) -> dict[str, Any]:
    """The columns of a frame by name."""
    x = with_names(x)
    names = x.column_names if hasattr(x, "column_names") else x.columns
    return {str(name): x[name] for name in names}


def frame_array(x: Any, name: str) -> np.ndarray:
    """A frame as an array with a column for each of its own. Errors call it `name`."""
    columns = [column_array(column, f"column {label!r} of {name}")
               for label, column in columns_of(x).items()]
    if not columns:
        raise DataError(f"{name} is a frame without columns")
    return np.stack(columns, axis=1)


def column_array(column: Any, name: str) -> np.ndarray:
    """A column as an array; of categories their numbers. Errors call it `name`."""
    codes = category_codes(column)
    array = np.asarray(column if codes is None else codes)
    missing = (codes is not None and array.dtype.kind in "iu" and (array < 0).any()) or (
        codes is not None and array.dtype.kind == "f" and np.isnan(array).any())
    if missing:
        row = int(np.argmax((array < 0) | np.isnan(array.astype(float))))
        raise DataError(f"{name} has no category in row {row}; fill the gaps, or drop such rows")
    if array.dtype.kind == "m":
        raise DataError(f"{name} holds {DURATION}")
    if array.dtype.kind == "O":
        array = _numbers_with_gaps(array)
    if array.dtype.kind == "f" and (gaps := np.isnan(array)).any():
        raise DataError(f"{name} has a gap in row {int(np.argmax(gaps))}, {int(gaps.sum())} in "
                        "all; fill the gaps, drop such rows, or pass the table to a model with a "
                        "zt.Pipeline, which fills them")
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} holds {array.dtype} values, not numbers; make it a column of "
                        "categories (an Enum in polars), whose numbers are taken, or encode it")
    return array


def _numbers_with_gaps(array: np.ndarray) -> np.ndarray:
    """Objects as float64 with NaN for gaps; unchanged where one is neither a number nor a gap."""
    items = [np.nan if is_gap(x) else x for x in array.tolist()]
    return np.array(items, np.float64) if all(
        isinstance(x, (int, float, np.number)) for x in items) else array


def category_codes(column: Any) -> Any:
    """The numbers of the categories of a column; None where it does not hold categories."""
    categories: Any = getattr(column, "cat", None) if hasattr(type(column), "cat") else None
    if hasattr(categories, "codes"):  # pandas
        return categories.codes
    # Of polars: a Categorical has numbers that depend on all that the process has read.
    if hasattr(type(column), "to_physical") and str(column.dtype).startswith("Enum"):
        return column.to_physical()
    if hasattr(column, "combine_chunks"):  # a column of Arrow in chunks
        column = column.combine_chunks()
    return column.indices if hasattr(type(column), "dictionary_encode") and hasattr(
        column, "indices") else None
