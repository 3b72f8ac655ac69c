"""Padding of images under sliding windows, on a processor: loops of sums and maxima skip positions
outside the image, so no padded copy is written."""

from __future__ import annotations

from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.ir.limits import Limits
from ztorch.ir.opcodes import identity
from ztorch.lower.cpu import correlation, sliding_windows
from ztorch.lower.index import Index
from ztorch.lower.region import Region, as_view, is_view, map_region, reduce_domain


def without_borders(graph: Graph, limits: Limits) -> Graph:
    """The graph with padding as views wherever the kernel that reads it can skip it."""
    if limits.grid is not None or not any(_is_border(v) for v in graph.nodes()):
        return graph
    new: dict[Value, Value] = {}
    for v in graph.nodes():
        out = rebuilt(v, tuple(new[a] for a in v.args))
        if v.op.kind == "reduce":
            with layer_scope(v.layer):
                viewed = rebuilt(out, (_with_views(out.args[0], out),))
            if viewed is not out and _skips_borders(_region(viewed), limits):
                out = viewed
        new[v] = out
    return graph.with_roots(new[r] for r in graph.roots)


def _skips_borders(region: Region, limits: Limits) -> bool:
    return any(nest.propose(region, limits) is not None for nest in (correlation, sliding_windows))


def _is_border(v: Value) -> bool:
    return v.op.name == "pad" and not is_view(v)


def _with_views(v: Value, reduction: Value) -> Value:
    """The operand of a reduction, with padding by the neutral element as views."""
    if _is_border(v) and v.attrs["value"] == identity(reduction.op.opcode, v.dtype):
        return as_view(v)
    weighted = v.op.opcode == "mul" and reduction.op.opcode == "add"
    if not (weighted or (is_view(v) and len(v.args) == 1)):
        return v
    return rebuilt(v, tuple(_with_views(a, reduction) for a in v.args))


def _region(reduction: Value) -> Region:
    """The region of a reduction and of the products that it sums."""
    x, axes = reduction.args[0], reduction.attrs["axes"]
    product = x
    while is_view(product) and product.args:
        [product] = product.args
    if product.op.opcode == "mul" and product.size == x.size:
        region = map_region(product)
        region.restructure(x.shape, axes)
    else:
        outer, inner, full = reduce_domain(x.shape, axes)
        region = Region("reduce", outer, inner, full, x.size, axes=axes, shape=x.shape)
    region.add(reduction, Index.of(region.outer))
    region.stores = [reduction]
    return region
