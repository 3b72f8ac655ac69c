"""Data frames of other libraries: what reading tables and feeding arrays share."""

from __future__ import annotations

import importlib
from typing import Any

from ztorch.errors import DataError

_READERS = ("pyarrow.interchange", "pandas.api.interchange")  # of the dataframe protocol
DURATION = ("durations; convert them to numbers of one unit, such as .dt.total_seconds() of a "
            "pandas or polars column")


def streams_columns(x: Any) -> bool:
    """Whether x gives its columns by Arrow's stream alone, as readers of record batches do.

    >>> streams_columns([1, 2])
    False
    """
    kind = type(x)  # columns of Arrow have the stream, too, and are arrays
    return hasattr(kind, "__arrow_c_stream__") and not any(
        hasattr(kind, name) for name in ("__array__", "__getitem__", "__dataframe__"))


def with_names(x: Any) -> Any:
    """x itself, or, if x has only Arrow's stream or the dataframe protocol, the table that an
    installed library reads from it.

    >>> with_names([1, 2])
    [1, 2]
    """
    if streams_columns(x):
        try:
            pyarrow = importlib.import_module("pyarrow")
        except ImportError:
            raise DataError(f"a {type(x).__name__} gives its columns by Arrow's stream alone, "
                            "which pyarrow reads: install it, or pass a dict of columns") from None
        try:
            return pyarrow.table(x)
        except Exception as error:  # foreign code raises anything
            raise DataError(f"pyarrow cannot read this {type(x).__name__} by Arrow's stream: "
                            f"{error}") from error
    if not hasattr(type(x), "__dataframe__") or hasattr(type(x), "__getitem__"):
        return x
    for module in _READERS:
        try:
            read = importlib.import_module(module).from_dataframe
        except (ImportError, AttributeError):
            continue
        try:
            return read(x)
        except Exception as error:  # foreign code may raise anything
            raise DataError(f"{module} cannot read this {type(x).__name__} through the dataframe "
                            f"protocol: {error}") from error
    raise DataError(f"a {type(x).__name__} only has the dataframe protocol, which pyarrow and "
                    "pandas read: install one of them, or pass a dict of columns")


def is_gap(x: Any) -> bool:
    """Whether a value is missing: None, NaN, or pandas' NA.

    >>> is_gap(None), is_gap(float("nan")), is_gap(0)
    (True, True, False)
    """
    try:
        return x is None or bool(x != x)
    except TypeError:  # the truth value of NA is undefined
        return True
