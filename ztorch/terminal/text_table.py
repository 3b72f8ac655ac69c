"""Tables of text with aligned columns, for terminals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def aligned_table(rows: Iterable[Sequence[str]], indent: str = "") -> str:
    """Rows as lines with aligned columns.

    Args:
        rows: The cells of each row. All rows have the same length.
        indent: The text before each line. Default: `""`.

    Examples:
        >>> print(aligned_table([("a", "1"), ("long", "22")]))
        a     1
        long  22
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        indent + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows)
