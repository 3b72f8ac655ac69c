"""Reads tables of numbers with a column of labels, from CSV, NPZ and NPY files."""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ztorch.arguments import checked
from ztorch.data.numerals import has_decimal_comma, is_decorated, is_number, not_a_number
from ztorch.data.numpy_files import need_file, read_array, read_arrays
from ztorch.data.registry import Pair
from ztorch.errors import ConfigError, DataError, unknown


@dataclass(frozen=True)
class Table:
    """The result of `read_table`."""

    x: np.ndarray  # numbers, of shape (rows, columns)
    y: np.ndarray | None  # labels, one per row
    columns: tuple[str, ...] = ()  # the names of x's columns, from the header
    label: str = ""  # the name of y's column
    classes: tuple[str, ...] | None = None  # the strings that class numbers in y stand for
    test: Pair | None = None  # x_test and y_test of an NPZ file


@checked
def read_table(path: str | os.PathLike[str], label: str | int | None = -1) -> Table:
    """Reads a table of numbers with a column of labels into memory.

    Args:
        path: A .csv, .tsv, .txt or .data file (with commas, semicolons or tabs), or .npz or .npy.
            An .npz file holds x and y, or x_train and y_train, and may hold x_test and y_test. A
            text file has a header if a cell in its first row is not a number and the one below it
            is.
        label: The column of y, by name or position; None: the file has no labels. For .npz the name
            of the array. Default: `-1`.

    Returns:
        A Table with `x`, `y` and their names.

    Raises:
        DataError: The file is not a table, or a cell is not a number; the message names it.

    Examples:
        ```python
        table = zt.data.read_table("iris.csv", label="species")
        program.fit(table.x, table.y)
        ```
    """
    name = os.fspath(path)
    suffix = Path(path).suffix.lower()
    need_file(path)
    if suffix == ".npz":
        return _read_npz(name, label)
    if suffix == ".npy":
        array = _numbers(read_array(name), name)
        return Table(array, None) if label is None else _split(array, label, (), name)
    if suffix in (".csv", ".tsv", ".txt", ".data"):
        return _read_csv(name, label)
    raise DataError(f"{name}: {suffix or 'no suffix'} is not a kind of table; known: .csv .tsv "
                    ".txt .data .npz .npy")


# -- NumPy files ---------------------------------------------------------------------------------


def _read_npz(path: str, label: str | int | None) -> Table:
    arrays = read_arrays(path)
    x_name = next((n for n in ("x", "X", "x_train", "images", "data") if n in arrays), None)
    y_names = (label,) if isinstance(label, str) else ("y", "Y", "y_train", "labels", "target")
    y_name = next((n for n in y_names if n in arrays), None)
    if x_name is None or (label is not None and y_name is None):
        lacks = "x" if x_name is None else y_names[0]
        raise DataError(f"{path} has no array {lacks!r}; it has {', '.join(arrays) or 'none'}: "
                        "save it with numpy.savez(path, x=..., y=...)")
    x = _numbers(arrays[x_name], path)
    if y_name is None or label is None:
        return Table(x, None)
    if "x_test" not in arrays or "y_test" not in arrays:
        y, classes = labels(arrays[y_name])
        return Table(x, y, label=y_name, classes=classes)
    y_train, y_test = arrays[y_name], arrays["y_test"]
    try:  # together, so that a string becomes the same number in both
        y, classes = labels(np.concatenate([y_train, y_test]))
    except ValueError:
        raise DataError(f"{path}: {y_name} of shape {y_train.shape} and y_test of shape "
                        f"{y_test.shape} have different shapes of rows") from None
    test = _numbers(arrays["x_test"], path), y[len(y_train):]
    return Table(x, y[:len(y_train)], label=y_name, classes=classes, test=test)


def _numbers(array: np.ndarray, path: str) -> np.ndarray:
    if array.dtype.kind not in "fiub":
        raise DataError(f"{path} holds {array.dtype} values where numbers are needed")
    return array


# -- text ----------------------------------------------------------------------------------------


def _read_csv(path: str, label: str | int | None) -> Table:
    try:
        return _parse_csv(path, label)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error.reason}); save the file as "
                        "UTF-8") from None
    except csv.Error as error:
        raise DataError(f"{path} is not a text table: {error}") from None


def _parse_csv(path: str, label: str | int | None) -> Table:
    with open(path, newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        separator = separator_of(first)
        file.seek(0)
        rows = csv.reader(file, delimiter=separator)
        head = list(itertools.islice(filter(None, rows), 2))  # blank lines do not count
    if not head:
        raise DataError(f"{path} is empty")
    header = is_header(head)
    width = len(head[0])
    columns = header_names(head, path) if header else ()
    at = None if label is None else position(label, columns, width, path)
    features = [k for k in range(width) if k != at]
    try:  # NumPy's parser is many times faster than a loop in Python
        x = np.loadtxt(path, np.float64, delimiter=separator, skiprows=int(header), ndmin=2,
                       usecols=None if at is None else features, quotechar='"', comments=None,
                       encoding="utf-8-sig")
        label_cells = None if at is None else _label_column(path, separator, header, width, at)
    except (ValueError, IndexError) as error:
        _explain(path, separator, header, width, at, columns)
        raise DataError(f"{path} cannot be read as a table: {error}") from None
    y, classes = (None, None) if label_cells is None else labels(np.array(label_cells))
    if y is not None and label_cells is not None and not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise DataError(f"{path}: the label {label_cells[row]!r} in row {row} is no finite number "
                        "of float32; leave the row out, or scale the labels")
    feature_names = tuple(columns[k] for k in features) if columns else ()
    return Table(_narrow(x, feature_names, path), y, feature_names,
                 columns[at] if columns and at is not None else "", classes)


def _label_column(path: str, separator: str, header: bool, width: int, at: int) -> list[str]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file, delimiter=separator) if row][int(header):]
    cells = [row[at].strip() for row in rows if len(row) == width]
    if len(cells) < len(rows) or not all(cells) or any(map(has_decimal_comma, cells)):
        raise ValueError("rows of several lengths, or a cell that is empty or has a decimal comma")
    return cells


def _narrow(x: np.ndarray, columns: tuple[str, ...], path: str) -> np.ndarray:
    """The numbers as float32. Raises if one is not finite or out of range."""
    with np.errstate(over="ignore"):
        narrow = x.astype(np.float32)
    if not np.isfinite(narrow).all():
        row, k = np.argwhere(~np.isfinite(narrow))[0]
        name = f" ({columns[k]})" if columns else ""
        problem = ("beyond the range of float32; scale it first" if np.isfinite(x[row, k]) else
                   "not a finite number; fill gaps first")
        raise DataError(f"{path} holds {x[row, k]:g} in row {row} of x, feature {k}{name}, "
                        f"{problem}")
    return narrow


def separator_of(line: str) -> str:
    """The separator of a line: comma, semicolon or tab, but not the commas in numbers.

    >>> separator_of("a,b;c,d,e"), separator_of("1,5;2,5;0,1")
    (',', ';')
    """
    separator = max(";\t", key=line.count)
    cells = line.split(separator)
    if len(cells) > 1 and all(is_number(c) or has_decimal_comma(c) for c in cells):
        return separator
    return max(",;\t", key=line.count)


def header_names(head: list[list[str]], where: str) -> tuple[str, ...]:
    """The names of columns, from the first rows of a file, whose first is a header. Errors call the
    file `where`.

    >>> header_names([["a", " b"], ["1", "2"]], "table.csv")
    ('a', 'b')
    """
    if len(head) == 1:
        raise DataError(f"{where} has a header but no rows")
    names = tuple(cell.strip() for cell in head[0])
    need_names_once(names, where)
    return names


def need_names_once(names: Sequence[str], where: str) -> None:
    """Raises where two columns have one name."""
    for k, name in enumerate(names):
        if name in names[:k]:
            raise DataError(f"{where} has two columns named {name!r}; rename one")


def is_header(head: list[list[str]]) -> bool:
    """Whether a cell of the first row is a string and the one below it is a number."""
    if len(head) == 1:
        return not any(map(_is_numeric, head[0]))
    return any(a.strip() and not _is_numeric(a) and _is_numeric(b)
               for a, b in zip(*head, strict=False))


def _is_numeric(cell: str) -> bool:
    return is_number(cell) or is_decorated(cell)


def position(label: str | int, columns: tuple[str, ...], width: int, path: str) -> int:
    """The position of a column, by its name or position."""
    if isinstance(label, str):
        if label in columns:
            return columns.index(label)
        if not columns:
            raise DataError(f"{path} has no header, so no column {label!r}; pass the position, "
                            f"0 to {width - 1}")
        raise DataError(f"{path}: {unknown('column', label, columns)}")
    if not isinstance(label, (int, np.integer)) or isinstance(label, bool):
        raise ConfigError(f"a column is given by its name or position, not by {label!r}")
    if not -width <= label < width:
        raise DataError(f"{path} has {width} columns, no column {label}")
    if width == 1:
        raise DataError(f"{path} has only one column, the label; is the separator a comma, "
                        "semicolon or tab?")
    return int(label) % width


def _explain(path: str, separator: str, header: bool, width: int, at: int | None,
             columns: tuple[str, ...]) -> None:
    """Raises an error for the first row of another length, or the first cell that is empty or not
    a number (a label may be a string)."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter=separator)
        for row in reader:
            if not row or (header and reader.line_num == 1):
                continue
            if len(row) != width:
                raise DataError(f"{path}, line {reader.line_num}: {len(row)} cells where the "
                                f"first row has {width}")
            for k, cell in enumerate(row):
                valid = cell.strip() and not has_decimal_comma(cell) if k == at else is_number(cell)
                if not valid:
                    name = f" ({columns[k]})" if columns and columns[k] else ""
                    raise DataError(f"{path}, line {reader.line_num}, column {k + 1}{name}: "
                                    f"{not_a_number(cell)}")


# -- labels --------------------------------------------------------------------------------------


def labels(cells: np.ndarray) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Integers as int32, other numbers as float32, strings as class numbers in sorted order."""
    if cells.dtype.kind in "US":
        try:
            cells = cells.astype(np.float64)
        except ValueError:
            classes, numbers = np.unique(cells.astype(str), return_inverse=True)
            return numbers.astype(np.int32), tuple(map(str, classes))
    if cells.dtype.kind not in "fiub":
        raise DataError(f"labels of type {cells.dtype} are neither numbers nor strings")
    are_integers = cells.dtype.kind != "f" or bool(
        (cells == np.floor(cells)).all() and (np.abs(cells) < 2**31).all())
    with np.errstate(over="ignore"):
        return cells.astype(np.int32 if are_integers else np.float32), None


def _split(array: np.ndarray, label: str | int, columns: tuple[str, ...], path: str) -> Table:
    if array.ndim != 2:
        raise DataError(f"{path} has shape {array.shape}; a table of x and y has two axes")
    at = position(label, columns, array.shape[1], path)
    y, _ = labels(array[:, at])
    return Table(np.delete(array, at, axis=1), y)
