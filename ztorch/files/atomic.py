"""Writes files atomically, and refuses names without the suffix of their kind of file."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING

from ztorch.errors import ConfigError, FileError

if TYPE_CHECKING:
    from pathlib import Path

unfinished: set[Path] = set()  # partial files that are being written now


def need_name(path: str | os.PathLike[str], content: str, own: str | tuple[str, ...],
              fix: str) -> None:
    """Raises an error unless `path` ends in a suffix of `own`. `content` and `fix` are parts of its
    message."""
    name, suffixes = os.fspath(path), own if isinstance(own, tuple) else (own,)
    if not name.lower().endswith(suffixes):
        raise ConfigError(f"cannot write {content} to {name!r}, whose name does not end in "
                          f"{' or '.join(suffixes)}; {fix}")


def writable(path: str | os.PathLike[str]) -> Path:
    """The real path of a file to be written. Creates its folder; raises a FileError if the file
    cannot be written there."""
    from pathlib import Path  # imported here since it is slow, and reading does not need it

    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():  # a rename would replace even /dev/null
            kind = "a folder" if target.is_dir() else "not a regular file"
            raise FileError(f"cannot write {os.fspath(path)!r}: it is {kind}; pass another path")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(target.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except FileError:
        raise
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from None
    return target


def unwritable(path: str | os.PathLike[str], error: OSError | ValueError) -> FileError:
    """The error for a file that cannot be written. Python's own may not name the file."""
    reason = getattr(error, "strerror", None) or error
    return FileError(f"cannot write {os.fspath(path)!r}: {reason}; pass another path")


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Replaces a file in one step: a reader, or a crash, sees the old bytes or the new ones."""
    target = writable(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.partial")
    unfinished.add(partial)
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # or a power cut may leave a file without contents
        os.replace(partial, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise unwritable(path, error) if isinstance(error, OSError) else error from None
    finally:
        unfinished.discard(partial)
    if hasattr(os, "O_DIRECTORY"):  # the rename must reach the disk, too
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
