"""Where the files of data sets lie that do not ship with the package."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from ztorch.errors import DataError
from ztorch.host import settings


def find_folder(name: str, path: str | os.PathLike[str] | None, present: Callable[[Path], bool],
                get: str) -> Path:
    """The folder that has a set's files: the argument, else $ZTORCH_DATA/name, else ./data/name.
    `get` says, in an error, which files to get from where."""
    if path is not None:
        places = [Path(path)]
    else:
        root = settings.current().data
        places = [Path(root) / name] if root else []
        places.append(Path("data") / name)
    for place in places:
        if present(place):
            return place
    looked = " and ".join(str(p) for p in places)
    raise DataError(f"no {name} files in {looked}; get {get} and put them there, or say where they "
                    f'are: load("{name}", path=...) or ZTORCH_DATA, the folder above {name}/')


def digest(path: str | os.PathLike[str]) -> str:
    """The MD5 of a file, which publishers of data sets give; it tells files apart, and no more."""
    found = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()
