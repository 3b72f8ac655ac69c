"""Models of the zoo for benchmarks.gpu: a prediction, and a step of training with Adam, whose batch
is on the device already."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks import gpu_compiled, gpu_peers, peers
from benchmarks.gpu_cases import Case, Measured, Sizes, measured, resident
from benchmarks.gpu_predictions import beside
from benchmarks.timing import Effort
from ztorch.graph.evaluate import evaluate
from ztorch.graph.value import Graph
from ztorch.runtime.devices import ListedDevice

ALLOWED = {"predict": 1e-4, "train": 1e-2}  # Adam's first steps take rounding for a slope
Arrays = Mapping[str, np.ndarray]


def cases(d: ListedDevice, z: Sizes) -> list[Case]:
    """Both functions of each model."""
    return [Case(f"{name}, {'a prediction' if function == 'predict' else 'a step'}, batch "
                 f"{z.batch}", partial(_run, d, name, function, z.batch))
            for name in z.models for function in ("predict", "train")]


def _run(d: ListedDevice, name: str, function: str, batch: int, effort: Effort) -> Measured:
    module = importlib.import_module(f"models.{name}")
    model = module.build()
    options: dict[str, Any] = {"batch_size": batch, "optimizer": "adam", "loss": module.LOSS}
    ours, cpu = (model.compile(place, **options).executable for place in (d.id, "cpu"))
    graph = model.trace(**options).functions[function]
    here, there = ours.bind(function), cpu.bind(function)
    rows = _rows(there.inputs)
    for call in (here, there):
        for port, array in rows.items():
            call.inputs[port][...] = array
    before = ours.states_snapshot()
    out, steps = ("y", 1) if function == "predict" else ("loss", 2)  # the second has seen a slope
    want = _meant(graph, rows, before, steps)[out]
    for call in (here, there):
        for _ in range(steps):
            call()
    errors = {"ztorch": peers.worst(here.outputs[out], want),
              "ztorch on cpu": peers.worst(there.outputs[out], want)}
    runs: dict[str, Callable[[], object]] = {"ztorch": resident(here), "ztorch with copies": here}
    left_out = ""
    if gpu_peers.torch_on(d):
        y = rows.get("y", np.zeros(batch, np.int64))
        theirs = gpu_peers.contestants(name, model, rows["x"], y, function == "train")
        if function == "predict":
            errors["PyTorch"] = peers.worst(theirs.prediction(), want)
        by_compiler, left_out = gpu_compiled.contestant(name, function, (rows["x"], y),
                                                        theirs.alone)
        runs |= theirs.runs | by_compiler
    else:
        runs["numpy"] = lambda: _meant(graph, rows, before, 1, oracle=False)
    runs["ztorch on cpu"] = there
    error = peers.checked(f"{name} {function} on {d.id}", ALLOWED[function], **errors)
    # else thousands of steps on one batch would end in weights that are not typical
    resets = {"ztorch": partial(ours.restore, before),
              "ztorch with copies": partial(ours.restore, before),
              "ztorch on cpu": partial(cpu.restore, before)} if function == "train" else {}
    return measured(runs, error, effort, batch, "rows/s", resets)._replace(
        predicted=beside({function: graph}, d, function), left_out=left_out)


def batch_of(model: Any, loss: Any, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """A batch, and its targets; zeros where there are none."""
    graph = model.trace(batch_size=batch, optimizer="adam", loss=loss).functions["train"]
    rows = _rows({v.attrs["name"]: np.zeros(v.shape, v.dtype.working)
                  for v in graph.leaves("input")})
    return rows["x"], rows.get("y", np.zeros(batch, np.int64))


def _rows(inputs: Arrays) -> dict[str, np.ndarray]:
    """A batch like these: numbers from 0 to 1, words and classes below 10."""
    random = np.random.default_rng(5)
    return {port: np.ones_like(a) if port in ("w", "real") else
            random.random(a.shape).astype(a.dtype)
            if a.dtype.kind == "f" else random.integers(0, 10, a.shape).astype(a.dtype)
            for port, a in inputs.items()}


def _meant(graph: Graph, rows: Arrays, states: Arrays, steps: int,
           oracle: bool = True) -> dict[str, np.ndarray]:
    """The outputs of the last of some steps by NumPy; in float64, or as the graph says."""
    states = dict(states)
    for _ in range(steps):
        feeds = {v: arrays[v.attrs["name"]] for role, arrays in (("input", rows), ("state", states))
                 for v in graph.leaves(role)}
        results = iter(evaluate([*graph.outputs.values(), *graph.updates.values()], feeds, oracle))
        outputs = dict(zip(graph.outputs, results, strict=False))
        states |= dict(zip(graph.updates, results, strict=True))
    return outputs
