"""What layers hand to one another, and how to see it on a device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ztorch.codegen.targets import Target
from ztorch.compile.functions import Functions
from ztorch.compile.pipeline import compile_functions
from ztorch.errors import Unsupported
from ztorch.graph.value import Graph, Value
from ztorch.lower.plan import Plan
from ztorch.runtime.start import start


@dataclass(frozen=True)
class Subject:
    """A program that runs, and the graphs of what it is meant to compute."""

    name: str
    traced: Functions
    target: Target
    ordinal: int | None
    run: Any  # an Executable or Remote
    plans: Mapping[str, Plan]


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


def probed(subject: Subject, inner: Sequence[Probe], inputs: Mapping[str, np.ndarray],
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
            yield from probed(subject, inner[:len(inner) // 2], inputs, states)
            yield from probed(subject, inner[len(inner) // 2:], inputs, states)
        return
    run = start(made.spec, made.code, made.params, None, subject.ordinal)
    for name in set(states) & {s.attrs["name"] for s in graph.leaves("state")}:
        run.set_state(name, states[name])
    call = run.bind("predict")
    for port in call.inputs:
        call.inputs[port][...] = inputs[port]
    call()
    for k, probe in enumerate(inner):
        yield probe, call.outputs[f"p{k}"], writer(made.plans["predict"], "outputs", k)[1]


def writer(plan: Plan, space: str, at: int) -> tuple[int, str]:
    """The last kernel that writes there, after its number in the plan."""
    for k, step in reversed(list(enumerate(plan.steps))):
        if any(w and p.space == space and p.offset == at
               for p, w in zip(step.locations, step.writes, strict=True)):
            return k, step.kernel.name
    return -1, "none: it is not computed"
