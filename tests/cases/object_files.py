"""The cache of objects in a folder of its own, empty before and after a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ztorch.codegen import object_cache
from ztorch.host.settings import using


@contextmanager
def empty_cache(path: Path) -> Iterator[Path]:
    """The folder of objects while a test runs."""
    object_cache.forget()
    with using(cache=str(path / "cache")):
        yield path / "cache" / "objects"
    object_cache.forget()


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def never() -> bytes:
    """Assembles nothing: for texts whose object is in the cache."""
    raise AssertionError("this was assembled before")
