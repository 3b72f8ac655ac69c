"""Finds the files of data sets that do not ship with the package."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from ztorch.errors import DataError
from ztorch.host import settings


class MissingFiles(DataError):
    """The files of a data set, which users download themselves, are missing."""


def find_folder(name: str, path: str | os.PathLike[str] | None, present: Callable[[Path], bool],
                get: str) -> Path:
    """The folder with the files of a data set.

    Args:
        name: The data set.
        path: The only folder to look in; None: $ZTORCH_DATA/name and ./data/name.
        present: Whether a folder has the files.
        get: Which files to download, and from where, for the error message.
    """
    if path is not None:
        places = [Path(path)]
    else:
        root = settings.current().data
        places = [Path(root) / name] if root else []
        places.append(Path("data") / name)
    for place in places:
        if present(place):
            return place
    searched = " and ".join(str(p) for p in places)
    raise MissingFiles(
        f"no {name} files in {searched}; download {get} and put them there, or pass their folder: "
        f'load("{name}", path=...) or ZTORCH_DATA, the folder above {name}/')


def digest(path: str | os.PathLike[str]) -> str:
    """The MD5 of a file, to identify a published data set. Not for security."""
    md5 = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            md5.update(part)
    return md5.hexdigest()
