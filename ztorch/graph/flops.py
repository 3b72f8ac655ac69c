"""How much arithmetic a graph does."""

from __future__ import annotations

import math

from ztorch.graph.body import Body
from ztorch.graph.value import Value, topological


def flops(v: Value) -> int:
    """The floating-point operations of one node. A multiply-add counts as 2, movement as 0."""
    if v.op.kind == "contract":
        return 2 * v.size * v.args[0].shape[-1]
    if v.op.kind == "convolution":
        return 2 * v.size * math.prod(v.args[1].shape[:-1])
    if v.op.kind == "reduce":
        return v.args[0].size
    if "flops" in v.attrs:
        return int(v.attrs["flops"])
    if v.op.kind == "loop":
        body: Body = v.attrs["body"]
        return body.trip_count * sum(flops(inner) for inner in topological(body.roots))
    computes = v.op.kind == "map" and not v.op.movement and v.args and v.dtype.is_float
    return v.size if computes else 0
