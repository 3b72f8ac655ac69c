"""Files of measured schedules.

`ztorch tune` writes a small JSON file for each kernel that it measured, to the folder `tuned` of
the cache. The name of the file depends on the kernel's computation, the machine, the number of
threads and the version of ztorch: a schedule is only used where it was measured. Files are replaced
atomically, so several processes may read and write them at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ztorch.errors import FileError
from ztorch.files.atomic import write_atomic
from ztorch.files.kinds import LINE, Real, String, Whole
from ztorch.files.parsing import parsing
from ztorch.files.schema import Record, field
from ztorch.host import processor
from ztorch.host.settings import current
from ztorch.version import __version__

if TYPE_CHECKING:
    from ztorch.codegen.targets import Target

MOST_BYTES = 1 << 16  # of a file; a typical one has about 500
MOST_THREADS = 1 << 16  # more than any machine has
MOST_SECONDS = 1e6  # of a kernel
_OF_LIBRARY = "-library"  # ends the names of files whose record has a library


class TunedKernel(Record):
    """The measurement of one kernel."""

    work: str = field(String("[0-9a-f]{64}", "a digest"))  # a digest of its computation
    title: str = field(LINE)  # the computation for people: ops, dtype and shape
    machine: str = field(LINE)  # in the form of `machine_of`
    threads: int = field(Whole(0, MOST_THREADS))  # that shared the kernel; 0: those of a GPU
    version: str = field(LINE)  # of ztorch
    schedule: str = field(LINE)  # the fastest schedule
    rule: str = field(LINE)  # the schedule that the rules propose
    seconds: float = field(Real(0, MOST_SECONDS, "seconds"))  # of the fastest
    rule_seconds: float = field(Real(0, MOST_SECONDS, "seconds"))  # of the rules' schedule
    # Name and version of a library of the machine that was measured beside our fastest schedule,
    # which is the `rule` then; empty: none.
    library: str = field(LINE, default="")

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return file_name(self.work, self.machine, self.threads, self.version, self.library)


def machine_of(target: Target, predicted: bool = False) -> str:
    """The machine that a target's kernels are measured on: SIMD level, processor and caches; of a
    GPU its chip and units, and the bits of float32 that count in products. It is another one for
    programs that may not transform convolutions: a library may have no other way to compute them.

    Args:
        target: The target.
        predicted: Whether times are predicted for the machine, not measured. Default: `False`.

    >>> from ztorch.codegen.targets import target
    >>> machine_of(target("avx2"))
    'avx2 any 32K 1024K 8192K'
    >>> machine_of(target("cuda:sm_80"))
    'cuda:sm_80, 108 units, 23 bits'
    >>> machine_of(target("cuda:sm_80").with_precision("exact"))
    'cuda:sm_80, 108 units, 23 bits, no transforms'
    """
    grid, plain = target.limits.grid, ", no transforms" * (not target.limits.transforms)
    if grid is not None:
        without = ", no matrix instructions" * (not grid.mma_shapes)
        return (f"{target.name}, {grid.compute_units} units, {target.limits.product_mantissa_bits} "
                f"bits{plain}{without}{', predicted' * predicted}")
    row = target.limits.processor
    caches = (f"{n >> 10}K" for n in (row.l1_bytes, row.l2_bytes, row.l3_bytes))
    return " ".join((target.name, row.name, *caches)) + plain


def usual_threads(threads: int | None) -> int:
    """The number of threads that a program runs with."""
    return threads or current().threads or processor.usable_cores()


def file_name(work: str, machine: str, threads: int, version: str = __version__,
              library: str = "") -> str:
    """The name of the file of a kernel."""
    text = "\n".join((work, machine, str(threads), version, *([library] if library else [])))
    return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}{_OF_LIBRARY * bool(library)}.json"


def has_libraries() -> bool:
    """Whether products of other libraries were measured."""
    return any(name.endswith(f"{_OF_LIBRARY}.json") for name in names())


def folder() -> Path | None:
    """The folder of the files; None if there is no cache (ZTORCH_CACHE=0)."""
    cache = current().cache
    return None if cache is None else Path(cache, "tuned")


def names() -> list[str]:
    """The names of all files."""
    place = folder()
    try:
        return [] if place is None else sorted(
            name for name in os.listdir(place) if name.endswith(".json"))
    except OSError:
        return []


def state() -> str:
    """A text that changes whenever a file does; empty if there are none."""
    place, parts = folder(), []
    for name in names():
        with contextlib.suppress(OSError):  # another process has just removed it
            status = os.stat(os.path.join(place or "", name))
            parts.append(f"{name} {status.st_mtime_ns} {status.st_size}")
    return "\n".join(parts)


def read(path: Path) -> TunedKernel:
    """The contents of a file; raises FileError if it is damaged."""
    with parsing(str(path), FileError, "is not a schedule of `ztorch tune`",
                 "delete it, or run `ztorch tune clear`"):
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        return TunedKernel.from_json(json.loads(content))


def write(kernels: Iterable[TunedKernel]) -> None:
    """Writes a file for each kernel, replacing existing ones."""
    place = folder()
    if place is None:
        return
    for kernel in kernels:
        write_atomic(place / kernel.file_name, json.dumps(kernel.to_json(), indent=1).encode())
