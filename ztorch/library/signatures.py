"""The number of buffers of a custom kernel, read from its source."""

from __future__ import annotations

import re

# The parameter list of a kernel's definition, by language.
DEFINITIONS = {"c": r"\b{}\s*\(([^()]*)\)\s*\{{", "hip": r"\b{}\s*\(([^()]*)\)\s*\{{",
               "ptx": r"\.entry\s+{}\s*\(([^()]*)\)"}
COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
SIZES = {"c": 3}  # parameters at the end that are sizes of the grid


def buffer_count(language: str, text: str, kernel: str) -> int | None:
    """The number of buffers that a kernel takes; None where the source does not show it.

    >>> buffer_count("c", "void add(int *x, int *y, long n, long ny, long nz) { *y += *x; }", "add")
    2
    >>> buffer_count("ptx", ".visible .entry add(.param .u64 x, .param .u64 y) { ret; }", "add")
    2
    >>> buffer_count("c", "DEFINE(add)", "add")
    """
    if language not in DEFINITIONS:
        return None
    definition = re.search(DEFINITIONS[language].format(re.escape(kernel)), COMMENTS.sub(" ", text))
    if definition is None:
        return None
    parameters = [p for p in definition[1].split(",") if p.strip() not in ("", "void")]
    return max(len(parameters) - SIZES.get(language, 0), 0)
