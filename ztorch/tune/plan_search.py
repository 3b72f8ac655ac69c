"""Searches the fastest plan of each function of a program: its layouts, and what is fused."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

import numpy as np

from ztorch.codegen.targets import Target
from ztorch.compile.pipeline import compile_functions, simplify
from ztorch.compile.tuned_schedules import plan_work
from ztorch.compile.watch import Watch
from ztorch.errors import DeviceError
from ztorch.graph import passes
from ztorch.graph.value import Graph
from ztorch.host.settings import using
from ztorch.lower.plan_schedule import RULES, PlanSchedule, library_plan, other_plans
from ztorch.runtime.executable import Executable, HostCall
from ztorch.terminal.work_line import at
from ztorch.tune.clocks import FINAL_ROUNDS, MEASURED_SHARE, ROUNDS
from ztorch.tune.kernel_benchmark import CALL_SECONDS, MAX_RUNS

MOST_BYTES = 1 << 29  # weights and arena of a program of which two are in memory: 512 MiB
MOST_SECONDS = 0.2  # a race of functions that take longer has fewer rounds
LEAST_ROUNDS = 3  # of such a race


class PlanTimes:
    """The seconds of a function by the plan of the rules, and by the fastest one."""

    def __init__(self, function: str, work: str):
        self.function, self.work = function, work
        self.best, self.ratio = RULES, 1.0  # the time of the fastest in that of the rules
        self.rule_seconds = 0.0

    @property
    def seconds(self) -> float:
        return self.rule_seconds * self.ratio


def search_plans(functions: Mapping[str, Graph], target: Target, name: str, threads: int,
                 until: float) -> list[PlanTimes]:
    """Measures the functions of a program by each plan beside that of the rules, with the
    schedules of kernels that are known.

    Args:
        functions: The graph of each function, by name.
        target: The target, which this machine must run.
        name: The name of the program.
        threads: Its worker threads.
        until: The time of `time.perf_counter()` after which no other plan is compiled. Functions
            of which not all plans were measured are left out.
    """
    graphs = simplify(functions, passes.DEFAULT, Watch())
    measured = {f: PlanTimes(f, work) for f, graph in graphs.items() if (work := plan_work(graph))}
    if not measured or time.perf_counter() > until:
        return []
    rules = _program(functions, target, name, threads, RULES)
    if rules is None:
        return []
    for plan in other_plans():
        if time.perf_counter() > until:
            return []
        at(f"measure {name}: {plan!r}")
        other = _program(functions, target, name, threads, plan)
        if other is None or other.code == rules.code:
            continue
        for times in measured.values():
            calls = [p.bind(times.function) for p in (rules.program, other.program)]
            rule, seconds = _race(calls, threads, ROUNDS)
            if seconds < MEASURED_SHARE * times.ratio * rule:
                rule, seconds = _race(calls, threads, FINAL_ROUNDS)
                if seconds < MEASURED_SHARE * times.ratio * rule:
                    times.best, times.ratio = plan, seconds / rule
            times.rule_seconds = rule
    for times in measured.values():
        if not times.rule_seconds:  # no other plan has other kernels
            times.rule_seconds, _ = _race([rules.program.bind(times.function)] * 2, threads, ROUNDS)
    return [*measured.values()]


def search_library_plans(functions: Mapping[str, Graph], target: Target, name: str, threads: int,
                         until: float, library: str,
                         ours: Mapping[str, PlanSchedule]) -> list[PlanTimes]:
    """Measures the functions of a program with products by a library, beside our fastest plan of
    each, which is the `rule` of the result.

    Args:
        functions: The graph of each function, by name.
        target: The target, with the library.
        name: The name of the program.
        threads: Its worker threads.
        until: The time of `time.perf_counter()` after which no other plan is compiled.
        library: The name of the library.
        ours: Our fastest plan of each function, by its work.
    """
    graphs = simplify(functions, passes.DEFAULT, Watch())
    measured = []
    programs: dict[PlanSchedule, _Loaded | None] = {}
    for function, graph in graphs.items():
        plan = ours[plan_work(graph)]
        for p in (plan, library_plan(plan, library)):
            if p not in programs and time.perf_counter() < until:
                at(f"measure {name}: {p!r}")
                try:
                    programs[p] = _program(functions, target, name, threads, p)
                except DeviceError:  # the library does not convolve these sizes
                    programs[p] = None
        rules, other = (programs.get(p) for p in (plan, library_plan(plan, library)))
        if rules is None or other is None or not other.program.calls_libraries:
            continue
        times = PlanTimes(function, plan_work(graph))
        times.best = plan
        calls = [p.program.bind(function) for p in (rules, other)]
        times.rule_seconds, seconds = _race(calls, threads, FINAL_ROUNDS)
        if seconds < MEASURED_SHARE * times.rule_seconds:
            times.best = library_plan(plan, library)
            times.ratio = seconds / times.rule_seconds
        measured.append(times)
    return measured


class _Loaded:
    """A program, and its code, by which equal ones are recognized."""

    def __init__(self, program: Executable, code: bytes):
        self.program, self.code = program, code


def _program(functions: Mapping[str, Graph], target: Target, name: str, threads: int,
             plan: PlanSchedule) -> _Loaded | None:
    """The program with a plan; None if it is too large to have beside another one."""
    with using(debug=(), dump=None):
        compiled = compile_functions(functions, target, name, threads=threads, plan=plan)
    if compiled.spec.memory_bytes > MOST_BYTES:
        return None
    return _Loaded(Executable(compiled.spec, compiled.code, compiled.params, threads, adopt=True),
                   compiled.code)


def _race(calls: list[HostCall], threads: int, rounds: int) -> tuple[float, float]:
    """The seconds of the rules' plan, and of another, from rounds in which they take turns."""
    clock = time.perf_counter if threads > 1 else time.thread_time
    for call in calls:
        for array in call.inputs.values():
            array[...] = _values(array)
    begun = time.perf_counter()
    for call in calls:
        call()
    took = (time.perf_counter() - begun) / len(calls)
    runs = max(1, min(MAX_RUNS, int(CALL_SECONDS / max(took, 1e-7))))
    if took > MOST_SECONDS:
        rounds = LEAST_ROUNDS
    rule, other = zip(*[[_seconds(call, runs, clock) for call in calls] for _ in range(rounds)],
                      strict=True)
    return median(rule), median(other)


def _seconds(call: HostCall, runs: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(runs):
        call()
    return (clock() - start) / runs


def _values(array: np.ndarray) -> np.ndarray:
    """Floats of moderate size, and zeros for integers, which may be indices."""
    if array.dtype.kind != "f":
        return np.zeros(array.shape, array.dtype)
    return np.random.default_rng(0).uniform(0.1, 1.0, array.shape)
