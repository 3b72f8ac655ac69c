"""Attention as a graph, with numbers for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch import ops
from ztorch.graph import passes
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.wide import WideShape


def attention(heads: int, shared: int, queries: int, keys: int, dim: int, mask: tuple[int, ...] = (),
              causal: bool = False, backward: bool = True, dtype: str = "float64", batch: int = 2,
              ) -> tuple[Graph, WideShape]:
    """Attention with its gradients, and the shape of its scores."""
    sizes = {"q": (batch, heads, queries, dim), "k": (batch, shared, keys, dim),
             "v": (batch, shared, keys, dim + 1), "dy": (batch, heads, queries, dim + 1)}
    q, k, v, dy = (leaf("input", n, s, dtype) for n, s in sizes.items())
    seen = leaf("input", "mask", mask, "bool") if mask else None
    y = ops.attention(q, k, v, seen, causal)
    slopes = gradients(ops.sum(y * dy), [q, k, v]) if backward else []
    graph = Graph({"y": y} | {f"d{n}": g for n, g in zip("qkv", slopes, strict=False)})
    return passes.run(graph), WideShape((batch, heads), queries, keys)


def fed(graph: Graph, seed: int = 3) -> dict[Value, Any]:
    random = np.random.default_rng(seed)
    return {v: random.random(v.shape) > 0.3 if v.dtype.name == "bool" else
            random.standard_normal(v.shape).astype(v.dtype.working) for v in graph.leaves("input")}
