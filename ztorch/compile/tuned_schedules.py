"""Makes the compiler use schedules that `tune` chose instead of those of its rules.

A file that is damaged, or whose schedule does not fit the kernel, is ignored with a warning.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ztorch.codegen.targets import Target
from ztorch.compile import tuned_files
from ztorch.compile.tuned_files import TunedKernel
from ztorch.errors import FileError
from ztorch.graph.text import text_of
from ztorch.graph.value import Graph
from ztorch.host.settings import current
from ztorch.lower import nests
from ztorch.lower.plan import Chooser
from ztorch.lower.plan_schedule import APART, RECOMPUTED, RULES, PlanSchedule
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import IllegalSchedule, Schedule, parse

S = TypeVar("S", bound=Schedule)
TICK = 1e-9  # of a clock, in seconds: no race measures less


def chooser(target: Target, threads: int | None = None) -> Chooser | None:
    """The schedules of kernels and functions that were measured on a machine like this, if any."""
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
        return stored_schedule(kernel.work, lambda text: nests.checked(
            text, kernel.region, kernel.limits, kernel.key))

    def plan(graph: Graph) -> PlanSchedule:
        work = "" if on_gpu else plan_work(graph)
        return (work and stored_schedule(work, checked_plan)) or RULES

    def stored_schedule(work: str, checked: Callable[[str], S]) -> S | None:
        measured = [tuned_files.file_name(work, machines[0], count, library=f"{name} {version}")
                    for name, version in target.limits.libraries]
        records = [r for n in measured if n in stored and (r := _record(place / n, work))]
        if records:  # each was raced beside ours, so times of two races do not compare
            fastest = min(records, key=lambda r: r.seconds / max(r.rule_seconds, TICK))
            return _checked(place / fastest.file_name, fastest.schedule, checked)
        names = (tuned_files.file_name(work, m, count) for m in machines)
        name = next((n for n in names if n in stored), None)
        return None if name is None else _schedule(place / name, work, checked)

    return Chooser(choose, plan)


def plan_work(graph: Graph) -> str:
    """A digest of a function, equal in all processes; empty if it has constants without a text."""
    text = text_of(graph)
    return "" if text is None else hashlib.sha256(f"plan\n{text}".encode()).hexdigest()


def any_schedule(text: str) -> Schedule:
    """The schedule that a text spells, of a function or a kernel of any kind.

    >>> any_schedule("plan layout(1) fusion(2)")
    plan layout(1) fusion(2)
    """
    return parse(text)  # what this file imports declares all kinds


def checked_plan(text: str) -> PlanSchedule:
    """The plan that a text spells.

    Raises:
        IllegalSchedule: It spells another kind of schedule, or there are no such layouts or levels
            of fusion.
    """
    plan = parse(text)
    if not isinstance(plan, PlanSchedule) or plan.layout not in (0, 1) or not (
            APART <= plan.fusion <= RECOMPUTED):
        raise IllegalSchedule(f"{text!r} is no plan of a function; write {RULES!r}, with layout(0) "
                              "or layout(1) and fusion(0) to fusion(3)")
    return plan


def _schedule(path: Path, work: str, checked: Callable[[str], S]) -> S | None:
    """The schedule in a file; None if it is that of the rules."""
    tuned = _record(path, work)
    return None if tuned is None or tuned.schedule == tuned.rule else (
        _checked(path, tuned.schedule, checked))


def _record(path: Path, work: str) -> TunedKernel | None:
    """The record in a file; None if it is damaged, or not of this work."""
    try:
        tuned = tuned_files.read(path)
    except FileError as error:
        warnings.warn(f"{path} is ignored: {error}", stacklevel=2)
        return None
    return tuned if tuned.work == work else None


def _checked(path: Path, schedule: str, checked: Callable[[str], S]) -> S | None:
    """The schedule that a file spells; None if it does not fit."""
    try:
        return checked(schedule)
    except IllegalSchedule as error:
        warnings.warn(f"{path} is ignored: {error}", stacklevel=2)
        return None
