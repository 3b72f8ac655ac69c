"""The frameworks that results are compared with, where they are installed; and one way to run a
traced model without the compiler."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import first_value
from ztorch.graph.value import Graph, Value


def torch() -> Any:
    return pytest.importorskip("torch")


def keras() -> Any:
    pytest.importorskip("torch")
    os.environ.setdefault("KERAS_BACKEND", "torch")
    result = pytest.importorskip("keras", exc_type=ImportError)
    if result.backend.backend() != "torch":
        pytest.skip("keras runs on another backend")
    return result


class Run:
    """A traced function run step by step by the float64 oracle, with its states between steps."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.states = {v.attrs["name"]: v for v in graph.leaves("state")}
        self.values: dict[str, Any] = {n: first_value(v) for n, v in self.states.items()}

    def __call__(self, **inputs: Any) -> dict[str, np.ndarray]:
        feeds: dict[Value, Any] = {self.states[n]: a for n, a in self.values.items()}
        feeds |= {v: inputs[v.attrs["name"]] for v in self.graph.leaves("input")}
        results = evaluate(self.graph.roots, feeds, oracle=True)
        count = len(self.graph.outputs)
        self.values.update(zip(self.graph.updates, results[count:], strict=True))
        return dict(zip(self.graph.outputs, results[:count], strict=True))
