"""Whitespace and leftovers that a commit should not have: `python tools/whitespace.py FILES`.

Trailing blanks and a missing or doubled end of file are mended, marks of a merge conflict and files
that are not UTF-8 are reported. The exit status is 1 if there was any fault, as pre-commit expects.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MARKS = re.compile(r"^(<{7} |={7}$|>{7} )", re.MULTILINE)


def mended(text: str) -> str:
    """Text without trailing blanks, and with one end of line at its end.

    >>> mended("a  \\n\\tb\\n\\n")
    'a\\n\\tb\\n'
    """
    body = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).rstrip("\n")
    return body + "\n" if body else ""


def faults(path: Path) -> str:
    """The faults of a file; empty if there are none. Whitespace is mended in place."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            text = file.read()
    except UnicodeDecodeError:
        return "is not UTF-8"
    if MARKS.search(text):
        return "has marks of a merge conflict"
    if "\r\n" in text:
        return "has lines that end as on Windows"
    if mended(text) != text:
        path.write_text(mended(text), encoding="utf-8")
        return "had blanks at ends of lines or of the file; they are gone now"
    return ""


if __name__ == "__main__":
    problems = [f"{name} {fault}" for name in sys.argv[1:] if (fault := faults(Path(name)))]
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(bool(problems))
