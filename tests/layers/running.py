"""One layer, or one function of tensors, run in every way there is: for tests that compare them with
other frameworks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.parity import Job, agree, compiled
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value
from ztorch.layers import Context, Layer, States

MACHINES = ("cpu", "cpu:scalar")


class Traced:
    """A layer on one input, with weights of our own: its output and the gradients of the sum of
    output * slope, by the input and all weights that train."""

    def __init__(self, layer: Layer, x: np.ndarray, training: bool = False, seed: int = 0):
        self.layer = layer
        self.context = Context(training, States())
        random = np.random.default_rng(seed)
        self.x = leaf("input", "x", x.shape, "float32" if x.dtype.kind == "f" else x.dtype.name)
        self.y = layer(self.x, self.context)
        self.weights = {w.path: random.normal(0.5, 0.5, w.shape) for w in layer.weights}
        for path in self.weights:
            if path.endswith("variance"):
                self.weights[path] = np.abs(self.weights[path]) + 0.5
        self.slope = random.normal(size=self.y.shape)
        slope = leaf("input", "slope", self.y.shape, "float32")
        states = [self.context.read(w) for w in layer.weights]
        self.feeds: dict[Value, Any] = {self.x: x, slope: self.slope, **dict(
            zip(states, self.weights.values(), strict=True))}
        self.wrt = [*([self.x] if x.dtype.kind == "f" else []),
                    *(self.context.read(w) for w in layer.weights if w.trains)]
        found = gradients(OPS.sum(self.y * slope), self.wrt)
        self.graph = Graph({"y": self.y, **{f"d{k}": g for k, g in enumerate(found)}})

    def oracle(self) -> list[np.ndarray]:
        """Output and gradients in float64."""
        return evaluate(self.graph.roots, self.feeds, oracle=True)

    def updates(self) -> dict[str, np.ndarray]:
        """New values of the weights that the layer writes, in float64."""
        new = self.context.updates
        return dict(zip((v.attrs["name"] for v in new),
                        evaluate(list(new.values()), self.feeds, oracle=True), strict=True))

    def compiled_agrees(self, terms: int = 100) -> None:
        """Compiled float32 code gives what float64 does, give or take rounding."""
        job = Job(self.graph, {v: np.asarray(a, v.dtype.numpy) for v, a in self.feeds.items()})
        for machine in MACHINES:
            agree(job, compiled(job, target(machine)), terms=terms)


def target(machine: str) -> str:
    """The code that a device named so runs here."""
    from tests.parity import HERE

    return machine.partition(":")[2] or HERE[-1]


def same(got: list[np.ndarray], want: list[Any], rtol: float = 1e-9, atol: float = 1e-11) -> None:
    """Arrays of ours and tensors of others, one by one."""
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        b = b.detach().numpy() if hasattr(b, "detach") else np.asarray(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
