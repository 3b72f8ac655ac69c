"""How many buffers a user's kernel takes, by its text."""

from __future__ import annotations

import re

# The parameters of a kernel's definition in each language; of C the last three are sizes.
DEFINITIONS = {"c": r"\b{}\s*\(([^()]*)\)\s*\{{", "hip": r"\b{}\s*\(([^()]*)\)\s*\{{",
               "ptx": r"\.entry\s+{}\s*\(([^()]*)\)"}
COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
SIZES = {"c": 3}


def memories_of(language: str, text: str, kernel: str) -> int | None:
    """The number of buffers that a kernel takes; None where its text does not say so plainly.

    >>> memories_of("c", "void add(int *x, int *y, long n, long ny, long nz) { *y += *x; }", "add")
    2
    >>> memories_of("ptx", ".visible .entry add(.param .u64 x, .param .u64 y) { ret; }", "add")
    2
    >>> memories_of("c", "DEFINE(add)", "add")
    """
    if language not in DEFINITIONS:
        return None
    definition = re.search(DEFINITIONS[language].format(re.escape(kernel)), COMMENTS.sub(" ", text))
    if definition is None:
        return None
    parameters = [p for p in definition[1].split(",") if p.strip() not in ("", "void")]
    return max(len(parameters) - SIZES.get(language, 0), 0)
