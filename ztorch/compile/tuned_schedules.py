"""Makes the compiler use schedules that `tune` chose instead of those of its rules.

A file that is damaged, or whose schedule does not fit the kernel, is ignored with a warning.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from ztorch.codegen.targets import Target
from ztorch.compile import tuned_files
from ztorch.errors import FileError
from ztorch.host.settings import current
from ztorch.lower import nests
from ztorch.lower.plan import Chooser
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import IllegalSchedule, Schedule


def chooser(target: Target, threads: int | None = None) -> Chooser | None:
    """The source of schedules for the compiler, if any were measured on a machine like this."""
    place = tuned_files.folder()
    if place is None or not current().tuned:
        return None
    stored = set(tuned_files.names())
    if not stored:
        return None
    on_gpu = target.limits.grid is not None
    count = 0 if on_gpu else tuned_files.usual_threads(threads)
    # What was measured goes before what was predicted.
    machines = [tuned_files.machine_of(target, p) for p in ((False, True) if on_gpu else (False,))]

    def choose(kernel: RegionKernel) -> Schedule | None:
        if kernel.hints is not None:  # the user's own hints take precedence
            return None
        names = (tuned_files.file_name(kernel.work, m, count) for m in machines)
        name = next((n for n in names if n in stored), None)
        return None if name is None else _schedule(place / name, kernel)

    return choose


def _schedule(path: Path, kernel: RegionKernel) -> Schedule | None:
    """The schedule in a file; None if it is that of the rules."""
    try:
        tuned = tuned_files.read(path)
        if tuned.schedule == tuned.rule or tuned.work != kernel.work:
            return None
        return nests.checked(tuned.schedule, kernel.region, kernel.limits, kernel.key)
    except (FileError, IllegalSchedule) as error:
        warnings.warn(f"{path} is ignored: {error}", stacklevel=2)
        return None
