"""Products of few queries with keys or values that several heads share.

Repeating a head for each head of the queries would read, and often copy, it as many times. The
queries of these heads are rows of one product instead.
"""

from __future__ import annotations

import math

from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rewrite
from ztorch.graph.value import Graph, Value
from ztorch.lower.tuning import SHARED_HEAD_ROWS


def with_shared_heads(graph: Graph) -> Graph:
    """The graph with products by repeated heads as products by each head."""
    return rewrite(graph, _by_head)


def _by_head(v: Value) -> Value | None:
    """A product by repeated heads as a product by the heads themselves."""
    if v.op.kind != "contract" or not v.shape[:-2]:
        return None
    a, b = v.args
    crossed = (*range(v.rank - 2), v.rank - 1, v.rank - 2)
    is_crossed = b.op.name == "transpose" and b.attrs["axes"] == crossed
    heads = _repeated(b.args[0] if is_crossed else b)
    if heads is None:
        return None
    rows = math.prod(v.shape[:-1]) // math.prod(heads.shape[:-2])
    if rows > SHARED_HEAD_ROWS:
        return None
    left = OPS.reshape(a, (*heads.shape[:-2], rows, a.shape[-1]))
    right = OPS.transpose(heads, crossed) if is_crossed else heads
    product = Value(v.op, (left, right), v.attrs, (*left.shape[:-1], v.shape[-1]), v.dtype)
    return OPS.reshape(product, v.shape)


def _repeated(b: Value) -> Value | None:
    """The heads that b repeats, each for several adjacent heads; None if it repeats none."""
    wide = b.args[0] if b.op.name == "reshape" else b
    if wide.op.name != "broadcast_to" or wide.rank != b.rank + 1:
        return None
    *batch, heads, times, length, dim = wide.shape
    [x] = wide.args
    if x.shape != (*batch, heads, 1, length, dim) or b.shape != (
            *batch, heads * times, length, dim):
        return None
    return OPS.reshape(x, (*batch, heads, length, dim))
