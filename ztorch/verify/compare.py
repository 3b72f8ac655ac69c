"""Compares a program with its graphs in float64, function by function and layer by layer.

Every function of a program is run beside the same graph in float64 (`graph/evaluate.py`), on the
same random rows and states; what rounding may do to each number is measured by `graph/rounding.py`.
The program itself is run as it is. Beside it the same graph is compiled once more with what each
layer hands to the others as outputs, which is how a difference gets the name of its layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ztorch.dtypes import boolean, from_storage
from ztorch.graph.rounding import bounded
from ztorch.graph.value import Graph, Value
from ztorch.runtime.snapshot import Metadata
from ztorch.verify.probes import Subject, probed, probes, writer


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
    for probe, got, kernel in probed(subject, inner, call.inputs, before):
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
                     writer(plan, "outputs", slot)[1])
    written = {n: writer(plan, "params", subject.run.states[n].offset) for n in updates}
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


def _rows(port: str, array: np.ndarray, metadata: Metadata,
          rng: np.random.Generator) -> np.ndarray:
    """Random numbers that an input takes, or a target."""
    role, _, name = port.partition("/")
    if role == "w":
        return np.ones(array.shape)

    if array.dtype.kind == "f":
        return rng.random(array.shape)
    if role == "y":
        return rng.integers(0, metadata.classes.get(name) or 2, array.shape)
    limits = metadata.input_range.get(name)
    return rng.integers(limits.low, limits.high + 1, array.shape) if limits else rng.integers(
        0, 2, array.shape)


def _feeds(graph: Graph, inputs: Mapping[str, np.ndarray],
           states: Mapping[str, np.ndarray]) -> dict[Value, np.ndarray]:
    """What the leaves of a graph are, as NumPy computes with it."""
    found = {}
    for role, held in (("input", inputs), ("state", states)):
        for v in graph.leaves(role):
            raw = held[v.attrs["name"]]
            found[v] = raw.astype(bool) if v.dtype is boolean else from_storage(v.dtype, raw)
    return found
