"""One layer, or one function of tensors, run in every way there is: for tests that compare them with
other frameworks."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tests.cases.covering import share
from tests.parity import HERE, Job, agree, compiled
from ztorch.dtypes import dtype
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, first_value, leaf
from ztorch.graph.value import Graph, Value
from ztorch.layers import Context, Layer, States

MACHINES = ("scalar", HERE[-1])


def machines_for(layer: Layer) -> list[str]:
    """One of the machines, which depends on the layer's arguments; both in a full run."""
    config = {k: v for k, v in layer.get_config().items() if k != "name"}
    return share(MACHINES, zlib.crc32(f"{type(layer).__name__} {config}".encode()), 2)


class Traced:
    """A layer on one input, with weights of our own: its output and the gradients of the sum of
    output * slope, by the input and all weights that train."""

    def __init__(self, layer: Layer, x: np.ndarray, training: bool = False, d: str = "float64"):
        self.layer, self.array = layer, x
        self.context = Context(training, States(dtype(d)))
        random = np.random.default_rng(0)
        self.x = leaf("input", "x", x.shape, d if x.dtype.kind == "f" else x.dtype.name)
        self.y = layer(self.x, self.context)
        self.weights = {w.path: random.normal(0.5, 0.5, w.shape) for w in layer.weights}
        for path in self.weights:
            if path.endswith("variance"):
                self.weights[path] = np.abs(self.weights[path]) + 0.5
        self.slope = random.normal(size=self.y.shape)
        slope = leaf("input", "slope", self.y.shape, d)
        states = [self.context.read(w) for w in layer.weights]
        self.feeds: dict[Value, Any] = {self.x: x, slope: self.slope, **dict(
            zip(states, self.weights.values(), strict=True))}
        self.feeds |= {v: first_value(v) for v in self.context.states.leaves.values()
                       if v not in self.feeds}  # counters of random numbers
        self.wrt = [*([self.x] if x.dtype.kind == "f" else []),
                    *(self.context.read(w) for w in layer.weights if w.trains)]
        result = gradients(OPS.sum(self.y * slope), self.wrt)
        self.graph = Graph({"y": self.y, **{f"d{k}": g for k, g in enumerate(result)}})

    def oracle(self) -> list[np.ndarray]:
        """Output and gradients in float64."""
        return evaluate(self.graph.roots, self.feeds, oracle=True)

    def job(self) -> Job:
        """The same for the compiler."""
        return Job(self.graph, {v: np.asarray(a, v.dtype.numpy) for v, a in self.feeds.items()})

    def compiled_agrees(self, terms: int = 100) -> None:
        """Compiled float32 code gives the float64 result up to rounding: on one machine, and layers with other
        arguments on the other."""
        narrow = Traced(self.layer, self.array, self.context.training, "float32")
        job = narrow.job()
        for machine in machines_for(self.layer):
            agree(job, compiled(job, machine), terms=terms)


def same(got: list[np.ndarray], want: list[Any], rtol: float = 1e-9, atol: float = 1e-11) -> None:
    """Arrays of ours and tensors of others, one by one."""
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        b = b.detach().numpy() if hasattr(b, "detach") else np.asarray(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
