"""Lists measurements, copies them to other machines of the same kind, and deletes them."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from pathlib import Path

from ztorch.compile import tuned_files
from ztorch.compile.tuned_files import TunedKernel
from ztorch.errors import ConfigError, FileError
from ztorch.files.atomic import need_name, write_atomic
from ztorch.files.kinds import ListOf, OneOf
from ztorch.files.parsing import parsing
from ztorch.files.schema import Record, field
from ztorch.lower import schedule

FORMAT = "ztorch tuned schedules 1"
MOST_KERNELS = 100_000
MOST_BYTES = 1 << 27  # largest file that is imported


class TunedCollection(Record):
    """A file of many kernels, which `ztorch tune export` writes."""

    format: str = field(OneOf(FORMAT))
    kernels: tuple[TunedKernel, ...] = field(
        ListOf(TunedKernel, MOST_KERNELS, f"a list of at most {MOST_KERNELS} kernels"))


def known() -> list[TunedKernel]:
    """All measurements of this machine and imported ones. Damaged files are skipped with a
    warning."""
    place, kernels = tuned_files.folder(), []
    for name in tuned_files.names():
        assert place is not None
        try:
            kernels.append(tuned_files.read(place / name))
        except FileError as error:
            warnings.warn(str(error), stacklevel=2)
    return sorted(kernels, key=lambda k: (k.machine, k.threads, k.version, k.title))


def export_file(path: str | os.PathLike[str]) -> int:
    """Writes all that is known to one file; returns the number of kernels."""
    need_name(path, "schedules", ".json", "name it schedules.json")
    kernels = known()
    text = json.dumps(TunedCollection(FORMAT, tuple(kernels)).to_json(), indent=1)
    write_atomic(path, text.encode())
    return len(kernels)


def import_file(path: str | os.PathLike[str]) -> int:
    """Adds the measurements in a file to the cache, replacing those of the same kernels; returns
    the number of kernels. Those of other machines do no harm: they are only found there."""
    if tuned_files.folder() is None:
        raise ConfigError("schedules are kept in the cache, which ZTORCH_CACHE=0 turns off")
    where = os.fspath(path)
    with parsing(where, FileError, "holds no schedules", "`ztorch tune export` writes such files"):
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        kernels = TunedCollection.from_json(json.loads(content)).kernels
    for kernel in kernels:
        schedule.parse(kernel.schedule)
    tuned_files.write(kernels)
    return len(kernels)


def clear() -> int:
    """Forgets all that is known; returns the number of files."""
    place, count = tuned_files.folder(), 0
    for name in tuned_files.names():
        with contextlib.suppress(FileNotFoundError):  # another process has just removed it
            Path(place or "", name).unlink()
            count += 1
    return count
