"""CSV files of any size, read batch by batch, with columns of numbers and of categories."""

from __future__ import annotations

import csv as csv_format
import io
import math
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO

import numpy as np

from ztorch.arguments import checked
from ztorch.config import flag
from ztorch.data.batches import Batches
from ztorch.data.numerals import is_decorated, is_number, not_a_number
from ztorch.data.numpy_files import need_file
from ztorch.data.registry import Pair
from ztorch.data.tables import header_names, is_header, position, separator_of
from ztorch.errors import ConfigError, DataError

LONGEST_LINE = 1 << 20  # bytes; a file that is not a table may have no line breaks
LARGEST = float(np.finfo(np.float32).max)  # number of a column
MOST_CATEGORIES = 10_000  # different strings in a column; one with more is not a category

Name = str | int


@checked
def csv(path: str | os.PathLike[str], target: Name = -1, *, columns: Sequence[Name] | None = None,
        categories: Sequence[Name] = (), header: bool | None = None, batch_size: int = 256,
        seed: int | None = None, like: CsvFile | None = None) -> CsvFile:
    """Reads batches from a CSV file of any size; the separator may be a comma, semicolon or tab.

    The file is read once to find its rows and categories, then again in each epoch. A column holds
    numbers or strings. A string becomes a number: its position among the sorted strings.

    Args:
        path: The file, in UTF-8.
        target: The column of y, by its name in the header or by position; -1 is the last one.
            Default: `-1`.
        columns: The columns of x, in this order; None: all but the target. Default: `None`.
        categories: Columns to read as strings, even if their cells look like numbers. Default:
            `()`.
        header: Whether the first row has the names of columns; None: detected. Default: `None`.
        batch_size: The rows of a batch. Default: `256`.
        seed: Shuffles the rows in each epoch; None keeps the order of the file. Default: `None`.
        like: The CsvFile of the training data, for validation and test data: a string becomes the
            same number as there. Default: `None`.

    Returns:
        A CsvFile: iterates over (x, y), x of shape (batch_size, columns) in float32, y int32 or
        float32. `classes` are the strings that the numbers of y stand for.

    Raises:
        DataError: A cell is empty, or a string among numbers; the message names line and column.
        ConfigError: An argument is invalid.

    Examples:
        ```python
        rows = zt.data.csv("iris.csv", target="species", seed=0)
        program.fit(rows, epochs=5)
        ```
    """
    return CsvFile(path, target, columns, categories, header, batch_size, seed, like)


@dataclass
class _Column:
    """A column, and what its cells have been so far."""

    at: int  # its position
    name: str  # in the header; empty without one
    category: bool = False  # it holds strings, which become numbers
    numbers: int = 0  # how many cells are numbers
    is_integer: bool = True  # whether all of these are integers
    text: tuple[str, int] | None = None  # the first string, and its line
    texts: set[str] = field(default_factory=set)  # the different strings

    @property
    def key(self) -> Name:
        """The name of the column in an argument of `csv`."""
        return self.name or self.at

    def __str__(self) -> str:
        return f"column {self.at + 1}" + (f" ({self.name})" if self.name else "")


class CsvFile(Batches):
    """The batches of a CSV file, as `csv` returns them.

    `columns` are the names of x's columns, or their positions if the file has no header.
    `categories` holds the strings that numbers stand for, by column; `classes` those of y.
    """

    def __init__(self, path: str | os.PathLike[str], target: Name, columns: Sequence[Name] | None,
                 categories: Sequence[Name], header: bool | None, batch_size: int,
                 seed: int | None, like: CsvFile | None):
        self.path = os.fspath(path)
        if not isinstance(like, CsvFile | None):
            raise ConfigError(f"csv(like={like!r}) must be a result of csv for another file")
        need_file(path)
        with open(path, "rb") as file:
            self.separator = separator_of(file.readline(LONGEST_LINE).decode("utf-8", "replace"))
            file.seek(0)
            names = self._read_header(file, header)
            self._choose_columns(target, columns, categories, names)
            file.seek(0)
            self._scan(file, has_header=bool(names))
        self.columns = tuple(c.name if names else c.at for c in self._columns)
        self._codes = self._new_codes() if like is None else self._codes_of(like)
        self.categories = {name: tuple(self._codes[c.at]) for name, c in
                           zip(self.columns, self._columns, strict=True) if c.at in self._codes}
        coded = self._codes.get(self._target.at)
        self.classes = None if coded is None else tuple(coded)
        super().__init__(len(self._starts), batch_size, seed)

    def _read_header(self, file: BinaryIO, header: bool | None) -> tuple[str, ...]:
        """Finds the number of columns. Returns their names, if the first row has them."""
        head = [cells for _, _, cells in islice(self._records(file), 2)]
        if not head:
            raise DataError(f"{self.path} is empty")
        has_header = is_header(head) if header is None else flag("csv(header=...)", header)
        self.width = len(head[0])
        return header_names(head, self.path) if has_header else ()

    def _choose_columns(self, target: Name, columns: Sequence[Name] | None,
                        categories: Sequence[Name], names: tuple[str, ...]) -> None:
        """Finds the columns of x and y by their names or positions."""
        for parameter, listed in (("columns", columns or ()), ("categories", categories)):
            if not isinstance(listed, (list, tuple)):
                raise ConfigError(f"csv({parameter}={listed!r}) must be a list of names or "
                                  "positions of columns")

        def at(column: Name) -> int:
            return position(column, names, self.width, self.path)

        self._target = _Column(at(target), names[at(target)] if names else "")
        positions = [at(c) for c in columns] if columns is not None else [
            k for k in range(self.width) if k != self._target.at]
        repeated = len(set(positions)) < len(positions)
        if not positions or repeated or self._target.at in positions:
            raise ConfigError(f"csv(columns={columns!r}) must name columns once each, and not "
                              "the target")
        self._columns = [_Column(k, names[k] if names else "") for k in positions]
        forced = {at(c) for c in categories}
        for column in self._all_columns():
            column.category = column.at in forced

    def _all_columns(self) -> list[_Column]:
        return [*self._columns, self._target]

    # -- finding rows ------------------------------------------------------------------------------

    def _records(self, file: BinaryIO) -> Iterator[tuple[int, int, list[str]]]:
        """The offset, the line number and the cells of each row that is not blank."""
        offset = line = 0

        def lines() -> Iterator[str]:
            nonlocal offset, line
            while raw := file.readline(LONGEST_LINE + 1):
                line += 1
                if len(raw) > LONGEST_LINE:
                    raise DataError(f"{self.path}, line {line} is longer than {LONGEST_LINE:,} "
                                    "bytes; is this a table?")
                offset += len(raw)
                yield self._decoded(raw, line)

        rows = csv_format.reader(lines(), delimiter=self.separator)
        while True:
            start = offset
            try:
                cells = next(rows, None)
            except csv_format.Error as error:
                raise DataError(f"{self.path}, line {line}: {error}") from None
            if cells is None:
                return
            if cells:
                yield start, line, cells

    def _decoded(self, raw: bytes, line: int) -> str:
        try:
            return raw.decode("utf-8-sig" if line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{self.path}, line {line} is not text in UTF-8 ({error.reason}); "
                            "save the file as UTF-8") from None

    def _scan(self, file: BinaryIO, has_header: bool) -> None:
        """Reads the file once, to find its rows and the kind of each column."""
        self._starts = array("q")
        columns = self._all_columns()
        for start, line, cells in islice(self._records(file), int(has_header), None):
            if len(cells) != self.width:
                raise DataError(f"{self.path}, line {line}: {len(cells)} cells where the first "
                                f"row has {self.width}")
            self._starts.append(start)
            for column in columns:
                self._examine(column, cells[column.at].strip(), line)
        self._end = file.tell()
        for column in columns:
            if column.text is not None and not column.category:
                self._need_strings_only(column)

    def _examine(self, column: _Column, cell: str, line: int) -> None:
        """Records the kind of a cell in its column. Raises if the cell is neither kind."""
        if not cell:
            raise DataError(f"{self.path}, line {line}, {column}: the cell is empty; fill gaps "
                            "first, or leave the column out with columns=")
        if not column.category and is_number(cell):
            value = float(cell)
            if not abs(value) <= LARGEST:
                problem = ("beyond the range of float32; scale it" if math.isfinite(value) else
                           "not a finite number; fill gaps")
                raise DataError(f"{self.path}, line {line}, {column}: {cell!r} is {problem} first, "
                                "or leave the column out with columns=")
            column.numbers += 1
            column.is_integer = column.is_integer and value.is_integer() and abs(value) < 2**31
            return
        if not column.category and is_decorated(cell):
            raise DataError(f"{self.path}, line {line}, {column}: {not_a_number(cell)}; if it is a "
                            f"column of strings, pass categories=[{column.key!r}]")
        if column.text is None:
            column.text = cell, line
        column.texts.add(cell)
        if len(column.texts) > MOST_CATEGORIES:
            raise DataError(f"{self.path}: {column} has more than {MOST_CATEGORIES:,} different "
                            "strings, so it is not a category; leave it out with columns=")

    def _need_strings_only(self, column: _Column) -> None:
        assert column.text is not None
        if column.numbers:
            cell, line = column.text
            raise DataError(f"{self.path}, line {line}, {column}: {cell!r} is not a number, as "
                            f"others in this column are; if it is a column of strings, pass "
                            f"categories=[{column.key!r}]")
        column.category = True

    # -- strings as numbers ------------------------------------------------------------------------

    def _new_codes(self) -> dict[int, dict[str, int]]:
        """The number of each string of a column, by the column's position."""
        return {c.at: {text: k for k, text in enumerate(sorted(c.texts))}
                for c in self._all_columns() if c.category}

    def _codes_of(self, like: CsvFile) -> dict[int, dict[str, int]]:
        """The numbers of strings in another file, which must have the same columns."""
        if like.columns != self.columns or [c.category for c in like._all_columns()] != [
                c.category for c in self._all_columns()]:
            raise DataError(f"{self.path} does not have the columns of {like.path}: "
                            f"{', '.join(map(str, like.columns))}, of the same kinds")
        codes = {}
        for column, like_column in zip(self._all_columns(), like._all_columns(), strict=True):
            if column.category:
                numbers = like._codes[like_column.at]
                if new := sorted(column.texts - numbers.keys()):
                    raise DataError(f"{self.path}: {column} holds {new[0]!r}, which {like.path} "
                                    "does not have")
                codes[column.at] = numbers
        self._target.is_integer = like._target.is_integer
        return codes

    # -- reading -----------------------------------------------------------------------------------

    def read(self, rows: np.ndarray) -> Pair:
        x = np.empty((len(rows), len(self._columns)), np.float32)
        is_integer = self._target.category or self._target.is_integer
        y = np.empty(len(rows), np.int32 if is_integer else np.float32)
        with open(self.path, "rb") as file:
            for k in np.argsort(rows):  # in the order of the file
                cells = self._cells(file, int(rows[k]))
                x[k] = [self._value(c, cells) for c in self._columns]
                y[k] = self._value(self._target, cells)
        return x, y

    def _cells(self, file: BinaryIO, row: int) -> list[str]:
        start = self._starts[row]
        end = self._starts[row + 1] if row + 1 < len(self._starts) else self._end
        file.seek(start)
        text = file.read(end - start).decode("utf-8" if start else "utf-8-sig", "replace")
        rows = csv_format.reader(io.StringIO(text, newline="\n"), delimiter=self.separator)
        cells = next(rows, [])
        if len(cells) != self.width:
            raise DataError(f"{self.path} has changed since it was opened")
        return cells

    def _value(self, column: _Column, cells: list[str]) -> float:
        cell = cells[column.at].strip()
        try:
            return self._codes[column.at][cell] if column.category else float(cell)
        except (KeyError, ValueError):
            raise DataError(f"{self.path} has changed since it was opened") from None
