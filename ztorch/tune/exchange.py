"""Lists, exports, imports and deletes stored measurements."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from pathlib import Path

from ztorch.compile import tuned_files
from ztorch.compile.tuned_files import TunedKernel
from ztorch.compile.tuned_schedules import any_schedule
from ztorch.errors import ConfigError, FileError
from ztorch.files.atomic import need_name, write_atomic
from ztorch.files.kinds import ListOf, OneOf
from ztorch.files.parsing import parsing
from ztorch.files.schema import Record, field

FORMAT = "ztorch tuned schedules 1"
MAX_KERNELS = 100_000  # largest number in a file that is imported
MAX_FILE_BYTES = 1 << 27  # largest file that is imported


class TunedCollection(Record):
    """The contents of a file that `ztorch tune export` writes."""

    format: str = field(OneOf(FORMAT))
    kernels: tuple[TunedKernel, ...] = field(
        ListOf(TunedKernel, MAX_KERNELS, f"a list of at most {MAX_KERNELS} kernels"))


def stored_kernels() -> list[TunedKernel]:
    """All stored measurements, of this machine and imported ones. A damaged file gives a
    warning."""
    folder, kernels = tuned_files.folder(), []
    for name in tuned_files.names():
        assert folder is not None
        try:
            kernels.append(tuned_files.read(folder / name))
        except FileError as error:
            warnings.warn(str(error), stacklevel=2)
    return sorted(kernels, key=lambda k: (k.machine, k.threads, k.version, k.title))


def export_file(path: str | os.PathLike[str]) -> int:
    """Writes all stored measurements to one file; returns the number of kernels."""
    need_name(path, "schedules", ".json", "name it schedules.json")
    kernels = stored_kernels()
    text = json.dumps(TunedCollection(FORMAT, tuple(kernels)).to_json(), indent=1)
    write_atomic(path, text.encode())
    return len(kernels)


def import_file(path: str | os.PathLike[str]) -> int:
    """Stores the measurements of a file, in place of earlier ones of the same kernels.

    Measurements of other machines have no effect here.

    Returns:
        The number of kernels.
    """
    if tuned_files.folder() is None:
        raise ConfigError("schedules are stored in the cache, which ZTORCH_CACHE=0 turns off")
    where = os.fspath(path)
    with parsing(where, FileError, "holds no schedules", "`ztorch tune export` writes such files"):
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES:,} bytes")
        kernels = TunedCollection.from_json(json.loads(content)).kernels
    for kernel in kernels:
        any_schedule(kernel.schedule)
    tuned_files.write(kernels)
    return len(kernels)


def clear() -> int:
    """Deletes all stored measurements; returns the number of files."""
    folder, count = tuned_files.folder(), 0
    for name in tuned_files.names():
        with contextlib.suppress(FileNotFoundError):  # another process has just removed it
            Path(folder or "", name).unlink()
            count += 1
    return count
