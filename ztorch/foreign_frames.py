"""Frames of other libraries, as far as reading a table and feeding arrays share it."""

from __future__ import annotations

import importlib
from typing import Any

from ztorch.errors import DataError

_READERS = ("pyarrow.interchange", "pandas.api.interchange")  # of the dataframe protocol
DURATION = ("durations; pass them as numbers of one unit, as .dt.total_seconds() of a column of "
            "pandas or polars gives them")


def with_names(x: Any) -> Any:
    """x; where it gives its columns by the dataframe protocol alone, the table that an installed
    library reads from it.

    >>> with_names([1, 2])
    [1, 2]
    """
    if not hasattr(type(x), "__dataframe__") or hasattr(type(x), "__getitem__"):
        return x
    for module in _READERS:
        try:
            read = importlib.import_module(module).from_dataframe
        except (ImportError, AttributeError):
            continue
        try:
            return read(x)
        except Exception as error:  # foreign code raises anything
            raise DataError(f"{module} cannot read this {type(x).__name__} by the dataframe "
                            f"protocol: {error}") from error
    raise DataError(f"a {type(x).__name__} gives its columns by the dataframe protocol alone, "
                    "which pyarrow and pandas read: install one, or pass a dict of columns")


def is_gap(x: Any) -> bool:
    """Whether a value says that nothing is known: None, NaN, or NA of pandas.

    >>> is_gap(None), is_gap(float("nan")), is_gap(0)
    (True, True, False)
    """
    try:
        return x is None or bool(x != x)
    except TypeError:  # NA is neither true nor false
        return True
