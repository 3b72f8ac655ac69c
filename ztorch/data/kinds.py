"""Detects the kinds of a table's columns: numbers, categories, dates, text, or ignored."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ztorch.data.columns import Column, Columns
from ztorch.data.dates import date_format
from ztorch.errors import DataError

KINDS = ("number", "category", "date", "text", "ignored")
FEW = 20  # a column with at most this many different strings is always a category
SHARE = 0.3  # of rows: a column with more different strings is not a category
MOST_CATEGORIES = 1000  # a column with more different strings is not a category
LEAST_ROWS = 20  # in fewer rows, cells may all differ by chance
EXAMPLES = 3  # cells of a column that are shown
LONGEST_EXAMPLE = 24  # characters of an example
_ID = re.compile(r"(^|[^a-z])(id|uuid|guid|key|nr|no|index)$", re.IGNORECASE)
_CAMEL_ID = re.compile(r"[a-z]I[dD]$")
_UNIT = re.compile(r".*\S\s*[\[(]([^\[\]()]{1,20})[\])]\s*")


@dataclass(frozen=True)
class ColumnKind:
    """The kind of a column, and the reason for it."""

    name: str
    kind: str  # one of KINDS
    gaps: int  # missing cells
    distinct: int  # number of different cells
    examples: tuple[str, ...]  # the first different cells
    note: str = ""  # why it is ignored, or another remark
    format: str = ""  # of dates, for strptime

    @property
    def unit(self) -> str:
        """The unit in brackets at the end of the column's name.

        >>> ColumnKind("height [cm]", "number", 0, 2, ()).unit
        'cm'
        """
        match = _UNIT.fullmatch(self.name)
        return match[1].strip() if match else ""


def kinds_of(table: Columns, forced: Mapping[str, str]) -> dict[str, ColumnKind]:
    """The kind of each column: from `forced`, or detected from its cells."""
    return {name: _kind(table, column, forced.get(name))
            for name, column in table.by_name.items()}


def _kind(table: Columns, column: Column, forced: str | None) -> ColumnKind:
    texts = [text for text in column.texts if text]
    counts = Counter(texts)
    facts = (int(column.gaps.sum()), len(counts), tuple(
        _shortened(" ".join(text.split())) for text in list(counts)[:EXAMPLES]))

    def result(kind: str, note: str = "", pattern: str = "") -> ColumnKind:
        return ColumnKind(column.name, kind, *facts, note, pattern)

    if forced is not None:
        return result(forced, *_forced(table, column, forced, texts))
    if not counts:
        return result("ignored", "every cell is empty")
    if len(counts) == 1:
        return result("ignored", "has only one value")
    numbers = column.numbers[~column.gaps]
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(column.numbers))[0])
        raise DataError(f"{table.place(row)}, column {column.name!r}: {column.texts[row]} is not a "
                        "finite number; leave the cell empty")
    valid = ~np.isnan(numbers)
    if valid.all():
        if _identifies_rows(column, numbers, len(counts)):
            return result("ignored", "numbers the rows")
        return result("number")
    if valid.mean() >= 0.8 and len(numbers) >= 5:
        row = int(np.flatnonzero(np.isnan(column.numbers) & ~column.gaps)[0])
        listed = f"[{column.name!r}]"
        raise DataError(f"{table.place(row)}, column {column.name!r}: {column.texts[row]!r} is not "
                        f"a number, as the others are; correct it, or declare the column's kind: "
                        f"number={listed} (strings become gaps), category={listed} or "
                        f"ignore={listed}")
    if pattern := date_format(texts):
        return result("date", "", pattern)
    return result(*_kind_of_texts(texts, counts))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_EXAMPLE else f"{text[:LONGEST_EXAMPLE - 3]}..."


def _forced(table: Columns, column: Column, kind: str, texts: list[str]) -> tuple[str, str]:
    """The note and the date format of a column whose kind the user chose."""
    if kind == "number":
        if gaps := int((np.isnan(column.numbers) & ~column.gaps).sum()):
            return f"{gaps} strings count as gaps", ""
        return "", ""
    if kind == "date":
        pattern = date_format(texts)
        if pattern is None:
            raise DataError(f"{table.where}: column {column.name!r} holds no dates in one format, "
                            f"such as 2024-12-31 or 31.12.2024; its cells are like {texts[:1]!r}")
        return "", pattern
    return ("as requested" if kind == "ignored" else ""), ""


def _identifies_rows(column: Column, numbers: np.ndarray, distinct: int) -> bool:
    """Whether numbers only identify rows."""
    if distinct < len(numbers) or len(numbers) < LEAST_ROWS or (numbers % 1).any():
        return False
    steps = np.diff(numbers)
    looks_like_id = _ID.search(column.name) or _CAMEL_ID.search(column.name)
    return bool(looks_like_id) or bool((steps == steps[0]).all())


def _kind_of_texts(texts: list[str], counts: Counter[str]) -> tuple[str, str]:
    """The kind of a column of strings, and a note: category, text, or ignored as an identifier."""
    words = sum(text.count(" ") + 1 for text in texts) / len(texts)
    if len(counts) <= max(FEW, min(SHARE * len(texts), MOST_CATEGORIES)) and (
            len(counts) < len(texts) or len(texts) < LEAST_ROWS):
        return "category", ""
    if words >= 2:
        return "text", ""
    if len(counts) == len(texts):
        return "ignored", "differs in every row"
    return "category", f"{len(counts)} different strings; rare ones share one category"
