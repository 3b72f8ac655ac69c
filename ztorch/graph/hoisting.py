"""Products of sequences that do not depend on carries are computed before a loop, for all of its
iterations at once.

    an LSTM: the product of each row with the kernel   becomes   one large product before the loop

This runs after differentiation, so gradients see the product in the iteration.
"""

from __future__ import annotations

from dataclasses import replace

from ztorch.errors import Unsupported
from ztorch.graph.batching import vectorized
from ztorch.graph.body import Body, arguments, closed, dependents, results_of, slice_leaf
from ztorch.graph.rewrite import rebuilt, substituted
from ztorch.graph.value import Graph, Value, layer_scope, topological


def products_first(graph: Graph) -> Graph:
    """The graph with products of sequences before its loops."""
    results: dict[Value, list[Value]] = {}  # of new loops
    new: dict[Value, Value] = {}
    for v in graph.nodes():
        if v.op.kind == "result" and v.args[0] in results:
            new[v] = results[v.args[0]][v.attrs["index"]]
            continue
        new[v] = rebuilt(v, tuple(new[a] for a in v.args))
        if v.op.kind == "loop" and computed_ahead(v.attrs["body"]):
            with layer_scope(v.layer):
                results[v] = with_products_first(new[v])
    return graph.with_roots(new[r] for r in graph.roots) if results else graph


def computed_ahead(body: Body) -> list[Value]:
    """The values of an iteration that are computed before the loop: products that depend on
    sequences and not on carries, and what is made of them alone."""
    if not body.ahead or body.trip_count == 1:
        return []
    ahead = dependents(body.roots, body.slices) - dependents(body.roots, body.carries)
    heavy: set[Value] = set()
    for v in body.nodes:
        if v in ahead and (v.op.kind == "contract" or any(a in heavy for a in v.args)):
            heavy.add(v)
    ends = [a for v in body.nodes if v not in heavy for a in v.args if a in heavy]
    return list(dict.fromkeys(_below_movement(v, heavy) for v in [
        *ends, *(r for r in body.roots if r in heavy)]))


def with_products_first(loop: Value) -> list[Value]:
    """The results of a loop with products before it. An iteration reads its part of them."""
    body: Body = loop.attrs["body"]
    inits, sequences, shared = arguments(body, loop.args)
    outer = dict(zip(body.shared, shared, strict=True))
    body = replace(body.with_roots(substituted(body.roots, outer)), shared=())
    ends = computed_ahead(body)
    examples = dict(zip(body.slices, sequences, strict=True))
    varying = dependents(body.roots, body.slices)
    same = frozenset(v for v in body.nodes if v not in varying)  # random or not
    body = replace(body, ahead=False)
    try:
        batched = vectorized(ends, examples, body.trip_count, shared=same)
    except Unsupported:  # it draws random numbers at every iteration
        batched, ends = {}, []
    leaves = [slice_leaf(batched[v], len(sequences) + k) for k, v in enumerate(ends)]
    roots = substituted(body.roots, dict(zip(ends, leaves, strict=True)))
    stacks = examples | {s: batched[v] for s, v in zip(leaves, ends, strict=True)}
    used = set(topological(roots))
    slices = tuple(s for s in stacks if s in used)
    body, outside = closed(replace(body.with_roots(roots), slices=slices))
    last, stacked = results_of(loop.op(*inits, *(stacks[s] for s in slices), *outside, body=body))
    return [*last, *(stacks.get(v, y) for v, y in zip(body.outs, stacked, strict=True))]


def _below_movement(v: Value, heavy: set[Value]) -> Value:
    """The source of a chain of movements: reading it costs nothing inside the loop."""
    while v.op.movement and len(v.args) == 1 and v.args[0] in heavy:
        v = v.args[0]
    return v
