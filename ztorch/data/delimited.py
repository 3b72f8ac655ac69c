"""CSV files of any size, read batch by batch: columns of numbers, and of categories."""

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
from ztorch.data.arrays import need_file
from ztorch.data.batches import Batches
from ztorch.data.registry import Pair
from ztorch.data.tables import (
    has_decimal_comma,
    is_header,
    is_number,
    no_number,
    position,
    separator_of,
)
from ztorch.errors import ConfigError, DataError

LONGEST_LINE = 1 << 20  # bytes; a file of another kind may be one endless line
MOST_CATEGORIES = 10_000

Name = str | int


@checked
def csv(path: str | os.PathLike[str], target: Name = -1, *, columns: Sequence[Name] | None = None,
        categories: Sequence[Name] = (), header: bool | None = None, batch_size: int = 256,
        seed: int | None = None, like: CsvFile | None = None) -> CsvFile:
    """Batches of the rows of a CSV file (also with semicolons or tabs): x from `columns`, in that
    order, or all but the target; y from `target`. Both are named as in the header, or by position.

        rows = zt.data.csv("iris.csv", target="species", seed=0)
        program.fit(rows, epochs=5)

    A column is of numbers, or else of texts (or listed in `categories`), which become their places
    in sorted order: see `rows.categories` and `rows.classes`. like= takes all of that from a file
    read before, so that the same text is the same number in both. Empty cells, and texts among
    numbers, are errors that name line and column. The file is read once to find its rows, then
    again for each epoch; `rows.arrays()` reads all at once.
    """
    return CsvFile(path, target, columns, categories, header, batch_size, seed, like)


@dataclass
class _Column:
    """What the cells of a column have been so far."""

    at: int
    name: str
    category: bool = False
    numbers: int = 0
    whole: bool = True
    text: tuple[str, int] | None = None  # the first text, and its line
    texts: set[str] = field(default_factory=set)

    @property
    def called(self) -> Name:
        """What names it in `csv`."""
        return self.name or self.at

    def __str__(self) -> str:
        return f"column {self.at + 1}" + (f" ({self.name})" if self.name else "")


class CsvFile(Batches):
    """What `csv` gives. `columns` are the names of x's columns (their positions in a file without
    a header), `categories` the texts of each column that has some, `classes` those of y."""

    def __init__(self, path: str | os.PathLike[str], target: Name, columns: Sequence[Name] | None,
                 categories: Sequence[Name], header: bool | None, batch_size: int,
                 seed: int | None, like: CsvFile | None):
        self.where = os.fspath(path)
        if not isinstance(like, CsvFile | None):
            raise ConfigError(f"csv(like={like!r}) must be what csv gave for another file")
        need_file(path)
        with open(path, "rb") as file:
            first = file.readline(LONGEST_LINE).decode("utf-8", "replace")
            self.separator = separator_of(first)
            file.seek(0)
            head = [cells for _, _, cells in islice(self._records(file), 2)]
            if not head:
                raise DataError(f"{self.where} is empty")
            named = is_header(head) if header is None else flag("csv(header=...)", header)
            if named and len(head) == 1:
                raise DataError(f"{self.where} has a header but no rows")
            self.width = len(head[0])
            names = tuple(c.strip() for c in head[0]) if named else ()

            for what, listed in (("columns", columns or ()), ("categories", categories)):
                if not isinstance(listed, (list, tuple)):
                    raise ConfigError(f"csv({what}={listed!r}) must be a list of names or "
                                      "positions of columns")

            def at(column: Name) -> int:
                return position(column, names, self.width, self.where)

            self._target = _Column(at(target), names[at(target)] if names else "")
            wanted = [at(c) for c in columns] if columns is not None else [
                k for k in range(self.width) if k != self._target.at]
            if not wanted or self._target.at in wanted or len(set(wanted)) < len(wanted):
                raise ConfigError(f"csv(columns={columns!r}) must name columns once each, and not "
                                  "the target")
            forced = {at(c) for c in categories}
            self._columns = [_Column(k, names[k] if names else "") for k in wanted]
            for column in self._each():
                column.category = column.at in forced
            file.seek(0)
            self._scan(file, named)
        self.columns = tuple(c.name if names else c.at for c in self._columns)
        self._codes = self._coded() if like is None else self._agree(like)
        self.categories = {name: tuple(self._codes[c.at]) for name, c in
                           zip(self.columns, self._columns, strict=True) if c.at in self._codes}
        coded = self._codes.get(self._target.at)
        self.classes = None if coded is None else tuple(coded)
        super().__init__(len(self._starts), batch_size, seed)

    def _each(self) -> list[_Column]:
        return [*self._columns, self._target]

    # -- finding rows ------------------------------------------------------------------------------

    def _records(self, file: BinaryIO) -> Iterator[tuple[int, int, list[str]]]:
        """(where it begins, line, cells) of each row that is not blank."""
        passed = line = 0

        def lines() -> Iterator[str]:
            nonlocal passed, line
            while raw := file.readline(LONGEST_LINE + 1):
                line += 1
                if len(raw) > LONGEST_LINE:
                    raise DataError(f"{self.where}, line {line} is longer than {LONGEST_LINE:,} "
                                    "bytes; is this a table?")
                passed += len(raw)
                yield self._decoded(raw, line)

        rows = csv_format.reader(lines(), delimiter=self.separator)
        while True:
            start = passed
            try:
                cells = next(rows, None)
            except csv_format.Error as error:
                raise DataError(f"{self.where}, line {line}: {error}") from None
            if cells is None:
                return
            if cells:
                yield start, line, cells

    def _decoded(self, raw: bytes, line: int) -> str:
        try:
            return raw.decode("utf-8-sig" if line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{self.where}, line {line} is not text in UTF-8 ({error.reason}); "
                            "save the file as UTF-8") from None

    def _scan(self, file: BinaryIO, named: bool) -> None:
        self._starts = array("q")
        columns = self._each()
        for start, line, cells in islice(self._records(file), int(named), None):
            if len(cells) != self.width:
                raise DataError(f"{self.where}, line {line}: {len(cells)} cells where the first "
                                f"row has {self.width}")
            self._starts.append(start)
            for column in columns:
                self._look(column, cells[column.at].strip(), line)
        self._end = file.tell()
        for column in columns:
            if column.text is not None and not column.category:
                self._need_texts_only(column)

    def _look(self, column: _Column, cell: str, line: int) -> None:
        if not cell:
            raise DataError(f"{self.where}, line {line}, {column}: the cell is empty; fill gaps "
                            "first, or leave the column out with columns=")
        if not column.category and is_number(cell):
            value = float(cell)
            if not math.isfinite(value):
                raise DataError(f"{self.where}, line {line}, {column}: {cell!r} is not a finite "
                                "number; fill gaps first, or leave the column out with columns=")
            column.numbers += 1
            column.whole = column.whole and value.is_integer() and abs(value) < 2**31
            return
        if not column.category and has_decimal_comma(cell):
            raise DataError(f"{self.where}, line {line}, {column}: {no_number(cell)}; if it is a "
                            f"column of texts, give categories=[{column.called!r}]")
        if column.text is None:
            column.text = cell, line
        column.texts.add(cell)
        if len(column.texts) > MOST_CATEGORIES:
            raise DataError(f"{self.where}: {column} has more than {MOST_CATEGORIES:,} different "
                            "texts, so it is no category; leave it out with columns=")

    def _need_texts_only(self, column: _Column) -> None:
        assert column.text is not None
        if column.numbers:
            cell, line = column.text
            raise DataError(f"{self.where}, line {line}, {column}: {cell!r} is not a number, as "
                            f"others in this column are; if it is a column of texts, give "
                            f"categories=[{column.called!r}]")
        column.category = True

    # -- texts as numbers --------------------------------------------------------------------------

    def _coded(self) -> dict[int, dict[str, int]]:
        return {c.at: {text: k for k, text in enumerate(sorted(c.texts))}
                for c in self._each() if c.category}

    def _agree(self, like: CsvFile) -> dict[int, dict[str, int]]:
        """The numbers that another file's texts have, where this file has the same columns."""
        if like.columns != self.columns or [c.category for c in like._each()] != [
                c.category for c in self._each()]:
            raise DataError(f"{self.where} does not have the columns of {like.where}: "
                            f"{', '.join(map(str, like.columns))}, of the same kinds")
        codes = {}
        for own, other in zip(self._each(), like._each(), strict=True):
            if own.category:
                known = like._codes[other.at]
                if new := sorted(own.texts - known.keys()):
                    raise DataError(f"{self.where}: {own} holds {new[0]!r}, which {like.where} "
                                    "never does")
                codes[own.at] = known
        self._target.whole = like._target.whole
        return codes

    # -- reading -----------------------------------------------------------------------------------

    def read(self, rows: np.ndarray) -> Pair:
        x = np.empty((len(rows), len(self._columns)), np.float32)
        whole = self._target.category or self._target.whole
        y = np.empty(len(rows), np.int32 if whole else np.float32)
        with open(self.where, "rb") as file:
            for k in np.argsort(rows):  # forwards through the file
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
            raise DataError(f"{self.where} has changed since it was opened")
        return cells

    def _value(self, column: _Column, cells: list[str]) -> float:
        cell = cells[column.at].strip()
        try:
            return self._codes[column.at][cell] if column.category else float(cell)
        except (KeyError, ValueError):
            raise DataError(f"{self.where} has changed since it was opened") from None
