"""Compares a program with its graphs in float64, function by function and layer by layer.

Each function runs on the device and as a graph in float64 (`graph/evaluate.py`), on the same random
rows and states. `graph/rounding.py` measures how far rounding may move each number. The program
runs as it is. To name the layer in which a difference begins, the graph is compiled once more with
the values between layers as outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ztorch.dtypes import boolean, from_storage
from ztorch.graph.rounding import bounded
from ztorch.graph.value import Graph, Value
from ztorch.runtime.buckets import verb_of
from ztorch.runtime.snapshot import Metadata
from ztorch.terminal.work_line import at
from ztorch.verify.probes import Subject, last_writer, probes, read_probes


@dataclass(frozen=True)
class Check:
    """One comparison."""

    part: str  # predict, step 1, step 1 backward ...
    layer: str  # or an output or a state
    error: float  # the largest of all numbers
    bound: float  # the largest error that rounding explains
    kernel: str  # the kernel that computes it

    @property
    def passed(self) -> bool:
        """Whether rounding explains the error."""
        return self.error <= self.bound


def compare(subject: Subject, steps: int, seed: int, layers: bool = True) -> Iterator[Check]:
    """Compares a prediction and, if the program trains, training steps.

    Args:
        subject: The program and its graphs.
        steps: How many training steps.
        seed: The seed of the random rows.
        layers: Whether to compare each layer, in the prediction and the first step. Default:
            `True`.
    """
    rng = np.random.default_rng(seed)
    by_verb: dict[str, list[str]] = {}  # the functions of a verb, one for each size
    for name in subject.executable.functions:
        by_verb.setdefault(verb_of(name), []).append(name)
    for name in by_verb["predict"]:
        yield from _compare_call(subject, name, name, rng, layers)
    for name in by_verb.get("train", ()):
        for k in range(steps):
            part = f"step {k + 1}{name.removeprefix('train')}"
            yield from _compare_call(subject, name, part, rng, layers and k == 0)


def _compare_call(subject: Subject, function: str, part: str, rng: np.random.Generator,
                  layers: bool) -> Iterator[Check]:
    """Compares one call of a function, and its layers from the same states on the same rows."""
    executable = subject.executable
    graph = subject.traced.functions[function]
    at(f"{part}: run")
    before = executable.states_snapshot()
    call = executable.bind(function)
    for port, array in call.inputs.items():
        array[...] = _random_rows(port, array, subject.traced.metadata, rng)
    inner = probes(graph) if layers else []
    outputs = {n: v for n, v in graph.outputs.items() if n in call.outputs}
    updates = {n: v for n, v in graph.updates.items() if n in before}
    roots = [*(p.value for p in inner), *outputs.values(), *updates.values()]
    feeds = _feeds(graph, call.inputs, before)
    expected = dict(zip(roots, bounded(roots, feeds), strict=True))

    by_layer: dict[tuple[str, str], list[Check]] = {}
    for probe, actual, kernel in read_probes(subject, inner, call.inputs, before):
        check = _check(f"{part}{probe.phase}", f"layer {probe.layer}", probe.value, actual,
                       expected[probe.value], kernel)
        by_layer.setdefault((probe.layer, probe.phase), []).append(check)
    yield from map(_worst, by_layer.values())
    call()
    after = executable.states_snapshot()
    plan = subject.plans[function]
    for name, v in outputs.items():
        slot = [n for n, _ in plan.outputs].index(name)
        yield _check(part, f"output {name}", v, call.outputs[name], expected[v],
                     last_writer(plan, "outputs", slot)[1])
    writers = {n: last_writer(plan, "params", executable.states[n].offset) for n in updates}
    in_order = sorted(updates, key=lambda name: writers[name][0])  # of computation
    for is_weight in (True, False):
        checks = [_check(part, f"state {n}", updates[n], after[n], expected[updates[n]],
                         writers[n][1])
                  for n in in_order if (executable.states[n].role == "weight") == is_weight]
        if checks:
            yield _worst(checks)


def _worst(checks: Sequence[Check]) -> Check:
    """The first check that failed; if none did, the one closest to its bound."""
    return next((c for c in checks if not c.passed), max(
        checks, key=lambda c: c.error / c.bound if c.bound else 0.0))


def _check(part: str, layer: str, v: Value, stored: np.ndarray,
           expected: tuple[np.ndarray, float], kernel: str) -> Check:
    exact, bound = expected[0].astype(np.float64), expected[1]
    actual = stored.astype(bool) if v.dtype is boolean else from_storage(v.dtype, stored)
    actual = actual.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(actual - exact)
    error = np.where((actual == exact) | (np.isnan(actual) & np.isnan(exact)), 0.0, error)
    worst = float(np.nan_to_num(error, nan=np.inf).max()) if error.size else 0.0
    return Check(part, layer, worst, bound, kernel)


def _random_rows(port: str, array: np.ndarray, metadata: Metadata,
                 rng: np.random.Generator) -> np.ndarray:
    """Random numbers that an input or target takes; weights of rows are 1,
    and lengths fit all buckets."""
    role, _, name = port.partition("/")
    if role in ("w", "real"):
        return np.ones(array.shape)
    if role == "lengths":
        return rng.integers(1, metadata.axes[name][0] + 1, array.shape)

    if array.dtype.kind == "f":
        return rng.random(array.shape)
    if role == "y":
        return rng.integers(0, metadata.classes.get(name) or 2, array.shape)
    limits = metadata.input_range.get(name)
    low, high = (limits.low, limits.high) if limits else (0, 1)
    return rng.integers(low, high + 1, array.shape)


def _feeds(graph: Graph, inputs: Mapping[str, np.ndarray],
           states: Mapping[str, np.ndarray]) -> dict[Value, np.ndarray]:
    """The numbers of the leaves of a graph, in dtypes that NumPy computes with."""
    feeds = {}
    for role, arrays in (("input", inputs), ("state", states)):
        for v in graph.leaves(role):
            stored = arrays[v.attrs["name"]]
            feeds[v] = (stored.astype(bool) if v.dtype is boolean else
                        from_storage(v.dtype, stored))
    return feeds
