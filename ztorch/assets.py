"""Where templates/ and models/ lie: inside the package when installed, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path


def folder(name: str) -> Path:
    """The folder of templates, models or data files.

    >>> folder("templates").is_dir()
    True
    """
    here = Path(__file__).parent
    return here / name if (here / name).is_dir() else here.parent / name
