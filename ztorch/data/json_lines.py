"""JSON lines: files with one row per line, which may differ in size."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ztorch.data.numpy_files import need_file
from ztorch.data.tables import labels
from ztorch.errors import DataError
from ztorch.files.parsing import parsing

SUFFIXES = (".jsonl", ".ndjson")

Rows = np.ndarray | list[np.ndarray]  # a list where rows differ in size


def is_json_lines(path: str) -> bool:
    """Whether a file has the suffix of JSON lines.

    >>> is_json_lines("words.jsonl"), is_json_lines("words.json")
    (True, False)
    """
    return path.lower().endswith(SUFFIXES)


def begins_as_json_lines(content: bytes) -> bool:
    """Whether bytes look like JSON lines, not like a table.

    >>> begins_as_json_lines(b' [1, 2]'), begins_as_json_lines(b'1,2')
    (True, False)
    """
    return content.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"[", b"{")


def read_json_lines(source: str | os.PathLike[str] | bytes) -> dict[str, Rows]:
    """Reads rows from JSON lines. A line is an object with an array, a number or a string for each
    name, or only an array, which gets the name x.

    Args:
        source: A file, or its content.

    Returns:
        The rows by name.

    Raises:
        DataError: A line is not JSON, or has other names than the first one.

    Examples:
        >>> rows = read_json_lines(b'{"x": [1, 2], "y": "a"} \\n {"x": [3], "y": "b"}')
        >>> rows["x"], rows["y"].tolist()
        ([array([1, 2]), array([3])], ['a', 'b'])
    """
    if isinstance(source, bytes):
        source_name, content = "standard input", source
    else:
        need_file(source)
        source_name, content = os.fspath(source), Path(source).read_bytes()
    columns: dict[str, list[np.ndarray]] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{source_name}, line {number}"
        with parsing(place, DataError, "is not JSON", "write one row per line, such as [1, 2]"):
            row = json.loads(line)
        values = row if isinstance(row, dict) else {"x": row}
        if not columns:
            columns = {name: [] for name in values}
        if values.keys() != columns.keys():
            raise DataError(f"{place} has {_listed(values)}, but the first line has "
                            f"{_listed(columns)}; give each line the same names")
        for name, value in values.items():
            columns[name].append(_array(value, f"{place}, {name}"))
    if not columns:
        raise DataError(f"{source_name} holds no rows")
    return {name: _stacked(rows) for name, rows in columns.items()}


def _array(value: Any, place: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        raise DataError(f"{place} is a list of lists of different lengths, which is not an "
                        "array; pad the inner lists") from None
    if array.dtype.kind not in "biufU":
        raise DataError(f"{place} is neither numbers nor strings; leave out rows with gaps, or "
                        "fill them")
    return array


def _stacked(rows: list[np.ndarray]) -> Rows:
    """The rows as one array if they have one shape; else the list of them."""
    return np.stack(rows) if len({row.shape for row in rows}) == 1 else rows


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "no names"


def labels_of(y: Rows) -> tuple[Rows, tuple[str, ...] | None]:
    """Labels as numbers, and the strings that they stand for, if labels are strings.

    >>> labels_of([np.array(["b", "a"]), np.array(["b"])])
    ([array([1, 0], dtype=int32), array([1], dtype=int32)], ('a', 'b'))
    """
    flat = np.concatenate([row.reshape(-1) for row in y]) if isinstance(y, list) else y
    numbers, classes = labels(flat)
    if not isinstance(y, list):
        return numbers, classes
    ends = np.cumsum([row.size for row in y])[:-1]
    return [part.reshape(row.shape)
            for part, row in zip(np.split(numbers, ends), y, strict=True)], classes


def by_row(rows: Rows, function: Callable[[np.ndarray], np.ndarray]) -> Rows:
    """Applies a function to an array of rows, or to each row of a list."""
    return [function(row) for row in rows] if isinstance(rows, list) else function(rows)


def to_json_lines(columns: Mapping[str, Rows]) -> str:
    """Rows as JSON lines for `read_json_lines`; an empty name stands for lines of arrays.

    >>> print(to_json_lines({"": [np.array([0.1, 2], np.float32), np.array([3])]}), end="")
    [0.1, 2.0]
    [3]
    """
    lines = []
    for row in zip(*columns.values(), strict=True):
        values = [_plain(np.asarray(value)) for value in row]
        by_name = dict(zip(columns, values, strict=True))
        lines.append(json.dumps(by_name.get("", by_name)) + "\n")
    return "".join(lines)


def _plain(row: np.ndarray) -> Any:
    """An array as lists, with the fewest digits that represent each float32."""
    if row.dtype.kind != "f" or row.dtype == np.float64:
        return row.tolist()
    return row.astype(str).astype(np.float64).tolist()
