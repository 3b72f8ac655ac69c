"""Tables with typed columns, from which a pipeline learns encodings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import fraction
from ztorch.data.batches import shuffled
from ztorch.data.columns import Columns, read_columns
from ztorch.data.kinds import ColumnKind, kinds_of
from ztorch.errors import ConfigError, DataError
from ztorch.terminal.notebook import preformatted

MOST_CLASSES = 50  # a target with more different integers is a quantity, not a class


@checked
def table(source: Any, target: str | None = None, *, number: Sequence[str] = (),
          category: Sequence[str] = (), date: Sequence[str] = (), text: Sequence[str] = (),
          ignore: Sequence[str] = ()) -> TypedTable:
    """Reads a table, and detects the kind of each column.

    A column holds numbers, categories, dates or text. A column that identifies rows, such as an
    id, or that has the same cell in every row, is ignored. Empty cells, `NA`, `nan`, `null`,
    `none` and `?` are gaps. Numbers may have a decimal comma, commas between thousands, a sign of
    money or a percent sign: `1,5`, `$1,000`, `5 %`. `print` shows the detected kinds.

    Args:
        source: A .csv file, a stream of one, a data frame of pandas, Polars or Arrow, a dict of
            columns, or a list of dicts.
        target: The column to predict; rows in which it is empty are dropped. None: there is none.
            Default: `None`.
        number: Columns to read as numbers; other cells count as gaps. A target named here is a
            quantity. Default: `()`.
        category: Columns to read as categories, even if they look like numbers. A target named here
            is a class. Default: `()`.
        date: Columns to read as dates. Default: `()`.
        text: Columns to read as text. Default: `()`.
        ignore: Columns to ignore. Default: `()`.

    Returns:
        A TypedTable: `columns` with their cells, and `kinds` by name.

    Raises:
        DataError: A row has too few cells, or there is a string among numbers; the message names
            the line, the column and a fix.

    Examples:
        >>> rows = table({"age": [22, None, 35, 28], "sex": ["m", "f", "f", "m"],
        ...               "fate": ["lost", "saved", "saved", "lost"]}, target="fate")
        >>> print(rows)
        the table: 4 rows, 3 columns
        column  holds     gaps  values  examples
        age     number    1     3       22 | 35 | 28
        sex     category        2       m | f
        fate    target          2       lost | saved
    """
    columns = read_columns(source)
    if not isinstance(target, str | None):
        raise ConfigError(f"table(target={target!r}) must be the name of a column")
    forced: dict[str, str] = {}
    for kind, names in (("number", number), ("category", category), ("date", date), ("text", text),
                        ("ignored", ignore)):
        if isinstance(names, str):
            raise ConfigError(f"table({kind}={names!r}) must be a list of columns: [{names!r}]")
        if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) for n in names):
            raise ConfigError(f"table({kind}={names!r}) must be a list of column names")
        for name in names:
            columns[name]  # raises where there is no such column
            if name == target and kind not in ("number", "category"):
                raise ConfigError(f"the target {name!r} cannot be {kind}: it is a number or a "
                                  "category")
            if name in forced:
                raise ConfigError(f"column {name!r} is named as {forced[name]} and as {kind}")
            forced[name] = kind
    return TypedTable(columns, target, forced)


class TypedTable:
    """A table with typed columns, as `table` returns it."""

    def __init__(self, columns: Columns, target: str | None, forced: dict[str, str]):
        self.target, self.dropped = target, 0
        if not columns.rows:
            raise DataError(f"{columns.where} has no rows")
        if target is not None:
            missing = columns[target].gaps
            self.dropped = int(missing.sum())  # rows in which the target is empty
            if self.dropped == columns.rows:
                raise DataError(f"{columns.where}: every cell of the target {target!r} is empty")
            if self.dropped:
                columns = columns.select(np.flatnonzero(~missing))
        self.columns = columns
        if target is not None:
            forced = {**forced, target: _target_kind(columns, target, forced.get(target))}
        self.kinds: dict[str, ColumnKind] = kinds_of(columns, forced)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.columns.rows

    @property
    def classifies(self) -> bool:
        """Whether the target is a class, not a quantity."""
        return self.target is not None and self.kinds[self.target].kind == "category"

    @property
    def inputs(self) -> list[ColumnKind]:
        """The columns to predict from."""
        return [k for name, k in self.kinds.items() if name != self.target and k.kind != "ignored"]

    def split(self, share: float = 0.2, seed: int = 0) -> tuple[TypedTable, TypedTable]:
        """Splits the rows in two, with the same fraction of each class in both parts.

        Args:
            share: The fraction of rows in the second part, between 0 and 1. Default: `0.2`.
            seed: The seed for shuffling. Default: `0`.

        Returns:
            Two tables, for training and for testing.

        Raises:
            ConfigError: A part would be empty.

        Examples:
            >>> rows = table({"x": range(50), "y": ["a", "b"] * 25}, target="y")
            >>> [part.rows for part in rows.split(0.2)]
            [40, 10]
        """
        share = fraction("split(...)", share)
        order = shuffled(seed, 0, self.rows)
        if self.classifies:  # by classes, each in the shuffled order
            assert self.target is not None
            _, numbers = np.unique(np.array(self.columns[self.target].texts), return_inverse=True)
            groups = [order[numbers[order] == k] for k in range(numbers.max() + 1)]
        else:
            groups = [order]
        test = [group[:round(share * len(group))] for group in groups]
        test_rows = np.sort(np.concatenate(test))
        if not 0 < len(test_rows) < self.rows:
            raise ConfigError(f"a fraction of {share} of {self.rows} rows leaves one side empty; "
                              "use more rows, or another fraction, such as 0.5")
        train_rows = np.setdiff1d(np.arange(self.rows), test_rows)
        return self._part(train_rows), self._part(test_rows)

    def _part(self, rows: np.ndarray) -> TypedTable:
        part = object.__new__(TypedTable)
        part.columns, part.target, part.dropped = self.columns.select(rows), self.target, 0
        part.kinds = self.kinds  # as detected from all rows
        return part

    def __str__(self) -> str:
        lines = [("column", "holds", "gaps", "values", "examples", "")]
        for k in self.kinds.values():
            holds = "target" if k.name == self.target else k.kind
            lines.append((k.name, holds, str(k.gaps or ""), str(k.distinct),
                          " | ".join(k.examples), k.note))
        widths = [max(len(line[k]) for line in lines) for k in range(5)]
        body = ["  ".join([*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)),
                           line[5]]).rstrip() for line in lines]
        dropped = f"; {self.dropped} rows without {self.target} left out" if self.dropped else ""
        return "\n".join([f"{self.columns.where}: {self.rows:,} rows, {len(self.kinds)} columns"
                          f"{dropped}", *body])

    def _repr_html_(self) -> str:
        """The kinds of the columns, for notebooks."""
        return preformatted(str(self))

    def __repr__(self) -> str:
        return f"<TypedTable of {self.rows} rows, {len(self.kinds)} columns>"


def _target_kind(columns: Columns, target: str, forced: str | None) -> str:
    """The kind of the target, unless the user chose it: a class if it has strings or few different
    integers, else a quantity."""
    column = columns[target]
    numbers = column.numbers[~column.gaps]
    distinct = len(set(column.texts) - {""})
    if distinct < 2:
        raise DataError(f"{columns.where}: the target {target!r} is {column.texts[0]!r} in every "
                        "row, so there is nothing to learn")
    if forced == "number" and not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(column.numbers))[0])
        raise DataError(f"{columns.place(row)}: the target {target!r} is {column.texts[row]!r}, "
                        "not a number")
    if forced is not None:
        return forced
    if np.isfinite(numbers).all():
        few = distinct <= min(MOST_CLASSES, max(2, 0.05 * len(numbers), 10))
        return "category" if few and not (numbers % 1).any() else "number"
    if distinct > max(MOST_CLASSES, 0.2 * len(numbers)):
        raise DataError(f"{columns.where}: the target {target!r} holds {distinct:,} different "
                        f"strings in {len(numbers):,} rows, too many to be classes")
    return "category"
