"""ztorch verify: does a device compute what a model means, layer by layer?

Every function of a program is run beside the same graph in float64 (`graph/evaluate.py`), on the
same random rows and states; what rounding may do to each number is measured by `graph/rounding.py`.
The program itself is run as it is. Beside it the same graph is compiled once more with what each
layer hands to the others as outputs, which is how a difference gets the name of its layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ztorch.codegen.targets import TARGETS, Target
from ztorch.commands.artifacts import retraced
from ztorch.commands.look import table
from ztorch.commands.models import Recipe, find, optimizer
from ztorch.compile import compile_functions, target_for
from ztorch.dtypes import boolean, from_storage
from ztorch.errors import ConfigError, DeviceError, Unsupported, ZtorchError
from ztorch.graph.rounding import bounded
from ztorch.graph.value import Graph, Value
from ztorch.lower.plan import Plan
from ztorch.runtime.devices import Where, resolve
from ztorch.runtime.executable import start
from ztorch.tracing import Functions


@dataclass(frozen=True)
class Subject:
    """A program that runs, and the graphs of what it is meant to compute."""

    name: str
    traced: Functions
    target: Target
    ordinal: int | None
    run: Any  # an Executable or Remote
    plans: Mapping[str, Plan]


@dataclass(frozen=True)
class Check:
    """One comparison: the worst error of a value, what it may be, and what computes it."""

    part: str
    layer: str
    error: float
    bound: float
    kernel: str

    @property
    def fine(self) -> bool:
        return self.error <= self.bound


def verify(name: str, device: str, batch_size: int | None, dtype: str | None, steps: int,
           seed: int) -> None:
    """Prints the table, and fails where a layer diverges."""
    if dtype is not None and name.endswith(".zt"):
        raise ConfigError(f"{name} is compiled already, so --dtype comes too late; verify the "
                          "model it was made from")
    subject = of_artifact(name, device, batch_size) if name.endswith(".zt") else of_recipe(
        find(name), device, batch_size, dtype)
    checks = list(compared(subject, steps, seed))
    print(f"{subject.name} on {subject.run.device}, against float64")
    print(table([("", "layer", "worst error", "bound", ""), *(
        (c.part, c.layer, f"{c.error:.1e}", f"{c.bound:.1e}", "" if c.fine else "DIVERGES")
        for c in checks)]))
    wrong = next((c for c in checks if not c.fine), None)
    if wrong is not None:
        probed = any(c.part == wrong.part and c.layer.startswith("layer ") for c in checks)
        damaged = name.endswith(".zt") and probed and not wrong.layer.startswith("layer ")
        raise ZtorchError(f"{subject.name} on {subject.run.device} diverges first in "
                          f"{wrong.layer} ({wrong.part}): an error of {wrong.error:.1e}, and "
                          f"rounding explains {wrong.bound:.1e}; " + (
                              "all layers are right when they are compiled again, so the code in "
                              f"{name} is what is wrong: export it again" if damaged else
                              f"its kernel is {wrong.kernel}. `ztorch show {name} --device "
                              f"{subject.run.device} --stage text` prints it"))
    print(f"verified: {len(checks)} comparisons")


# -- what is verified ------------------------------------------------------------------------------


def of_recipe(recipe: Recipe, device: str, batch_size: int | None,
              dtype: str | None = None) -> Subject:
    """The model of a recipe, compiled for a device."""
    how: dict[str, Any] = {} if recipe.loss is None else {
        "loss": recipe.loss, "metrics": recipe.metrics,
        "optimizer": optimizer(recipe.optimizer, recipe.learning_rate)}
    traced = recipe.model.trace(batch_size or min(recipe.batch_size, 8), **how,
                                dtype=dtype or "float32")
    where = resolve(device)
    if where.ordinal is None:
        raise DeviceError(f"{device} names a chip; to verify takes a device, such as "
                          f"{where.backend}:0")
    target = target_for(where)
    made = compile_functions(traced.functions, target, recipe.model.name)
    run = start(made.spec, made.code, made.params, None, where.ordinal)
    return Subject(recipe.model.name, traced, target, where.ordinal, run, made.plans)


def of_artifact(path: str, device: str, batch_size: int | None) -> Subject:
    """The artifact's own code, and graphs traced from the description that it holds."""
    from ztorch.training.program import load

    if batch_size is not None or device != "auto":
        raise ConfigError(f"{path} is compiled already, so --device and --batch-size come too "
                          "late; verify the model it was made from")
    program = load(path)
    traced = retraced(path, program.metadata, "verify")
    run: Any = program.executable
    target, ordinal = TARGETS[run.spec.target], None
    if target.limits.grid is not None:
        found = run.target.found
        target, ordinal = target.on_device(dict(found.limits)), found.ordinal
    else:
        target = target_for(Where(target.name, "cpu", 0))
    functions = {n: g for n, g in traced.functions.items() if n in run.functions}
    made = compile_functions(functions, target, program.name)
    return Subject(program.name, traced, target, ordinal, run, made.plans)


# -- comparisons -----------------------------------------------------------------------------------


def compared(subject: Subject, steps: int, seed: int, layers: bool = True) -> Iterator[Check]:
    """A prediction, and where the program trains, steps of that; with its `layers` or without."""
    rng = np.random.default_rng(seed)
    yield from _step(subject, "predict", "predict", rng, layers)
    if "train" in subject.run.functions:
        for k in range(steps):
            yield from _step(subject, "train", f"step {k + 1}", rng, layers and k == 0)


def _step(subject: Subject, function: str, part: str, rng: np.random.Generator,
          layers: bool) -> Iterator[Check]:
    """One run of the program, and of its `layers` from the same states and on the same rows."""
    graph = subject.traced.functions[function]
    before = subject.run.states_snapshot()
    call = subject.run.bind(function)
    for port, array in call.inputs.items():
        array[...] = _rows(port, array, subject.traced.metadata, rng)
    inner = probes(graph) if layers else []
    outputs = {n: v for n, v in graph.outputs.items() if n in call.outputs}
    updates = {n: v for n, v in graph.updates.items() if n in before}
    roots = [*(p.value for p in inner), *outputs.values(), *updates.values()]
    feeds = _feeds(graph, call.inputs, before)
    exact = dict(zip(roots, bounded(roots, feeds), strict=True))

    found: dict[tuple[str, str], list[Check]] = {}
    for probe, got, kernel in _probed(subject, inner, call.inputs, before):
        found.setdefault(probe[:2], []).append(
            _check(f"{part}{probe.phase}", f"layer {probe.layer}", probe.value, got,
                   exact[probe.value], kernel))
    yield from map(_worst, found.values())
    call()
    after = subject.run.states_snapshot()
    plan = subject.plans[function]
    for name, v in outputs.items():
        slot = [n for n, _ in plan.outputs].index(name)
        yield _check(part, f"output {name}", v, call.outputs[name], exact[v],
                     _writer(plan, "outputs", slot)[1])
    written = {n: _writer(plan, "params", subject.run.states[n].offset) for n in updates}
    for what in ("weight", "other"):
        checks = [_check(part, f"state {n}", updates[n], after[n], exact[updates[n]], written[n][1])
                  for n in sorted(updates, key=lambda n: written[n][0])  # as they are computed
                  if (subject.run.states[n].role == "weight") == (what == "weight")]
        if checks:
            yield _worst(checks)


def _worst(checks: Sequence[Check]) -> Check:
    """The first that diverges, or the one that is nearest to it."""
    return next((c for c in checks if not c.fine), max(
        checks, key=lambda c: c.error / c.bound if c.bound else 0.0))


def _check(part: str, layer: str, v: Value, got: np.ndarray, exact: tuple[np.ndarray, float],
           kernel: str) -> Check:
    want, bound = exact
    given = got.astype(bool) if v.dtype is boolean else from_storage(v.dtype, got)
    given, want = given.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.abs(given - want)
    apart = np.where((given == want) | (np.isnan(given) & np.isnan(want)), 0.0, apart)
    worst = float(np.nan_to_num(apart, nan=np.inf).max()) if apart.size else 0.0
    return Check(part, layer, worst, bound, kernel)


def _writer(plan: Plan, space: str, at: int) -> tuple[int, str]:
    """The last kernel that writes there, after its number in the plan."""
    for k, step in reversed(list(enumerate(plan.steps))):
        if any(w and p.space == space and p.offset == at
               for p, w in zip(step.locations, step.writes, strict=True)):
            return k, step.kernel.name
    return -1, "none: it is not computed"


# -- rows and states -------------------------------------------------------------------------------


def _rows(port: str, array: np.ndarray, metadata: Mapping[str, Any],
          rng: np.random.Generator) -> np.ndarray:
    """Random numbers that an input takes, or a target."""
    role, _, name = port.partition("/")
    if role == "w":
        return np.ones(array.shape)

    def said(what: str) -> Any:
        value = metadata[what]
        return value.get(name) if name and value is not None else value

    if array.dtype.kind == "f":
        return rng.random(array.shape)
    if role == "y":
        return rng.integers(0, said("classes") or 2, array.shape)
    limits = said("input_range") or {"low": 0, "high": 1}
    return rng.integers(limits["low"], limits["high"] + 1, array.shape)


def _feeds(graph: Graph, inputs: Mapping[str, np.ndarray],
           states: Mapping[str, np.ndarray]) -> dict[Value, np.ndarray]:
    """What the leaves of a graph are, as NumPy computes with it."""
    found = {}
    for role, held in (("input", inputs), ("state", states)):
        for v in graph.leaves(role):
            raw = held[v.attrs["name"]]
            found[v] = raw.astype(bool) if v.dtype is boolean else from_storage(v.dtype, raw)
    return found


# -- layers ----------------------------------------------------------------------------------------


class Probe(NamedTuple):
    """A tensor that a layer hands to another; in training also a gradient, on the way back."""

    layer: str
    phase: str
    value: Value


def probes(graph: Graph) -> list[Probe]:
    """What layers hand to one another, in the order of computation."""
    readers: dict[Value, set[str]] = {}
    for v in graph.nodes():
        for a in v.args:
            readers.setdefault(_computed(a), set()).add(v.layer)
    for root in graph.roots:
        readers.setdefault(_computed(root), set()).add("")
    ends = graph.outputs["loss"].serial if "loss" in graph.outputs else math.inf
    return [Probe(v.layer, " backward" if v.serial > ends else "", v)
            for v in graph.nodes()
            if v.layer and readers.get(v, set()) - {v.layer} and v.args and v.size
            and v.dtype.is_float and not v.op.movement]


def _computed(v: Value) -> Value:
    """The tensor whose numbers are only moved to become this one."""
    while v.op.movement and len(v.args) == 1:
        v = v.args[0]
    return v


def _probed(subject: Subject, inner: Sequence[Probe], inputs: Mapping[str, np.ndarray],
            states: Mapping[str, np.ndarray]) -> Iterator[tuple[Probe, np.ndarray, str]]:
    """Each probe with what the device makes of it, and the kernel that writes it. More outputs
    make kernels with more buffers: where that is beyond the device, each half is tried alone."""
    if not inner:
        return
    graph = Graph({f"p{k}": p.value for k, p in enumerate(inner)})
    try:
        made = compile_functions({"predict": graph}, subject.target, subject.name)
    except Unsupported:
        if len(inner) > 1:
            yield from _probed(subject, inner[:len(inner) // 2], inputs, states)
            yield from _probed(subject, inner[len(inner) // 2:], inputs, states)
        return
    run = start(made.spec, made.code, made.params, None, subject.ordinal)
    for name in set(states) & {s.attrs["name"] for s in graph.leaves("state")}:
        run.set_state(name, states[name])
    call = run.bind("predict")
    for port in call.inputs:
        call.inputs[port][...] = inputs[port]
    call()
    for k, probe in enumerate(inner):
        yield probe, call.outputs[f"p{k}"], _writer(made.plans["predict"], "outputs", k)[1]
