"""The pipeline on one page: graphs to kernels to text to one shared library to an executable.

    graph      passes simplify the graph of each function (predict, train, evaluate)
    lower      regions of values become kernels; every buffer gets its place
    render     each kernel's instructions become text, word by word, in the frame of the target
    assemble   LLVM (or a C compiler) turns the text into an object; our linker makes it a
               self-contained library
    load       the same library that an artifact stores is what runs here

`c_library.py` gives the same kernels another frame for C programs, `web_page.py` writes them for
browsers, `device_code.py` makes lists of launches for devices with memory of their own.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ztorch.abi import CONTROL_FIELDS, CONTROL_OFFSETS, WORKER_ENTRY
from ztorch.artifact.c_interface import CInterface
from ztorch.codegen import targets
from ztorch.codegen.assemblers import assembled
from ztorch.codegen.elf import link
from ztorch.codegen.targets import Target
from ztorch.compile.device_code import Kernels, device_code
from ztorch.compile.watch import Watch
from ztorch.dtypes import boolean, to_storage, u8
from ztorch.errors import DeviceError, Unsupported, unknown
from ztorch.graph import passes
from ztorch.graph.value import Graph
from ztorch.host import processor as this_processor
from ztorch.host.memory import aligned
from ztorch.lower.frozen import Derived
from ztorch.lower.placement import Params
from ztorch.lower.plan import Plan, Schedules, lower
from ztorch.machines.processors import processor
from ztorch.runtime.devices import Where, limits_of, resolve
from ztorch.runtime.running import Running
from ztorch.runtime.spec import (
    PREPARE,
    FunctionSpec,
    ProgramSpec,
    StateSpec,
    TensorSpec,
    entry_point,
)
from ztorch.runtime.start import start


@dataclass(frozen=True)
class Compiled:
    """Every stage of one compilation, for those who want to look."""

    graphs: dict[str, Graph]
    plans: dict[str, Plan]
    text: str
    code: bytes
    spec: ProgramSpec
    params: np.ndarray


def build(functions: Mapping[str, Graph], device: str, name: str,
          threads: int | None = None, precision: str = "float32") -> Running:
    """Compile functions that share their states, and load them on a device."""
    where = resolve(device)
    if where.ordinal is None:
        raise DeviceError(f"{device} names a chip, which is enough to export for it, not to run: "
                          f"name a device, such as {where.backend}:0")
    made = compile_functions(functions, target_for(where).with_precision(precision), name)
    return start(made.spec, made.code, made.params, threads, where.ordinal)


def target_for(where: Where) -> Target:
    """The target that a device means, with what is known of the machine: what the device says of
    itself, the row of a named processor, or this machine's processor where it can run the code. A
    target for machines elsewhere stays as its row is.

    >>> target_for(resolve("cpu:zen3")).limits.processor.l2_bytes
    524288
    """
    target = targets.target(where.target)
    if target.limits.grid is not None:
        return target if where.ordinal is None else target.on_device(limits_of(where))
    if where.processor:
        return target.on_processor(processor(where.processor))
    runs_here = (target.arch == this_processor.architecture()
                 and this_processor.features().issuperset(target.required_features))
    if runs_here and not target.emits_source:
        return target.on_processor(this_processor.detected())
    return target


@contextmanager
def without_collection() -> Iterator[None]:
    """Compiling makes many small objects and no cycles worth a search: looking for them among all
    that there is takes a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@without_collection()
def compile_functions(functions: Mapping[str, Graph], target: Target, name: str,
                      optional: tuple[str, ...] = passes.DEFAULT, fusion: bool = True,
                      schedules: Schedules | None = None) -> Compiled:
    """All stages but the last. `optional` passes and fusion change speed, and results by rounding
    alone: which values are one kernel decides the order in which its sums are added. `schedules`
    take the place of what the rules propose, by the keys that `ztorch show --stage plan` prints."""
    watch = Watch()
    graphs, plans, params = lower_functions(functions, target, optional, fusion, True, watch,
                                            schedules)
    spec = spec_of(name, target, plans, params)
    if target.limits.grid is not None:
        made = device_code(plans, target, watch)
        return Compiled(graphs, plans, made.text, made.code, made.into(spec, target),
                        initial_params(params))
    symbols = {n: f.symbol for n, f in spec.functions.items()}
    text = render(plans, target, symbols)
    watch.done("text", text)
    obj = assembled(text, target)
    watch.done("object", obj)
    code = link(obj, soname=f"{_file(name)}.so", exports=[*symbols.values(), WORKER_ENTRY])
    watch.done("library", code)
    return Compiled(graphs, plans, text, code, spec, initial_params(params))


def lower_functions(functions: Mapping[str, Graph], target: Target, optional: tuple[str, ...],
                    fusion: bool, frozen: bool, watch: Watch,
                    schedules: Schedules | None = None,
                    ) -> tuple[dict[str, Graph], dict[str, Plan], Params]:
    """Graphs as passes leave them, and their plans. `frozen`: what a program that only predicts
    makes of its weights alone becomes a function of its own, at the price of a second copy."""
    graphs = {n: passes.run(g, optional) for n, g in functions.items()}
    watch.done("graph", graphs)
    params = Params(target.limits)
    for graph in functions.values():
        for state in graph.leaves("state"):
            params.state(state)
    derived = Derived() if frozen and not any(g.updates for g in graphs.values()) else None
    try:
        plans = {n: lower(n, g, target.limits, params, fusion, derived, schedules)
                 for n, g in graphs.items()}
    except RecursionError:
        raise Unsupported(
            "more elementwise ops follow on one another than Python's recursion limit of "
            f"{sys.getrecursionlimit():,} lets the compiler fuse; raise it before compiling, such "
            "as with sys.setrecursionlimit(20_000), or put a Dense or Conv between") from None
    if derived is not None and derived.updates:
        once = Graph({}, derived.updates)
        plans[PREPARE] = lower(PREPARE, once, target.limits, params, fusion, None, schedules)
    keys = [s.key for plan in plans.values() for s in plan.steps]
    known = {*keys, *(key.partition("/")[2] for key in keys)}
    for name in schedules or ():
        if name not in known:
            raise unknown("kernel", name, known)
    watch.done("plan", plans)
    return graphs, plans, params


def render(plans: Mapping[str, Plan], target: Target, symbols: Mapping[str, str],
            c: CInterface | None = None) -> str:
    """One module: kernels that turn out the same are rendered once. With `c` it is for C."""
    kernels = Kernels(target)
    programs = []
    for plan in plans.values():
        pointers: dict[tuple[str, int], int] = {}
        steps = []
        for step in plan.steps:
            symbol = kernels.rendered[kernels.number(step.kernel)]["symbol"]
            used = [pointers.setdefault((p.space, p.offset), len(pointers)) for p in step.locations]
            steps.append({"symbol": symbol, "pointers": used, "barrier": step.barrier})
        programs.append({"symbol": symbols[plan.name], "steps": steps, "pointers": [
            {"id": k, "space": space, "offset": at,
             "slot": at if space in ("inputs", "outputs") else None}
            for (space, at), k in pointers.items()]})
    return kernels.words.frame(
        kernels=kernels.rendered, programs=programs, c=c, arch=target.arch,
        triple=target.llvm_triple, cpu=target.llvm_cpu, vector_bits=target.limits.vector_bits,
        features=",".join(f"+{f}" for f in target.llvm_features), control_fields=CONTROL_FIELDS,
        offset_of=CONTROL_OFFSETS, **dict(target.frame_data))


def _file(name: str) -> str:
    """A name that is safe in files, whatever the user called the model."""
    return "zt_" + re.sub(r"[^A-Za-z0-9_]", "_", name)


def spec_of(name: str, target: Target, plans: Mapping[str, Plan], params: Params) -> ProgramSpec:
    functions, arena = {}, max(p.arena for p in plans.values())
    for n, plan in plans.items():
        inputs = [TensorSpec(v.attrs["name"], v.shape, v.dtype) for v in plan.inputs]
        outputs = [TensorSpec(o, v.shape, v.dtype) for o, v in plan.outputs]
        symbol = entry_point(n, inputs, outputs, params.size, arena)
        functions[n] = FunctionSpec(n, symbol, {t.name: t for t in inputs},
                                    {t.name: t for t in outputs}, plan.cycles,
                                    tuple((s.kernel.name, s.cycles) for s in plan.steps),
                                    tuple((what, b.size, b.first, b.last, at)
                                          for what, b, at in plan.buffers))
    states = {n: StateSpec(n, v.shape, v.dtype, params.offsets[n], v.attrs.get("kind", "weight"),
                           bool(v.attrs.get("trainable", False)))
              for n, v in params.states.items()}
    return ProgramSpec(
        name, target.name, target.arch or target.chip, target.required_features, functions, states,
        params.size, arena, tuple((at, data.nbytes) for at, data in params.constants),
        tuple(dict.fromkeys(s.kernel.name for p in plans.values() for s in p.steps)),
        target.backend)


def initial_params(params: Params) -> np.ndarray:
    """States and constants at their places."""
    this_processor.need_memory("the program", params.size, "make layers smaller")
    block = aligned(max(params.size, 1))[:params.size]
    for name, v in params.states.items():
        if "data" not in v.attrs:  # derived: `prepare` fills it
            continue
        data = np.ascontiguousarray(to_storage(u8 if v.dtype is boolean else v.dtype,
                                               v.attrs["data"]))
        at = params.offsets[name]
        block[at:at + data.nbytes] = data.reshape(-1).view(np.uint8)
    for at, data in params.constants:
        block[at:at + data.nbytes] = data.reshape(-1).view(np.uint8)
    return block
