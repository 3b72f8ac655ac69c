"""Tunes a program: searches the fastest schedules of its kernels, and stores them."""

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
    """The kernels of a program that compute the same."""

    kernel: RegionKernel  # one of these kernels
    work: str  # a digest of the computation
    cycles: float = 0.0  # estimated cycles of all runs of these kernels


def tune_functions(functions: Mapping[str, Graph], target: Target, name: str,
                   seconds: float = 60.0, threads: int | None = None,
                   again: bool = False) -> TuningReport:
    """Measures schedules of the kernels of a program, those with the most work first.

    Each result is stored at once, so Ctrl-C loses only the kernel that is being measured.

    Args:
        functions: The graph of each function, by name.
        target: The target, which this machine must run.
        name: The name of the program.
        seconds: The time limit. Default: `60.0`.
        threads: The worker threads of the program. Default `None`: one per core.
        again: Whether to repeat stored measurements. Default: `False`.
    """
    need_this_machine(target)
    if tuned_files.folder() is None:
        raise ConfigError("tuning needs the cache, which ZTORCH_CACHE=0 turns off")
    count = tuned_files.usual_threads(threads)
    end = time.perf_counter() + seconds
    results: list[TunedKernel] = []
    measured, interrupted = 0, False
    with working(f"tune {name}"):
        work_items = kernel_works(functions, target)
        for number, work in enumerate(work_items):
            cached = None if again else _cached(work.work, target, count)
            if cached is None and time.perf_counter() > end:
                continue
            at(f"measure {work.kernel.title}", number, len(work_items))
            try:
                results.append(cached or _measured(work, target, count, end))
            except KeyboardInterrupt:
                interrupted = True
                break
            if cached is None:
                measured += 1
                tuned_files.write(results[-1:])
    return TuningReport(tuple(results), measured, len(work_items) - len(results), interrupted)


def kernel_works(functions: Mapping[str, Graph], target: Target) -> list[KernelWork]:
    """The distinct kernels of a program, the one with the most work first. Kernels that run only
    once, when the program is loaded, are excluded."""
    kernels: dict[str, RegionKernel] = {}

    def record(kernel: RegionKernel) -> None:
        if kernel.hints is None:  # else the user has set the schedule
            kernels.setdefault(kernel.key, kernel)

    watch = Watch()
    graphs = simplify(functions, passes.DEFAULT, watch)
    plans = plan_functions(graphs, target, declare_states(functions, target), watch, chooser=record)
    work_items: dict[str, KernelWork] = {}
    for plan in (plan for name, plan in plans.items() if name != PREPARE):
        for step, count in zip(plan.steps, plan.run_counts(), strict=True):
            kernel = kernels.get(step.key)
            if kernel is not None and (digest := kernel.work):
                work = work_items.setdefault(digest, KernelWork(kernel, digest))
                work.cycles += step.cycles * count
    return sorted(work_items.values(), key=lambda work: -work.cycles)


def need_this_machine(target: Target) -> None:
    """Raises an error unless this machine runs the target."""
    if target.limits.grid is not None or target.emits_source:
        raise Unsupported(f"schedules are measured on the CPU, not for {target.name!r}; tune for "
                          "'cpu' or a level of it, such as 'cpu:avx2'")
    if not this_processor.features().issuperset(target.required_features) or (
            target.arch != this_processor.architecture()):
        raise Unsupported(f"this machine does not run {target.name}, so nothing can be measured "
                          "for it; tune on a machine that does, and use `ztorch tune export`")
    if target.limits.processor != detect.detected():
        raise Unsupported(f"this processor is not {target.limits.processor.name}; tune for 'cpu' "
                          "or a level of it, such as 'cpu:avx2'")


def _cached(work: str, target: Target, threads: int) -> TunedKernel | None:
    """The stored measurement of a kernel, if there is one."""
    folder = tuned_files.folder()
    assert folder is not None
    path = folder / file_name(work, machine_of(target), threads)
    try:
        return tuned_files.read(path) if path.exists() else None
    except FileError:
        return None


def _measured(work: KernelWork, target: Target, threads: int, until: float) -> TunedKernel:
    finding = search(work.kernel, target, threads, until)
    return TunedKernel(
        work.work, work.kernel.title, machine_of(target), threads, __version__,
        repr(finding.best), repr(finding.rule), finding.seconds, finding.rule_seconds)
