"""Two iterations of a loop as one, so that a state has two buffers.

    iteration    reads h    writes h
    even         a          b
    odd          b          a

A product reads all of a state, so the kernel that computes the product and the next state cannot
write it over the last one: it would be copied there in every iteration, after all workers have met.
A loop that keeps its states for every iteration (`histories.py`) has a row for each anyway.
"""

from __future__ import annotations

from collections.abc import Mapping

from ztorch.graph.body import Body, arguments, slice_leaf
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rewrite, substituted
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.lower.region import is_view
from ztorch.lower.rewrites.column_groups import is_small


def in_pairs(graph: Graph, limits: Limits) -> Graph:
    """The graph with pairs of iterations in place of iterations, where that saves copies."""
    pairs: set[Value] = set()

    def paired(v: Value) -> Value | None:
        if v.op.kind != "loop" or v in pairs or not _copies_states(v.attrs["body"], limits):
            return None
        loop = _paired(v)
        pairs.add(loop)
        return loop

    return rewrite(graph, paired)


def _copies_states(body: Body, limits: Limits) -> bool:
    """Whether a loop of an even number of iterations, of which it keeps nothing, reads a state in a
    product and computes the next one from the product, element by element."""
    count, rest = divmod(body.trip_count, 2)
    if body.outs or body.proceed is not None or count < 2 or rest or any(
            v.op.kind == "loop" for v in body.nodes):
        return False
    return any(_state_read(product) is carry and (product.shape == new.shape or is_small(
        product, limits)) for carry, new in zip(body.carries, body.news, strict=True)
        for product in _products_behind(new))


def _products_behind(v: Value) -> set[Value]:
    """The products from whose elements or columns a value is computed element by element."""
    products: set[Value] = set()
    visited, pending = {v}, [v]
    while pending:
        x = pending.pop()
        if x.op.kind == "contract":
            products.add(x)
        elif x.op.kind == "map" and (not x.op.movement or x.op.name == "slice"):
            pending += {*x.args} - visited
            visited.update(x.args)
    return products


def _state_read(product: Value) -> Value:
    """What a product reads as its left operand, behind views."""
    v = product.args[0]
    while is_view(v) and len(v.args) == 1:
        [v] = v.args
    return v


def _paired(loop: Value) -> Value:
    """The loop of pairs."""
    body: Body = loop.attrs["body"]
    inits, sequences, shared = arguments(body, loop.args)
    rows = [OPS.reshape(x, (body.trip_count // 2, 2, *x.shape[1:])) for x in sequences]
    slices = tuple(slice_leaf(x, k) for k, x in enumerate(rows))

    def half(number: int) -> Mapping[Value, Value]:
        """The slices of one iteration of a pair."""
        return {old: OPS.reshape(OPS.slice(
            new, (number, *(0 for _ in old.shape)), (1,) * new.rank, (1, *old.shape)), old.shape)
            for old, new in zip(body.slices, slices, strict=True)}

    first, second = (half(int(body.reverse)), half(int(not body.reverse)))
    states = substituted(body.news, first)
    news = substituted(body.news, {**dict(zip(body.carries, states, strict=True)), **second})
    pair = Body(body.trip_count // 2, body.reverse, body.carries, slices, body.shared, tuple(news),
                (), recompute=body.recompute, again=body.again)
    return Value(loop.op, (*inits, *rows, *shared), {"body": pair}, loop.shape, loop.dtype,
                 loop.layer)
