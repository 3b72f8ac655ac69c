"""Graphs of a few kernels that depend on one another: a training step, long sums, convolutions."""

from __future__ import annotations

import numpy as np

from tests.parity import Job
from ztorch import ops
from ztorch.dtypes import f32, i32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph


def training_step(rows: int = 37, width: int = 29) -> Job:
    """Products, softmax, sums along both axes and updates in place, none of a round size."""
    rng = np.random.default_rng(0)
    x, label = leaf("input", "x", (rows, 11), f32), leaf("input", "label", (rows,), i32)
    shapes = {"w": (11, width), "b": (width,), "v": (width, 5), "m": (11, width)}
    s = {n: leaf("state", n, shape, f32) for n, shape in shapes.items()}
    hidden = ops.tanh(ops.matmul(x, s["w"]) + s["b"])
    scores = ops.log_softmax(ops.matmul(hidden, s["v"]))
    loss = ops.mean(-ops.sum(scores * ops.one_hot(label, 5), axis=1))
    weights = [s["w"], s["b"], s["v"]]
    dw, db, dv = gradients(loss, weights)
    moved = s["m"] * 0.9 + dw
    graph = Graph({"loss": loss, "scores": scores, "columns": ops.sum(hidden, axis=0)},
                  {"w": s["w"] - moved * 0.1, "b": s["b"] - db * 0.1, "v": s["v"] - dv * 0.1,
                   "m": moved})
    feeds = {v: rng.normal(size=v.shape).astype(np.float32) for v in [x, *s.values()]}
    feeds[label] = rng.integers(0, 5, rows).astype(np.int32)
    return Job(graph, feeds)


def long_sums() -> Job:
    """Reductions that are cut in two so that workers can share them."""
    x = leaf("input", "x", (1 << 17,), f32)
    data = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
    return Job(Graph({"sum": ops.sum(x), "largest": ops.max(x)}), {x: data})


def convolutions() -> Job:
    """Products of windows that are read in place, and sums of several columns at once."""
    rng = np.random.default_rng(2)
    x, slope = (leaf("input", n, (3, 8, 8, 67), f32) for n in ("x", "slope"))
    full, each = (leaf("input", n, (3, 3, k, 67), f32) for n, k in (("full", 67), ("each", 1)))
    y = ops.conv(ops.conv(x, full, padding="same"), each, padding="same", groups=67)
    result = gradients(ops.sum(y * slope), [x, full, each])
    graph = Graph({"y": y, **{f"d{k}": g for k, g in enumerate(result)}})
    return Job(graph, {v: rng.normal(size=v.shape).astype(np.float32)
                       for v in (x, slope, full, each)})
