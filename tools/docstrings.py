"""Docstrings for the API reference: an extension of griffe, which reads them (see mkdocs.yml).

Our docstrings are plain text with doctests. Markdown takes `>>>` for a quotation of a quotation, so
doctests become blocks of code.
"""

from __future__ import annotations

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Puts fences around the doctests of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""Text with its doctests as blocks of code.

    >>> fenced("Adds.\n\n>>> 1 + 1\n2\n\nMore.").split("\n")
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'More.']
    """
    lines: list[str] = []
    inside = False
    for line in [*text.split("\n"), ""]:
        if line.lstrip().startswith(">>> ") and not inside:
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines).rstrip("\n")
