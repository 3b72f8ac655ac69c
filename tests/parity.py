"""Runs graphs through the compiler, on every machine this host can play, to compare with the oracle.

A `Job` is a graph with data for its leaves. Many jobs share one compiled module, since most of the
time a module takes is spent before its first kernel.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ztorch.backends.library import load_library
from ztorch.codegen.elf.link import link
from ztorch.codegen.targets import TARGETS, Target
from ztorch.compile.cpu_code import RenderedModule
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import DType, boolean, from_storage, to_storage, u8
from ztorch.graph import passes as graph_passes
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import first_value
from ztorch.graph.value import Graph, Value
from ztorch.host import c_compiler, processor
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ir.text import show
from ztorch.ir.verify import verify
from ztorch.lower.locations import Location
from ztorch.lower.params import Params
from ztorch.lower.plan import KernelStep, Plan, Schedules, lower
from ztorch.runtime.devices import SOURCES
from ztorch.runtime.executable import Executable
from ztorch.runtime.spec import CPU_LEVELS

# The levels of this host's CPU: all code for them can be run here.
HERE = [n for n in CPU_LEVELS if TARGETS[n].arch == processor.architecture()
        and set(TARGETS[n].required_features) <= processor.features()]
# C, where there is a compiler of it.
C = [n for n in SOURCES if any(map(shutil.which, c_compiler.NAMES))]
# Machines that only the interpreter plays: one lane, few lanes and registers, many lanes.
SCALAR, NARROW, WIDE = Limits(0, 16, False), Limits(128, 8, False), Limits(512, 32, True)
# Workgroups: one of few threads that take turns and share by memory alone, one with subgroups.
GROUPS = Limits(0, 128, False, grid=GridLimits(threads=64, shared_bytes=1 << 14, max_groups=7, compute_units=2))
SUBGROUPS = Limits(0, 128, True, grid=GridLimits(subgroup=8))
DEFAULT = graph_passes.DEFAULT

Arrays = list[np.ndarray]


@dataclass
class Job:
    """A graph and an array for each of its inputs and states."""

    graph: Graph
    feeds: dict[Value, Any]
    label: str = ""
    _own: dict[str, Graph] = field(default_factory=dict)
    _exact: Arrays = field(default_factory=list)

    def __post_init__(self) -> None:
        """Without updates of states that nothing reads: a program does not have them."""
        while True:
            read = {v.attrs["name"] for v in self.graph.leaves("state")}
            updates = {n: v for n, v in self.graph.updates.items() if n in read}
            if len(updates) == len(self.graph.updates):
                break
            self.graph = Graph(self.graph.outputs, updates)

    def alone(self, name: str) -> Graph:
        """The graph with its own states: in one program, equal names mean the same state."""
        if name not in self._own:
            self._own[name] = _renamed(self.graph, self.feeds, name)
        return self._own[name]

    def oracle(self) -> Arrays:
        """The values of the roots, outputs first, in float64. They are computed once: many machines are
        compared with it."""
        if not self._exact:
            feeds = {v: read(v.dtype, stored(v.dtype, a)) for v, a in self.feeds.items()}
            self._exact = evaluate(self.graph.roots, feeds, oracle=True)
        return self._exact


def stored(d: DType, a: Any) -> np.ndarray:
    return np.asarray(to_storage(u8 if d is boolean else d, np.asarray(a)), order="C")


def read(d: DType, a: np.ndarray) -> np.ndarray:
    return a.astype(bool) if d is boolean else from_storage(d, a)


def _renamed(graph: Graph, feeds: Mapping[Value, Any], name: str) -> Graph:
    new: dict[Value, Value] = {}
    for v in graph.nodes():
        attrs = v.attrs
        if attrs.get("role") == "state":
            attrs = {**attrs, "name": f"{name}/{attrs['name']}",
                     "data": np.asarray(feeds[v], v.dtype.working)}
        elif attrs.get("role") == "input":
            attrs = {**attrs, "name": f"{attrs['name']}.{v.serial}"}
        new[v] = Value(v.op, tuple(new[a] for a in v.args), attrs, v.shape, v.dtype, v.layer)
        if attrs.get("role") == "input":
            new[v].attrs["fed"] = feeds[v]
    return Graph({n: new[v] for n, v in graph.outputs.items()},
                 {f"{name}/{n}": new[v] for n, v in graph.updates.items()})


# -- compiled ---------------------------------------------------------------------------------------


class Module:
    """Jobs compiled together for one target."""

    def __init__(self, jobs: Iterable[Job], target: str | Target, fusion: bool = True,
                 passes: tuple[str, ...] = DEFAULT, schedules: Schedules | None = None):
        self.graphs = {f"j{k}": job.alone(f"j{k}") for k, job in enumerate(jobs)}
        t = target if isinstance(target, Target) else TARGETS[target]  # one text: LLVM takes 2 ms for each
        t = replace(t, one_module_per_kernel=t.limits.grid is not None and t.one_module_per_kernel)
        self.compiled = compile_functions(self.graphs, t, "parity", passes, fusion, schedules)
        self.executable = Executable(self.compiled.spec, self.compiled.code, self.compiled.params)

    def run(self, number: int, threads: int = 1) -> Arrays:
        """The outputs and new states of one job, from its first states."""
        name = f"j{number}"
        graph, e = self.graphs[name], self.executable
        call = e.bind(name)
        call.workers = threads
        for v in graph.leaves("input"):
            if v.attrs["name"] in call.inputs:
                call.inputs[v.attrs["name"]][...] = stored(v.dtype, v.attrs["fed"])
        e.params[:] = self.compiled.params
        e.weights_changed()
        call()
        outputs = [read(graph.outputs[n].dtype, a) for n, a in call.outputs.items()]
        return outputs + [read(v.dtype, e.state(n)) for n, v in graph.updates.items()]


def compiled(job: Job, target: str | Target, fusion: bool = True, passes: tuple[str, ...] = DEFAULT,
             threads: int = 1) -> Arrays:
    """One job on its own."""
    return Module([job], target, fusion, passes).run(0, threads)


# -- interpreted ------------------------------------------------------------------------------------


def plan_of(graph: Graph, limits: Limits, fusion: bool = True,
            passes: tuple[str, ...] = DEFAULT,
            schedules: Schedules | None = None) -> tuple[Plan, Params]:
    """How a graph is lowered, alone in its program."""
    params = Params(limits)
    for state in graph.leaves("state"):
        params.state(state)
    return lower("alone", graph_passes.run(graph, passes), limits, params, fusion,
                 schedules=schedules), params


def interpreted(job: Job, limits: Limits, fusion: bool = True, passes: tuple[str, ...] = DEFAULT, workers: int = 1,
                backwards: bool = False, schedules: Schedules | None = None,
                by: Callable[[Kernel, dict], None] | None = None) -> Arrays:
    """One job on the interpreter of the kernel IR, or `by` another machine, its buffers where the plan puts them.

    `backwards` runs the kernels between two barriers in reverse: workers may drift that far apart,
    so it must make no difference.
    """
    graph = job.alone("j")
    plan, params = plan_of(graph, limits, fusion, passes, schedules)
    spaces = {"params": _params(params), "arena": np.full(plan.arena, 0xEE, np.uint8)}
    inputs = [stored(v.dtype, v.attrs["fed"]).reshape(-1).view(np.uint8) for v in plan.inputs]
    outputs = [np.full(v.size * _stored_type(v).bytes, 0xEE, np.uint8) for _, v in plan.outputs]
    subgroup, group = (limits.grid.subgroup if limits.grid else 0) or 8, list[tuple]()
    machine = by or (lambda kernel, buffers: interpret(kernel, buffers, workers, subgroup=subgroup))
    for kernel in {id(s.kernel): s.kernel for s in plan.steps}.values():  # once; loops run them often
        verify(kernel)

    def memory(place: Location) -> np.ndarray:
        if slots := {"inputs": inputs, "outputs": outputs}.get(place.space):
            return slots[place.offset][place.start:place.start + place.size]
        return spaces[place.space][place.offset:place.offset + place.size]

    def run_group() -> None:
        for step, places in reversed(group) if backwards else group:
            buffers = {}
            parameters = [m for m in step.kernel.memories if m.space == "global"]
            for m, place in zip(parameters, places, strict=True):
                raw = memory(place)
                assert raw.size == place.size == m.size * m.dtype.bytes, (m, place)
                buffers[m.name] = raw.view(m.dtype.numpy)
            machine(step.kernel, buffers)
        group.clear()

    def goes_on(place: Location) -> bool:
        run_group()
        return bool(memory(place)[0])

    for step, places in plan.runs(goes_on):
        if step.barrier:
            run_group()
        group.append((step, places))
    run_group()
    result = [(raw, v) for raw, (_, v) in zip(outputs, plan.outputs, strict=True)]
    for name, v in graph.updates.items():
        at = params.offsets[name]
        result.append((spaces["params"][at:at + v.size * _stored_type(v).bytes], v))
    return [read(v.dtype, raw.view(_stored_type(v).numpy).reshape(v.shape)) for raw, v in result]


def _stored_type(v: Value) -> DType:
    return u8 if v.dtype is boolean else v.dtype


def _params(params: Params) -> np.ndarray:
    block = np.full(params.size, 0xEE, np.uint8)
    placed = [(params.offsets[n], stored(v.dtype, first_value(v)))
              for n, v in params.states.items()]
    for at, data in [*placed, *params.constants]:
        block[at:at + data.nbytes] = data.reshape(-1).view(np.uint8)
    return block


def buffers_of(step: KernelStep, job: Job) -> tuple[dict[str, np.ndarray], str]:
    """The buffers of a job's only kernel, its inputs in theirs, and the name of the one it writes."""
    held, out, buffers = {}, "", (m for m in step.kernel.memories if m.space == "global")
    for m, place, written in zip(buffers, step.locations, step.writes, strict=True):
        held[m.name] = np.zeros(m.size, m.dtype.numpy)
        if place.space == "inputs":
            v = job.alone("j").leaves("input")[place.offset]
            held[m.name][:] = stored(v.dtype, v.attrs["fed"]).reshape(-1)
        elif place.space != "params" or not written:  # else it is the kernel's own
            assert not out, f"{m.name} is no input and not written: a constant, say"
            out = m.name
    return held, out


# -- comparison -------------------------------------------------------------------------------------


def close(got: np.ndarray, want: np.ndarray, d: DType, terms: int = 1, label: str = "") -> None:
    """Floats within a few roundings of a sum of `terms` numbers of the size of the largest result;
    everything else equal."""
    assert got.shape == want.shape, label
    if not d.is_float:
        np.testing.assert_array_equal(got, want, label)
        return
    eps = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}[d.name]
    finite = np.abs(want[np.isfinite(want)])
    size = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0,
                               atol=eps * (16 + 2 * terms) * size, err_msg=label)


def agree(job: Job, got: Arrays, want: Arrays | None = None, terms: int = 1) -> None:
    """All roots of a job are close to the oracle's."""
    roots = job.graph.roots
    want = want or job.oracle()
    floats = [v.dtype for v in job.graph.nodes() if v.dtype.is_float]
    narrow = min(floats, key=lambda d: d.bits, default=None)  # the reach of its rounding
    for g, w, v in zip(got, want, roots, strict=True):
        close(g, w, narrow if v.dtype.is_float and narrow else v.dtype, terms, job.label)


# -- kernels by themselves ----------------------------------------------------------------------------

_answers: dict[tuple, dict[str, np.ndarray]] = {}


def answer(kernel: Kernel, buffers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Contents of buffers after the interpreter ran a kernel on them. Many machines are compared with
    the same kernels on the same numbers: each is run once."""
    key = (show(kernel), *(a.tobytes() for a in buffers.values()))
    if key not in _answers:
        held = {n: a.copy() for n, a in buffers.items()}
        interpret(kernel, held)
        for a in held.values():
            a.flags.writeable = False
        _answers[key] = held
    return _answers[key]


def run_kernels(kernels: Sequence[Kernel], buffers: Sequence[Mapping[str, np.ndarray]],
                target: str | Target) -> None:
    """Compiles kernels as one function and runs each on its buffers, in place."""
    t = replace(target if isinstance(target, Target) else TARGETS[target], one_module_per_kernel=False)
    steps, addresses = [], []
    for kernel, held in zip(kernels, buffers, strict=True):
        parameters = [m for m in kernel.memories if m.space == "global"]
        places = tuple(Location("inputs", len(addresses) + at, m.size * m.dtype.bytes)
                       for at, m in enumerate(parameters))
        steps.append(KernelStep(kernel, places, tuple(m.access != "r" for m in parameters), 0.0))
        addresses += [held[m.name].ctypes.data for m in parameters]
    obj = RenderedModule({"all": Plan("all", [], [], steps, 0, [])}, t, {"all": "zt_all"}).assemble()
    library = load_library(link(obj, soname="kernels.so", exports=["zt_all"]), "k")
    library.zt_all.restype = None
    inputs = (ctypes.c_void_p * len(addresses))(*addresses)
    library.zt_all((ctypes.c_void_p * 5)(ctypes.addressof(inputs)))
