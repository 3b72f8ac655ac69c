"""Attention as a graph, with numbers for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.parity import Job
from ztorch import ops
from ztorch.dtypes import u32
from ztorch.graph import passes
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.rewrites.large_intermediates import LargeShape
from ztorch.ops.attention import repeated_heads

# With gradients: heads, those of keys, queries, keys, size of a head, shape of the mask, causal, dtype, and rate of dropout.
TRAINED = {
    "one block": (2, 2, 64, 32, 16, (), False, "bfloat16"),
    "two blocks and a rest, two panels": (1, 1, 40, 88, 72, (), False, "float16"),
    "causal, in groups": (2, 1, 70, 70, 16, (), True, "bfloat16"),
    "a mask of keys": (2, 2, 24, 40, 24, (1, 1, 1, 40), False, "float16"),
    "rows that see nothing": (2, 1, 40, 40, 8, (40, 40), False, "bfloat16"),
    "dropped": (1, 1, 40, 88, 72, (), False, "float16", 0.3),
    "dropped, causal, in groups": (2, 1, 70, 70, 16, (), True, "float16", 0.5),
    "dropped, rows that see nothing": (2, 2, 40, 40, 8, (40, 40), False, "float16", 0.1),
}


def attention(heads: int, shared: int, queries: int, keys: int, dim: int, mask: tuple[int, ...] = (),
              causal: bool = False, backward: bool = True, dtype: str = "float64", batch: int = 2, more: int = 1,
              rate: float = 0.0) -> tuple[Graph, LargeShape]:
    """Attention with its gradients, and the shape of its scores. Values are `more` longer than keys. Weights are
    dropped at a `rate`."""
    sizes = {"q": (batch, heads, queries, dim), "k": (batch, shared, keys, dim),
             "v": (batch, shared, keys, dim + more), "dy": (batch, heads, queries, dim + more)}
    q, k, v, dy = (leaf("input", n, s, dtype) for n, s in sizes.items())
    seen = leaf("input", "mask", mask, "bool") if mask else None
    y = ops.attention(q, k, v, seen, causal) if rate == 0.0 else dropped(q, k, v, rate, seen, causal)
    slopes = gradients(ops.sum(y * dy), [q, k, v]) if backward else []
    graph = Graph({"y": y} | {f"d{n}": g for n, g in zip("qkv", slopes, strict=False)})
    return passes.run(graph), LargeShape((batch, heads), queries, keys)


def dropped(q: Value, k: Value, v: Value, rate: float, mask: Value | None = None, causal: bool = False) -> Value:
    """Attention whose weights are dropped at a rate."""
    seed, step = leaf("input", "seed", (2,), u32), leaf("input", "step", (), u32)
    weights = ops.attention_weights(q, k, mask, causal)
    return ops.matmul(ops.dropout(weights, rate, seed, step, 3), repeated_heads(v, q))


def fed(graph: Graph, seed: int = 3) -> dict[Value, Any]:
    random = np.random.default_rng(seed)
    return {v: random.random(v.shape) > 0.3 if v.dtype.name == "bool" else
            random.integers(0, 1 << 32, v.shape, np.uint32) if v.dtype is u32 else
            random.standard_normal(v.shape).astype(v.dtype.working) for v in graph.leaves("input")}


def trained(name: str) -> Job:
    """Attention of `TRAINED`, with gradients; with a mask for each pair, some rows see nothing."""
    *sizes, dtype, rate = (*TRAINED[name], 0.0)[:9]
    graph, _ = attention(*sizes, dtype=dtype, more=8, batch=1, rate=rate)
    feeds = fed(graph)
    for v in feeds:
        if v.attrs["name"] == "mask" and v.rank == 2:
            feeds[v][7] = feeds[v][20:] = False
    return Job(graph, feeds)


def job(heads: int, shared: int, queries: int, keys: int, dim: int, mask: tuple[int, ...], causal: bool,
        dtype: str, more: int = 1) -> Job:
    """Attention with numbers for it; with a mask for each pair, some rows see nothing."""
    graph, _ = attention(heads, shared, queries, keys, dim, mask, causal, backward=False, dtype=dtype, more=more)
    feeds = fed(graph)
    if len(mask) == 2:
        seen = next(v for v in feeds if v.attrs["name"] == "mask")
        feeds[seen][7] = feeds[seen][20:] = False
    return Job(graph, feeds)


def off(one: Job, got: np.ndarray) -> float:
    """The largest error, in units of the rounding of the result's dtype."""
    exact = {v: np.asarray(a, np.float64) if v.dtype.is_float else a for v, a in one.feeds.items()}
    [want] = evaluate(one.graph.roots, exact)
    eps = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[one.graph.roots[0].dtype.name]
    return float(np.abs(got.astype(np.float64) - want).max() / eps)
