"""Tables of text, for output to a terminal."""

from __future__ import annotations

from collections.abc import Iterable


def table(rows: Iterable[tuple[str, ...]], indent: str = "") -> str:
    """Rows with their columns aligned.

    >>> print(table([("a", "1"), ("long", "22")]))
    a     1
    long  22
    """
    rows = list(rows)
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))] if rows else []
    return "\n".join(
        indent + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows)
