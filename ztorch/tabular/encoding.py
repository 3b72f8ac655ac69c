"""Cells of a column as features: encodings learned from one table, applied to others."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import numpy as np

from ztorch.data.columns import Column, Columns
from ztorch.data.dates import parsed_date
from ztorch.data.kinds import FEW, ColumnKind
from ztorch.errors import DataError
from ztorch.tabular.record import ColumnRecord
from ztorch.tabular.words import bag_of_words, most_frequent, places, plain

MOST_FEATURES = 100  # for the categories of a column
MOST_TEXT_WORDS = 200  # for the words of a text
LEAST_COUNT = 3  # rows that a word must be in to have a feature, where there are many
COARSE = 1e3  # standard deviations from zero, from which on float32 would round too much
LONGEST = 1000  # characters of a category or word that is kept
_WHOLE = re.compile(r"^(-?\d+)\.0+$")  # a whole number that is written as a fraction
_START = datetime(2000, 1, 1)  # days are counted from here


def category(text: str) -> str:
    """A cell as the name of a category: `3.0` is the same as `3`.

    >>> category("3.0"), category("3.05"), category("0012")
    ('3', '3.05', '0012')
    """
    return _WHOLE.sub(r"\1", text)[:LONGEST]


# -- learning --------------------------------------------------------------------------------------


def learned(kind: ColumnKind, column: Column) -> ColumnRecord:
    """How the cells of a column become numbers, as its cells show."""
    return _LEARN[kind.kind](kind, column)


def _learn_number(kind: ColumnKind, column: Column) -> ColumnRecord:
    finite = column.numbers[np.isfinite(column.numbers)]
    fill = float(np.median(finite)) if len(finite) else 0.0
    coarse = len(finite) and abs(finite.mean()) > COARSE * finite.std()
    return ColumnRecord(kind.name, "number", kind.unit, gaps=len(finite) < len(column.cells),
                        fill=fill, origin=fill if coarse else 0.0,
                        lenient=bool((np.isnan(column.numbers) & ~column.gaps).any()))


def _learn_category(kind: ColumnKind, column: Column) -> ColumnRecord:
    cells = [category(text) for text in column.texts if text]
    distinct = len(set(cells))
    words = most_frequent(cells, MOST_FEATURES, 1 if distinct <= FEW else LEAST_COUNT)
    return ColumnRecord(kind.name, "category", gaps=bool(column.gaps.any()), words=words,
                        others=len(words) < distinct)


def _learn_text(kind: ColumnKind, column: Column) -> ColumnRecord:
    # a word counts once in a text; words of almost all texts or of few tell nothing
    tokens = [word[:LONGEST] for text in column.texts for word in set(plain(text).split())]
    words = most_frequent(tokens, MOST_TEXT_WORDS, LEAST_COUNT)
    return ColumnRecord(kind.name, "text", gaps=bool(column.gaps.any()), words=words)


def _learn_date(kind: ColumnKind, column: Column) -> ColumnRecord:
    dates = [parsed_date(text, kind.format) for text in column.texts if text]
    days = [_days(date) for date in dates if date is not None] or [0.0]
    return ColumnRecord(kind.name, "date", gaps=bool(column.gaps.any()),
                        fill=float(np.median(days)), format=kind.format,
                        times=any(day % 1 for day in days))


_LEARN: dict[str, Callable[[ColumnKind, Column], ColumnRecord]] = {
    "number": _learn_number, "category": _learn_category, "text": _learn_text, "date": _learn_date}


# -- encoding --------------------------------------------------------------------------------------


def encoded(record: ColumnRecord, table: Columns, unseen: dict[str, Counter[str]]) -> np.ndarray:
    """The features of a column, float32 of shape (rows, features).

    Args:
        record: How cells become numbers.
        table: The table that has the column.
        unseen: Gets the categories that were not there when the model learned, by column.
    """
    column = table[record.name]
    features, gaps = _ENCODE[record.kind](record, column, table, unseen)
    if not record.gaps:
        return features
    return np.concatenate([features, gaps[:, None].astype(np.float32)], 1)


Encoded = tuple[np.ndarray, np.ndarray]  # features without that of gaps, and which cells are gaps


def _encode_number(record: ColumnRecord, column: Column, table: Columns,
                   unseen: dict[str, Counter[str]]) -> Encoded:
    numbers = column.numbers
    gaps = ~np.isfinite(numbers)
    if not record.lenient and (wrong := np.flatnonzero(gaps & ~column.gaps)).size:
        row = int(wrong[0])
        raise DataError(f"{table.place(row)}, column {record.name!r}: {column.texts[row]!r} is not "
                        "a number; correct the cell, or leave it empty")
    with np.errstate(over="ignore"):
        values = (np.where(gaps, record.fill, numbers) - record.origin).astype(np.float32)
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(f"{table.place(row)}, column {record.name!r}: {column.texts[row]} is more "
                        "than float32 holds")
    return values[:, None], gaps


def _encode_category(record: ColumnRecord, column: Column, table: Columns,
                     unseen: dict[str, Counter[str]]) -> Encoded:
    words = record.words
    cells = list(map(category, column.texts))
    at = places(words, cells)
    features = np.zeros((len(at), len(words) + record.others), np.float32)
    in_words = at >= 0
    features[np.flatnonzero(in_words), at[in_words]] = 1
    other = ~in_words & ~column.gaps
    if record.others:
        features[other, -1] = 1
    elif other.any():
        unseen[record.name] = Counter(cells[row] for row in np.flatnonzero(other))
    return features, column.gaps


def _encode_text(record: ColumnRecord, column: Column, table: Columns,
                 unseen: dict[str, Counter[str]]) -> Encoded:
    texts = [plain(text).split() for text in column.texts]
    counts = np.log1p(np.array([[len(tokens)] for tokens in texts], np.float32))
    return np.concatenate([bag_of_words(record.words, texts, len(texts)), counts], 1), column.gaps


def _encode_date(record: ColumnRecord, column: Column, table: Columns,
                 unseen: dict[str, Counter[str]]) -> Encoded:
    middle = _START + timedelta(days=min(max(record.fill, -7e5), 2.9e6))  # the limits of datetime
    dates = []
    for row, text in enumerate(column.texts):
        date = parsed_date(text, record.format) if text else middle
        if date is None:
            raise DataError(f"{table.place(row)}, column {record.name!r}: {text!r} is not a date "
                            f"of the form {_example(record.format)}; write it so, or leave it "
                            "empty")
        dates.append(date)
    columns = [[_days(d) for d in dates], *_wave([d.month - 1 for d in dates], 12),
               *_wave([d.weekday() for d in dates], 7)]
    if record.times:
        columns += _wave([d.hour + d.minute / 60 for d in dates], 24)
    return np.array(columns, np.float32).T, column.gaps


def _wave(phases: list[int] | list[float], period: int) -> list[list[float]]:
    """Periodic numbers, such as months, as sine and cosine: the last is near the first."""
    turns = [2 * math.pi * phase / period for phase in phases]
    return [[math.sin(t) for t in turns], [math.cos(t) for t in turns]]


def _days(date: datetime) -> float:
    return (date - _START) / timedelta(days=1)


def _example(pattern: str) -> str:
    return datetime(2024, 12, 31, 23, 59, 58).strftime(pattern)


_ENCODE: dict[str, Callable[..., Encoded]] = {
    "number": _encode_number, "category": _encode_category, "text": _encode_text,
    "date": _encode_date}
