"""What notebooks show: text in columns, and tables of arrays."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

MOST = 10  # rows and columns of a table that fit a screen
EDGE = 4  # rows and columns shown at each end of a longer axis


def preformatted(text: str) -> str:
    """The HTML of a text whose columns are aligned. Notebooks set `pre` in a font of varying width.

    >>> preformatted("a < b").endswith(">a &lt; b</pre>")
    True
    """
    return ('<pre style="font-family: monospace; font-size: 0.9em; line-height: 1.3; '
            f'white-space: pre; overflow-x: auto">{html.escape(text)}</pre>')


def table(array: np.ndarray, title: str, names: Sequence[str] = ()) -> str:
    """The HTML of an array.

    Args:
        array: Its numbers.
        title: The caption.
        names: The heads of the columns of two axes, of which there are few. Default: `()`.
    """
    head = f"<div><code>{html.escape(title)}</code></div>"
    if array.ndim not in (1, 2) or not array.size:
        return head + preformatted(np.array2string(array, separator=", "))
    rows = array if array.ndim == 2 else array[None]
    body = "".join(f"<tr>{''.join(_cells(rows, r))}</tr>" for r in _shown(len(rows)))
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    return f"{head}<table>{f'<tr>{heads}</tr>' if names else ''}{body}</table>"


def _cells(rows: np.ndarray, r: int | None) -> list[str]:
    """A row of the table; all dots for omitted rows."""
    return [f"<td>{'…' if r is None or c is None else html.escape(_number(rows[r, c]))}</td>"
            for c in _shown(rows.shape[1])]


def _shown(count: int) -> list[int | None]:
    """The indices of the shown rows or columns; None marks the omitted ones.

    >>> _shown(3), _shown(20)
    ([0, 1, 2], [0, 1, 2, 3, None, 16, 17, 18, 19])
    """
    if count <= MOST:
        return list(range(count))
    return [*range(EDGE), None, *range(count - EDGE, count)]


def _number(x: np.generic) -> str:
    return f"{x:.6g}" if x.dtype.kind == "f" else str(x)
