"""Finds the folders templates/ and models/, in an installed package or in a source checkout."""

from __future__ import annotations

from pathlib import Path


def folder(name: str) -> Path:
    """The path of a folder of templates, models or data files.

    >>> folder("templates").is_dir()
    True
    """
    package = Path(__file__).parents[1]
    return package / name if (package / name).is_dir() else package.parent / name
