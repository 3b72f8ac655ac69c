"""Measures the kernels of a program, and caches the fastest schedules."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.codegen.targets import Target
from ztorch.compile import tuned_files
from ztorch.compile.pipeline import declare_states, plan_functions, simplify
from ztorch.compile.tuned_files import TunedKernel, file_name, machine_of
from ztorch.compile.watch import Watch
from ztorch.errors import ConfigError, FileError, Unsupported
from ztorch.graph import passes
from ztorch.graph.value import Graph
from ztorch.host import detect
from ztorch.host import processor as this_processor
from ztorch.lower.region_kernel import RegionKernel
from ztorch.runtime.spec import PREPARE
from ztorch.tune.report import TuningReport
from ztorch.tune.search import search
from ztorch.version import __version__
from ztorch.work_line import at, working


@dataclass
class KernelWork:
    """A kernel of a program, with all others that compute the same."""

    kernel: RegionKernel  # one of them
    work: str  # a digest of their computation
    cycles: float = 0.0  # estimated, of all their runs


def tune_functions(functions: Mapping[str, Graph], target: Target, name: str,
                   seconds: float = 60.0, threads: int | None = None,
                   again: bool = False) -> TuningReport:
    """Measures schedules of the kernels of a program, those with the most work first.

    Each result is written at once: Ctrl-C loses no more than the kernel that is being measured.

    Args:
        functions: The graph of each function, by name.
        target: The machine, which must be this one.
        name: The name of the program.
        seconds: For how long to measure. Default: `60.0`.
        threads: The worker threads of the program; None: one per core. Default: `None`.
        again: Whether to repeat cached measurements. Default: `False`.
    """
    need_this_machine(target)
    place = tuned_files.folder()
    if place is None:
        raise ConfigError("tuning needs the cache, which ZTORCH_CACHE=0 turns off")
    count = tuned_files.usual_threads(threads)
    end = time.perf_counter() + seconds
    results: list[TunedKernel] = []
    measured, interrupted = 0, False
    with working(f"tune {name}"):
        works = works_of(functions, target)
        for number, work in enumerate(works):
            known = None if again else _known(work.work, target, count)
            if known is None and time.perf_counter() > end:
                continue
            at(f"measure {work.kernel.title}", number, len(works))
            try:
                results.append(known or _measured(work, target, count, end))
            except KeyboardInterrupt:
                interrupted = True
                break
            if known is None:
                measured += 1
                tuned_files.write(results[-1:])
    return TuningReport(tuple(results), measured, len(works) - len(results), interrupted)


def works_of(functions: Mapping[str, Graph], target: Target) -> list[KernelWork]:
    """The kernels of a program, the most work first; equal computations count as one.
    Kernels that run once, when the program is loaded, are left out."""
    kernels: dict[str, RegionKernel] = {}

    def record(kernel: RegionKernel) -> None:
        if kernel.hints is None:  # else the user has chosen
            kernels.setdefault(kernel.key, kernel)

    watch = Watch()
    graphs = simplify(functions, passes.DEFAULT, watch)
    plans = plan_functions(graphs, target, declare_states(functions, target), watch, chooser=record)
    works: dict[str, KernelWork] = {}
    for plan in (plan for name, plan in plans.items() if name != PREPARE):
        for step, count in zip(plan.steps, plan.run_counts(), strict=True):
            kernel = kernels.get(step.key)
            if kernel is not None and (digest := kernel.work):
                works.setdefault(digest, KernelWork(kernel, digest)).cycles += step.cycles * count
    return sorted(works.values(), key=lambda work: -work.cycles)


def need_this_machine(target: Target) -> None:
    if target.limits.grid is not None or target.emits_source:
        raise Unsupported(f"schedules are measured on the CPU, not for {target.name!r}; tune for "
                          "'cpu' or a level of it, such as 'cpu:avx2'")
    if not this_processor.features().issuperset(target.required_features) or (
            target.arch != this_processor.architecture()):
        raise Unsupported(f"this machine does not run {target.name}, so nothing can be "
                          "measured for it; tune there, and use `ztorch tune export`")
    if target.limits.processor != detect.detected():
        raise Unsupported(f"this is not {target.limits.processor.name}; tune for 'cpu' or a "
                          "level of it, such as 'cpu:avx2'")


def _known(work: str, target: Target, threads: int) -> TunedKernel | None:
    """Earlier measurements."""
    place = tuned_files.folder()
    assert place is not None
    path = place / file_name(work, machine_of(target), threads)
    try:
        return tuned_files.read(path) if path.exists() else None
    except FileError:
        return None


def _measured(work: KernelWork, target: Target, threads: int, until: float) -> TunedKernel:
    finding = search(work.kernel, target, threads, until)
    return TunedKernel(
        work.work, work.kernel.title, machine_of(target), threads, __version__,
        repr(finding.best), repr(finding.rule), finding.seconds, finding.rule_seconds)
