"""Reads the tensors that layers pass to each other from a device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ztorch.codegen.targets import Target
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.traced_model import TracedModel
from ztorch.errors import Unsupported
from ztorch.graph.value import Graph, Value
from ztorch.lower.plan import Plan
from ztorch.runtime.start import start


@dataclass(frozen=True)
class Subject:
    """A program to verify, and the graphs that define the expected results."""

    name: str
    traced: TracedModel
    target: Target
    ordinal: int | None  # of the device; None on a CPU
    executable: Any  # an Executable or Remote
    plans: Mapping[str, Plan]  # of each function


class Probe(NamedTuple):
    """A tensor that a layer passes to another; in training also a gradient."""

    layer: str  # the layer that computes it
    phase: str  # " backward" for a gradient, else empty
    value: Value


def probes(graph: Graph) -> list[Probe]:
    """The tensors that layers pass to each other, in the order of computation."""
    readers: dict[Value, set[str]] = {}
    for v in graph.nodes():
        for a in v.args:
            readers.setdefault(_before_movement(a), set()).add(v.layer)
    for root in graph.roots:
        readers.setdefault(_before_movement(root), set()).add("")
    forward_end = graph.outputs["loss"].serial if "loss" in graph.outputs else math.inf
    return [Probe(v.layer, " backward" if v.serial > forward_end else "", v)
            for v in graph.nodes()
            if v.layer and readers.get(v, set()) - {v.layer} and v.args and v.size
            and v.dtype.is_float and not v.op.movement]


def _before_movement(v: Value) -> Value:
    """The tensor that was computed, before ops that only move its elements."""
    while v.op.movement and len(v.args) == 1:
        v = v.args[0]
    return v


def read_probes(subject: Subject, inner: Sequence[Probe], inputs: Mapping[str, np.ndarray],
                states: Mapping[str, np.ndarray]) -> Iterator[tuple[Probe, np.ndarray, str]]:
    """Each probe with its values on the device, and the kernel that writes it.

    The graph is compiled again with the probes as outputs. If a kernel then has more buffers than
    the device allows, each half of the probes is compiled separately.
    """
    if not inner:
        return
    graph = Graph({f"p{k}": probe.value for k, probe in enumerate(inner)})
    try:
        compiled = compile_functions({"predict": graph}, subject.target, subject.name)
    except Unsupported:
        if len(inner) > 1:
            half = len(inner) // 2
            yield from read_probes(subject, inner[:half], inputs, states)
            yield from read_probes(subject, inner[half:], inputs, states)
        return
    executable = start(compiled.spec, compiled.code, compiled.params, None, subject.ordinal)
    for name in set(states) & {s.attrs["name"] for s in graph.leaves("state")}:
        executable.set_state(name, states[name])
    call = executable.bind("predict")
    for port in call.inputs:
        call.inputs[port][...] = inputs[port]
    call()
    plan = compiled.plans["predict"]
    for k, probe in enumerate(inner):
        yield probe, call.outputs[f"p{k}"], last_writer(plan, "outputs", k)[1]


def last_writer(plan: Plan, space: str, at: int) -> tuple[int, str]:
    """The last kernel that writes to an offset of a space: its number in the plan, and its name."""
    for number, step in reversed(list(enumerate(plan.steps))):
        if any(writes and place.space == space and place.offset == at
               for place, writes in zip(step.locations, step.writes, strict=True)):
            return number, step.kernel.name
    return -1, "none: it is not computed"
