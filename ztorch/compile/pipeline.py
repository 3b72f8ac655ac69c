"""The compiler on one page: from the graphs of a model to a program that runs.

    stage      takes              gives                                    see
    simplify   graphs             smaller graphs that mean the same        graph/passes.py
    plan       graphs             kernels in order, a place per buffer     lower/plan.py
    render     kernels            the text of a target                     codegen/render.py
    assemble   text               an object file                           codegen/assemblers.py
    link       an object file     a library that imports nothing           codegen/elf/link.py
    load       code, parameters   a program that runs on a device          runtime/start.py

A program has a function for each graph: predict, evaluate, train, and those for generation. They
share one block of parameters. Render, assemble and link are in `cpu_code.py` for processors and in
`device_code.py` for devices with separate memory. An artifact stores the code and parameters that
are loaded here: the same bytes run in both cases.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ztorch.abi import WASM_ARCH
from ztorch.codegen.targets import Target
from ztorch.compile.cpu_code import cpu_code
from ztorch.compile.description import describe_program
from ztorch.compile.device_code import device_code
from ztorch.compile.kernels import lowered_before
from ztorch.compile.memory_sizes import byte_count
from ztorch.compile.parameters import begun_parameters, initial_parameters
from ztorch.compile.targeting import target_for, with_libraries
from ztorch.compile.tuned_schedules import chooser as tuned_chooser
from ztorch.compile.watch import Watch
from ztorch.errors import DeviceError, Unsupported, unknown
from ztorch.graph import passes
from ztorch.graph.value import Graph, Value
from ztorch.host.settings import current
from ztorch.lower.params import Params
from ztorch.lower.plan import Chooser, Plan, Schedules, lower
from ztorch.lower.plan_schedule import PlanSchedule
from ztorch.lower.recompute import LimitTooSmall
from ztorch.lower.rewrites.frozen import Derived
from ztorch.runtime.devices import resolve
from ztorch.runtime.loaded_program import LoadedProgram
from ztorch.runtime.own_kernels import OwnKernels
from ztorch.runtime.spec import PREPARE, ProgramSpec
from ztorch.runtime.start import need_room, start
from ztorch.terminal.work_line import at, working


@dataclass(frozen=True)
class Compiled:
    """The results of the stages before `load`."""

    graphs: dict[str, Graph]  # each function, simplified
    plans: dict[str, Plan]  # each function's kernels and buffers
    text: str  # all kernels in the target's language
    code: bytes  # a library to load, or the kernels of a device
    spec: ProgramSpec  # describes code and parameters to the runtime
    placed: Params  # states and constants, each with its place in one block

    @functools.cached_property
    def params(self) -> np.ndarray:
        """Initial weights, drawn now, and constants, as one block of bytes."""
        return initial_parameters(self.spec, self.placed.states,
                                  [data for _, data in self.placed.constants])


def build(functions: Mapping[str, Graph], device: str, name: str,
          threads: int | None = None, precision: str = "float32",
          tensor_cores: bool = True, memory_limit: int | str | None = None,
          with_less_memory: Callable[[], Mapping[str, Graph]] | None = None) -> LoadedProgram:
    """All stages: compiles the functions of a program and loads it on a device.

    Args:
        functions: The graph of each function, by name. States with the same name are shared.
        device: A device of this machine, such as "cpu" or "cuda:0".
        name: The name of the program.
        threads: Worker threads on a CPU; None: one per core. Default: `None`.
        precision: "float32", or "high" or "tf32" if products may be rounded for speed. Default:
            `"float32"`.
        tensor_cores: Whether instructions that multiply matrices may be used. Default: `True`.
        memory_limit: Maximum size of the arena, such as "64MB"; kernels may then run again.
            Default: `None`.
        with_less_memory: Returns functions whose loops need less memory, if these functions cannot
            meet the limit. Default: `None`.
    """
    limit = None if memory_limit is None else byte_count("memory_limit", memory_limit)
    place = resolve(device)
    target = with_libraries(target_for(place), place.ordinal is not None)
    target = target.with_precision(precision)
    target = target if tensor_cores else target.without_tensor_cores()
    if place.ordinal is None:
        raise DeviceError(f"{device} names a chip, which can be exported for but not run on; "
                          f"use a device, such as {place.backend}:0")
    compiled = compiled_within(limit, functions, target, name, threads, with_less_memory)
    if current().interpret:
        return _interpreted(compiled, device)
    at("load")
    need_room(compiled.spec, place.ordinal)
    params, first = begun_parameters(compiled.spec, compiled.placed.states,
                                     [data for _, data in compiled.placed.constants])
    program = start(compiled.spec, compiled.code, params, threads, place.ordinal, first)
    return with_own_kernels(program, limit, functions, target, threads, with_less_memory)


def with_own_kernels(program: LoadedProgram, limit: int | None, functions: Mapping[str, Graph],
                     target: Target, threads: int | None,
                     with_less_memory: Callable[[], Mapping[str, Graph]] | None) -> LoadedProgram:
    """The program. If it calls other libraries, it can be compiled again without them, for files;
    the other arguments are those of `compiled_within`."""
    @functools.cache
    def own_kernels() -> OwnKernels:
        with working(f"compile {program.name} without other libraries"):
            compiled = compiled_within(limit, functions, target.with_libraries(()), program.name,
                                       threads, with_less_memory)
        return OwnKernels(compiled.spec, compiled.code,
                          [data for _, data in compiled.placed.constants])

    if program.calls_libraries:
        program.own_kernels = own_kernels
    return program


def compiled_within(limit: int | None, functions: Mapping[str, Graph], target: Target, name: str,
                    threads: int | None,
                    with_less_memory: Callable[[], Mapping[str, Graph]] | None) -> Compiled:
    """The result of `compile_functions`. If it cannot meet a memory limit, the functions are traced
    again, with loops that rerun segments of iterations."""
    try:
        return compile_functions(functions, target, name, memory_limit=limit, threads=threads)
    except LimitTooSmall as error:
        loops = (v for graph in functions.values() for v in graph.nodes() if v.op.kind == "loop")
        if with_less_memory is None or next(loops, None) is None:
            raise
        try:
            return compile_functions(with_less_memory(), target, name, memory_limit=limit,
                                     threads=threads)
        except LimitTooSmall as other:
            raise min(error, other, key=lambda e: e.arena) from None


def _interpreted(compiled: Compiled, device: str) -> LoadedProgram:
    """A program run by the interpreter, for ZTORCH_INTERPRET=1."""
    from ztorch.compile.interpreted import Interpreted

    if compiled.spec.backend != "cpu":
        raise Unsupported(f"ZTORCH_INTERPRET=1 runs CPU programs, not {device}; "
                          "compile for 'cpu', or for 'cpu:scalar', whose kernels are simplest")
    return Interpreted(compiled.spec, compiled.code, compiled.params, compiled.plans)


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pauses Python's garbage collector. Compiling creates many small objects and hardly any
    cycles; searching for cycles would take a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@garbage_collection_paused()
def compile_functions(functions: Mapping[str, Graph], target: Target, name: str,
                      optional: tuple[str, ...] = passes.DEFAULT, fusion: bool = True,
                      schedules: Schedules | None = None,
                      memory_limit: int | None = None, threads: int | None = None,
                      plan: PlanSchedule | None = None) -> Compiled:
    """All stages except `load`. The target need not be in this machine.

    Args:
        functions: The graph of each function, by name.
        target: The machine to generate code for, a row of `codegen/targets.py`.
        name: The name of the program.
        optional: The graph passes to run. They affect speed, and results only by rounding. Default:
            `passes.DEFAULT`.
        fusion: Whether to fuse ops; if False, each op is a separate kernel. Default: `True`.
        schedules: Schedules that replace those of the rules, by the keys that `ztorch show --stage
            plan` prints. Default: `None`.
        memory_limit: Maximum size of the arena; kernels may then run again. Default: `None`.
        threads: The worker threads for which measured schedules are taken; None: one per core.
            Default: `None`.
        plan: The plan of each function. Default: `None`, a measured one or that of the rules.
    """
    watch = Watch()
    at("simplify graphs")
    graphs = simplify(functions, optional, watch)
    params = declare_states(functions, target)
    chooser = tuned_chooser(target, threads)
    if plan is not None:
        chooser = Chooser(chooser.kernel if chooser else lambda kernel: None, lambda graph: plan)
    plans = plan_functions(graphs, target, params, watch, fusion, schedules=schedules,
                           memory_limit=memory_limit, chooser=chooser)
    spec = describe_program(name, target, plans, params)
    if target.limits.grid is None:
        cpu = cpu_code(plans, target, spec, watch)
        return Compiled(graphs, plans, cpu.text, cpu.code, spec, params)
    device = device_code(plans, target, watch)
    return Compiled(graphs, plans, device.text, device.code, device.complete(spec, target), params)


def simplify(functions: Mapping[str, Graph], optional: tuple[str, ...],
             watch: Watch) -> dict[str, Graph]:
    """The graphs after the passes: constants folded, equal nodes merged, redundant movement
    removed."""
    graphs = {name: passes.run(graph, optional) for name, graph in functions.items()}
    watch.done("graph", graphs)
    return graphs


def declare_states(functions: Mapping[str, Graph], target: Target) -> Params:
    """The states (weights, optimizer slots, counters), to which planning assigns places in the
    block of parameters, together with the constants that kernels read."""
    params = Params(target.limits, earlier=lowered_before())
    for graph in functions.values():
        for state in graph.leaves("state"):
            params.declared.setdefault(state.attrs["name"], state)
    return params


def plan_functions(graphs: Mapping[str, Graph], target: Target, params: Params, watch: Watch,
                   fusion: bool = True, prepare_once: bool = True,
                   schedules: Schedules | None = None,
                   memory_limit: int | None = None,
                   chooser: Chooser | None = None) -> dict[str, Plan]:
    """The kernels of each function in order, and the place of each buffer.

    A program that only predicts never changes its weights, only states of stateful layers and
    caches. With `prepare_once`, values that depend only on weights move to a separate function,
    which runs when the program is loaded. Its results are stored beside the weights, or replace
    them.
    """
    changing = {name for graph in graphs.values() for name in graph.updates}
    memories = {v.attrs["name"] for graph in graphs.values() for v in graph.leaves("state")
                if v.attrs.get("kind") in ("memory", "cache")}
    derived = Derived(changing) if prepare_once and changing <= memories else None
    if derived is None:
        params.place_declared()
    plans, failures = {}, []
    order = list(graphs)
    if derived is not None:  # the function with most rows decides how weights are packed
        order.sort(key=lambda name: -_product_elements(graphs[name]))
    for name in order:
        graph = graphs[name]
        try:
            plans[name] = lower(name, graph, target.limits, params, fusion, derived, schedules,
                                memory_limit, chooser)
        except LimitTooSmall as error:
            failures.append(error)
    if failures:  # the largest requirement gives a limit that all functions meet
        raise max(failures, key=lambda error: error.arena)
    plans = {name: plans[name] for name in graphs}
    if derived is not None:
        once = Graph({}, _place_derived(derived, params, target))
        if once.updates:
            plans[PREPARE] = lower(PREPARE, once, target.limits, params, fusion, None, schedules,
                                   memory_limit, chooser)
        params.place_declared()
    _need_known_keys(schedules, plans)
    watch.done("plan", plans)
    return plans


def _product_elements(graph: Graph) -> int:
    return sum(v.size for v in graph.nodes() if v.op.kind == "contract")


def _place_derived(derived: Derived, params: Params, target: Target) -> dict[str, Value]:
    """Stores packed weights as derived states, and returns the states that `prepare` must compute.
    Web pages read weights as the model declares them, so for devices and WebAssembly these are all
    states."""
    updates = {name: v for name, v in derived.updates.items() if name in params.offsets}
    if target.limits.grid is not None or target.arch == WASM_ARCH:
        return updates
    for state, (packed, order) in derived.packed(params.offsets).items():
        params.share_packed(state, packed, order)
        del updates[packed]
    return updates


def _need_known_keys(schedules: Schedules | None, plans: Mapping[str, Plan]) -> None:
    """Raises an error for a schedule with an unknown key: FUNCTION/KERNEL, or only KERNEL."""
    keys = [part.key for plan in plans.values() for step in plan.steps for part in step.parts]
    names = {*keys, *(key.partition("/")[2] for key in keys)}
    for key in schedules or ():
        if key not in names:
            raise unknown("kernel", key, names)
