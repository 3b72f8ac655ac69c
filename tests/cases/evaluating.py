"""Predictions of a traced model by NumPy, without compiling."""

from __future__ import annotations

import numpy as np

from ztorch.compile.traced_model import TracedModel
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import first_value


def evaluated(traced: TracedModel, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of predict, for inputs by port."""
    graph = traced.functions["predict"]
    feeds = {v: arrays[v.attrs["name"]] for v in graph.leaves("input")}
    feeds |= {v: first_value(v) for v in graph.leaves("state")}
    return evaluate(list(graph.outputs.values()), feeds)
