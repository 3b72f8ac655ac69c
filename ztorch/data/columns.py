"""Reads tables into columns: CSV files, streams, data frames and dicts."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ztorch.data.numerals import has_thousands, is_number, number_text, parsed_number
from ztorch.data.numpy_files import need_file
from ztorch.data.tables import is_header, need_names_once, separator_of
from ztorch.errors import DataError, unknown
from ztorch.foreign_frames import DURATION, with_names
from ztorch.foreign_frames import is_gap as is_missing

# Cells that count as missing, in lower case.
GAPS = frozenset(("", "na", "n/a", "<na>", "nan", "nat", "null", "none", "?"))
MOST_BYTES = 1 << 30  # of a file or stream; a larger one is read batch by batch with zt.data.csv
LONGEST_CELL = 1 << 20  # characters
MOST_EXACT = 1 << 53  # float64 does not tell all larger integers apart


@dataclass(frozen=True)
class Column:
    """The cells of one column: float64 with NaN for a gap, or strings with "" for a gap."""

    name: str
    cells: np.ndarray  # of float64, or of objects that are str

    @cached_property
    def gaps(self) -> np.ndarray:
        """Whether each cell is a gap."""
        if self.cells.dtype.kind == "f":
            return np.isnan(self.cells)
        return np.array([not cell for cell in self.cells], bool)

    @cached_property
    def texts(self) -> list[str]:
        """The cells as strings; whole numbers have no decimal point."""
        if self.cells.dtype.kind == "f":
            return ["" if np.isnan(x) else number_text(x) for x in self.cells.tolist()]
        return list(self.cells)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The cells as float64; NaN where a cell is a gap or not a number."""
        if self.cells.dtype.kind == "f":
            return self.cells
        return np.array([parsed_number(cell) for cell in self.cells], np.float64)


class Columns:
    """The columns of a table by name, all of one length."""

    def __init__(self, columns: Iterable[Column], where: str, lines: np.ndarray | None = None,
                 has_names: bool = True):
        self.by_name = {column.name: column for column in columns}
        self.where = where  # the source, for error messages
        self.lines = lines  # the line of each row in its file; None: there is no file
        self.has_names = has_names  # whether the source has names; else they are "0", "1", ...
        self.rows = len(next(iter(self.by_name.values())).cells) if self.by_name else 0

    def __getitem__(self, name: str) -> Column:
        if name not in self.by_name:
            raise DataError(f"{self.where}: {unknown('column', name, self.by_name)}")
        return self.by_name[name]

    def place(self, row: int) -> str:
        """The position of a row in its source, for error messages."""
        if self.lines is None:
            return f"{self.where}, row {row}"
        return f"{self.where}, line {self.lines[row]}"

    def select(self, rows: np.ndarray) -> Columns:
        """The same columns with these rows only."""
        return Columns((Column(c.name, c.cells[rows]) for c in self.by_name.values()), self.where,
                       None if self.lines is None else self.lines[rows], self.has_names)


def read_columns(source: Any) -> Columns:
    """The columns of a CSV file, a stream, a data frame, a dict of columns or a list of dicts.

    >>> table = read_columns({"age": [22, None], "sex": ["male", "female"]})
    >>> table.rows, table["age"].cells, table["sex"].texts
    (2, array([22., nan]), ['male', 'female'])
    """
    if isinstance(source, Columns):
        return source
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        need_file(name)
        if os.path.getsize(name) > MOST_BYTES:
            raise DataError(f"{name} has {os.path.getsize(name):,} bytes, more than are read at "
                            "once; zt.data.csv reads batch by batch")
        with open(name, "rb") as file:
            return _from_csv(file.read(), name)
    if hasattr(source, "read"):
        content = source.read(MOST_BYTES + 1)
        raw = content.encode() if isinstance(content, str) else content
        if len(raw) > MOST_BYTES:
            raise DataError(f"the stream has more than {MOST_BYTES:,} bytes")
        return _from_csv(raw, "the input")
    if isinstance(source, Mapping):
        return _from_arrays({str(name): cells for name, cells in source.items()}, "the table")
    if isinstance(source, (list, tuple)) and source and all(
            isinstance(row, Mapping) for row in source):
        keys = dict.fromkeys(name for row in source for name in row)
        return _from_arrays({str(key): [row.get(key) for row in source] for key in keys},
                            "the table")
    if callable(getattr(source, "collect", None)):
        raise DataError(f"a {type(source).__name__} is not a table yet; pass its .collect()")
    source = with_names(source)
    names = getattr(source, "column_names", getattr(source, "columns", None))
    if names is not None and hasattr(source, "__getitem__"):
        return _from_arrays({str(name): source[name] for name in names}, "the frame")
    raise DataError(f"a table is a .csv file, a data frame, a dict of columns or a list of dicts, "
                    f"not a {type(source).__name__}")


def _from_csv(raw: bytes, where: str) -> Columns:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{where}, line {line} is not text in UTF-8 ({error.reason}); save it as "
                        "UTF-8") from None
    if "\0" in text:
        raise DataError(f"{where} holds zero bytes, so it is not a text file")
    separator = separator_of(text.partition("\n")[0])
    rows, lines = _csv_rows(text, separator, where)
    width = len(rows[0])
    # A table of strings has a header too, if its first row could be one.
    first = [cell.strip() for cell in rows[0]]
    has_header = is_header(rows[:2]) or (
        len(set(first)) == width and not any(is_gap(c) or _is_a_number(c) for c in first))
    names = first if has_header else [str(k) for k in range(width)]
    need_names_once(names, where)
    body = rows[has_header:]
    columns = [Column(name, _texts([row[k] for row in body])) for k, name in enumerate(names)]
    if separator == ",":
        columns = [Column(c.name, _without_thousands(c.cells)) for c in columns]
    return Columns(columns, where, np.array(lines[has_header:], np.int64), has_header)


def _without_thousands(cells: np.ndarray) -> np.ndarray:
    """Cells without the commas between thousands, if all of them are numbers with such commas or
    without any. In a file whose separator is a comma, `1,234` is 1234."""
    if not any("," in cell for cell in cells) or not all(
            not cell or is_number(cell) or has_thousands(cell) for cell in cells):
        return cells
    return _texts([cell.replace(",", "") for cell in cells])


def _csv_rows(text: str, separator: str, where: str) -> tuple[list[list[str]], list[int]]:
    """The rows of a CSV text that are not blank, all of one length, and the line of each."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    rows, lines, line = [], [], 1
    try:
        for cells in reader:
            if cells:
                rows.append(cells)
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{where}, line {line}: {error}") from None
    if not rows:
        raise DataError(f"{where} is empty")
    for cells, line in zip(rows, lines, strict=True):
        if len(cells) != len(rows[0]):
            raise DataError(f"{where}, line {line}: {len(cells)} cells where the first row has "
                            f"{len(rows[0])}")
    return rows, lines


def _from_arrays(arrays: Mapping[str, Any], where: str) -> Columns:
    columns = [Column(name, _cells(name, array)) for name, array in arrays.items()]
    lengths = {c.name: len(c.cells) for c in columns}
    if len(set(lengths.values())) > 1:
        shortest, longest = min(lengths, key=lengths.__getitem__), max(lengths,
                                                                       key=lengths.__getitem__)
        raise DataError(f"{where}: column {shortest!r} has {lengths[shortest]} rows, {longest!r} "
                        f"has {lengths[longest]}")
    return Columns(columns, where)


def _cells(name: str, values: Any) -> np.ndarray:
    """The cells of a column from an array or a list."""
    array = np.asarray(values if hasattr(values, "__array__") else list(values)
                       if isinstance(values, Iterable) and not isinstance(values, str) else values)
    if array.ndim != 1:
        raise DataError(f"column {name!r} has shape {array.shape}; a column has one axis")
    if array.dtype.kind in "fiu" and not _has_large_integers(array):
        return array.astype(np.float64)
    if array.dtype.kind == "M":
        return _texts(np.datetime_as_string(array.astype("datetime64[s]")).tolist())
    if array.dtype.kind == "m":
        raise DataError(f"column {name!r} holds {DURATION}")
    if array.dtype.kind not in "biuOUS":
        raise DataError(f"column {name!r} holds {array.dtype}, neither numbers nor strings; "
                        "convert it, or drop it")
    items = array.tolist()
    if nested := [x for x in items if isinstance(x, (list, tuple, Mapping, np.ndarray))]:
        raise DataError(f"column {name!r} holds values of {type(nested[0]).__name__}, neither "
                        "numbers nor strings; split it into columns, or drop it")
    if not _has_large_integers(array) and all(
            x is None or (isinstance(x, (int, float, np.number)) and not isinstance(x, bool))
            for x in items):
        return np.array([np.nan if x is None else x for x in items], np.float64)
    return _texts(["" if is_missing(x) else x.decode("utf-8", "replace")
                   if isinstance(x, bytes) else str(x) for x in items])


def _has_large_integers(array: np.ndarray) -> bool:
    """Whether integers would lose digits as float64, such as long numbers of accounts."""
    if array.dtype.kind == "O":
        return any(isinstance(x, (int, np.integer)) and abs(int(x)) > MOST_EXACT for x in array)
    return array.dtype.kind in "iu" and array.size > 0 and max(
        int(array.max()), -int(array.min())) > MOST_EXACT


def _texts(items: list[str]) -> np.ndarray:
    """Strings without surrounding blanks; gaps are empty."""
    cells = np.empty(len(items), object)
    for k, item in enumerate(items):
        text = item.strip()
        cells[k] = "" if is_gap(text) else text[:LONGEST_CELL]
    return cells


def is_gap(text: str) -> bool:
    """Whether a cell counts as missing."""
    return text.lower() in GAPS


def _is_a_number(text: str) -> bool:
    return not np.isnan(parsed_number(text))
