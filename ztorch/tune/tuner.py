"""Tunes a program: searches the fastest schedules of its kernels, and stores them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ztorch.codegen.targets import Target
from ztorch.compile import tuned_files
from ztorch.compile.pipeline import declare_states, plan_functions, simplify
from ztorch.compile.tuned_files import TunedKernel, file_name
from ztorch.compile.tuned_schedules import checked_plan, plan_work
from ztorch.compile.tuned_schedules import chooser as tuned_chooser
from ztorch.compile.watch import Watch
from ztorch.errors import ConfigError, FileError
from ztorch.graph import passes
from ztorch.graph.value import Graph
from ztorch.lower.plan import Chooser
from ztorch.lower.plan_schedule import RULES, PlanSchedule, library_plan
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import parse
from ztorch.runtime.devices import library_versions
from ztorch.runtime.spec import PREPARE
from ztorch.terminal.work_line import at, working
from ztorch.tune.clocks import Clock, clock_for
from ztorch.tune.plan_search import search_library_plans, search_plans
from ztorch.tune.report import TuningReport
from ztorch.tune.search import search, search_library
from ztorch.version import __version__

PLANS_SHARE = 0.5  # of the time limit, after which no other plan is compiled


@dataclass
class KernelWork:
    """The kernels of a program that compute the same."""

    kernel: RegionKernel  # one of these kernels
    work: str  # a digest of the computation
    cycles: float = 0.0  # estimated cycles of all runs of these kernels


def tune_functions(functions: Mapping[str, Graph], target: Target, name: str,
                   seconds: float = 60.0, threads: int | None = None, again: bool = False,
                   ordinal: int | None = None) -> TuningReport:
    """Measures plans of the functions of a program, on a processor, and schedules of its kernels,
    those with the most work first; for a GPU that is not here, predicts their times.

    Each result is stored at once, so Ctrl-C loses only the kernel that is being measured.

    Args:
        functions: The graph of each function, by name.
        target: The target: of this processor, of a device of this machine or of a chip.
        name: The name of the program.
        seconds: The time limit. Default: `60.0`.
        threads: The worker threads of the program. Default `None`: one per core.
        again: Whether to repeat stored measurements. Default: `False`.
        ordinal: The number of the device. Default: `None`, which a processor and a chip have.
    """
    clock = clock_for(target, threads, ordinal)
    libraries = () if clock.predicted else library_versions(target.backend)
    target = target.with_libraries(libraries)
    if tuned_files.folder() is None:
        raise ConfigError("tuning needs the cache, which ZTORCH_CACHE=0 turns off")
    begun = time.perf_counter()
    end = begun + seconds
    kernels = _Measurements(clock, end, again)
    with working(f"tune {name}"):
        plans = _plans(functions, target, name, clock, begun + PLANS_SHARE * seconds, again)
        kernels.add(kernel_works(functions, target, clock.threads))
        if not kernels.interrupted:
            others = _library_plans(functions, target, name, clock, end, again, plans)
            plans += others
            if any(plan.schedule != plan.rule for plan in others):  # these have other kernels
                kernels.add(kernel_works(functions, target, clock.threads))
    return TuningReport(tuple(kernels.results), kernels.measured, kernels.left, kernels.interrupted,
                        clock.predicted, tuple(plans), tuple(kernels.products))


class _Measurements:
    """The records of kernels, those that were known and those that are measured now.

    Args:
        clock: Tells the times of schedules.
        end: The time of `time.perf_counter()` after which no kernel is measured.
        again: Whether to repeat stored measurements.
    """

    def __init__(self, clock: Clock, end: float, again: bool):
        self.clock, self.end, self.again = clock, end, again
        self.results: list[TunedKernel] = []
        self.products: list[TunedKernel] = []  # by libraries
        self.measured = self.left = 0
        self.interrupted = False

    def add(self, works: Sequence[KernelWork]) -> None:
        """Measures kernels, until the time is over or Ctrl-C ends it."""
        known = {record.work for record in self.results}
        works = [work for work in works if work.work not in known]
        self.left = len(works)
        for number, work in enumerate(works):
            cached = None if self.again else _cached(work.work, self.clock)
            if cached is None and time.perf_counter() > self.end:
                continue
            at(f"{'predict' if self.clock.predicted else 'measure'} {work.kernel.title}", number,
               len(works))
            try:
                self.results.append(cached or _measured(work, self.clock, self.end))
                self.left -= 1
                if cached is None:
                    self.measured += 1
                    tuned_files.write(self.results[-1:])
                self.products += _library_products(work, self.clock, self.results[-1].schedule,
                                                   self.again)
            except KeyboardInterrupt:
                self.interrupted = True
                break


def _plans(functions: Mapping[str, Graph], target: Target, name: str, clock: Clock, until: float,
           again: bool) -> list[TunedKernel]:
    """The record of each function whose plans are known, or are measured now."""
    if not clock.runs_programs:
        return []
    graphs = simplify(functions, passes.DEFAULT, Watch())
    known = [None if again or not (work := plan_work(graph)) else _cached(work, clock)
             for graph in graphs.values()]
    if all(known):
        return [record for record in known if record is not None]
    plans = [TunedKernel(
        times.work, f"plan of {times.function}", clock.machine, clock.threads, __version__,
        repr(times.best), repr(RULES), times.seconds, times.rule_seconds)
        for times in search_plans(functions, target, name, clock.threads, until)]
    tuned_files.write(plans)
    return plans


def kernel_works(functions: Mapping[str, Graph], target: Target,
                 threads: int | None = None, plan: PlanSchedule | None = None) -> list[KernelWork]:
    """The distinct kernels of a program, the one with the most work first. Kernels that run only
    once, when the program is loaded, are excluded.

    Args:
        functions: The graph of each function, by name.
        target: The target to compile for.
        threads: Worker threads that measured plans are chosen for; None: one per core. Default:
            `None`.
        plan: The plan of each function. Default: `None`, a measured one or that of the rules.
    """
    kernels: dict[str, RegionKernel] = {}

    def record(kernel: RegionKernel) -> None:
        if kernel.hints is None:  # else the user has set the schedule
            kernels.setdefault(kernel.key, kernel)

    watch = Watch()
    graphs = simplify(functions, passes.DEFAULT, watch)
    tuned = tuned_chooser(target, threads)
    chooser = Chooser(record) if tuned is None else tuned._replace(kernel=record)
    if plan is not None:
        chooser = Chooser(record, lambda graph: plan)
    plans = plan_functions(graphs, target, declare_states(functions, target), watch,
                           chooser=chooser)
    work_items: dict[str, KernelWork] = {}
    for function in (p for name, p in plans.items() if name != PREPARE):
        for step, count in zip(function.steps, function.run_counts(), strict=True):
            for part in step.parts:
                kernel = kernels.get(part.key)
                if kernel is not None and (digest := kernel.work):
                    work = work_items.setdefault(digest, KernelWork(kernel, digest))
                    work.cycles += part.cycles * count
    return sorted(work_items.values(), key=lambda work: -work.cycles)


def _library_plans(functions: Mapping[str, Graph], target: Target, name: str, clock: Clock,
                   until: float, again: bool, ours: Sequence[TunedKernel]) -> list[TunedKernel]:
    """The records of functions whose products a library computes, beside our fastest plans."""
    if not clock.runs_programs:
        return []
    plans = {record.work: checked_plan(record.schedule) for record in ours}
    known = []
    for library, version in target.limits.libraries if plans else ():
        label = f"{library} {version}"
        cached = [None if again else _cached(work, clock, label) for work in plans]
        if not all(cached):
            _try_blocks(functions, target, clock, until, {
                library_plan(plan, library) for plan in plans.values()})
            cached = [TunedKernel(
                times.work, f"plan of {times.function}, {label}", clock.machine, clock.threads,
                __version__, repr(times.best), repr(plans[times.work]), times.seconds,
                times.rule_seconds, label)
                for times in search_library_plans(functions, target, name, clock.threads, until,
                                                  library, plans)]
            tuned_files.write(record for record in cached if record)
        known += [record for record in cached if record]
    return known


def _try_blocks(functions: Mapping[str, Graph], target: Target, clock: Clock, until: float,
                plans: Iterable[PlanSchedule]) -> None:
    """Measures the blocks of products in plans of libraries, so that these are raced with the
    fastest blocks."""
    for plan in plans:
        for work in kernel_works(functions, target, clock.threads, plan):
            if time.perf_counter() < until:
                _library_products(work, clock, repr(work.kernel.proposal()), False)


def _library_products(work: KernelWork, clock: Clock, ours: str,
                      again: bool) -> list[TunedKernel]:
    """The record of each library that computes a kernel, beside our schedule."""
    known = []
    for library, version in work.kernel.limits.libraries:
        label = f"{library} {version}"
        record = None if again else _cached(work.work, clock, label)
        if record is None or record.rule != ours:
            finding = search_library(work.kernel, library, parse(ours), clock)
            if finding is None:
                continue
            record = TunedKernel(
                work.work, f"{work.kernel.title}, {label}", clock.machine, clock.threads,
                __version__, repr(finding.best), repr(finding.rule), finding.seconds,
                finding.rule_seconds, label)
            tuned_files.write([record])
        known.append(record)
    return known


def _cached(work: str, clock: Clock, library: str = "") -> TunedKernel | None:
    """The stored measurement of a kernel, if there is one."""
    folder = tuned_files.folder()
    assert folder is not None
    path = folder / file_name(work, clock.machine, clock.threads, library=library)
    try:
        return tuned_files.read(path) if path.exists() else None
    except FileError:
        return None


def _measured(work: KernelWork, clock: Clock, until: float) -> TunedKernel:
    finding = search(work.kernel, clock, until)
    return TunedKernel(
        work.work, work.kernel.title, clock.machine, clock.threads, __version__,
        repr(finding.best), repr(finding.rule), finding.seconds, finding.rule_seconds)
