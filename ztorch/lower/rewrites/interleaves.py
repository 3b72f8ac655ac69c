"""Values that are stacked along a last axis are stored in turns.

One kernel computes an element of each, as those of a complex number or a rotated pair, and stores
them side by side: from vectors of each, shuffles make vectors of the result. A kernel of the stack
would compute or read one element at a time, and test which value it belongs to.
"""

from __future__ import annotations

import math

from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.lower.insets import INTERLEAVED
from ztorch.lower.region import is_view
from ztorch.lower.tuning import INTERLEAVED_MAX


def with_interleaves(graph: Graph) -> Graph:
    """The graph with stacks of few values along their last axis as interleaved values."""
    nodes = graph.nodes()
    if not any(map(_is_stack, nodes)):
        return graph
    readers: dict[Value, list[Value]] = {}
    for v in nodes:
        for a in v.args:
            readers.setdefault(a, []).append(v)
    roots, shaped = {*graph.roots}, dict[Value, Value]()  # stacks, by the reshape they are read by
    for v in nodes:
        if _is_stack(v) and (_is_computed(v) or not _is_read_in_place(v, readers)):
            shaped[v] = v
            if v not in roots and [r.op.name for r in readers[v]] == ["reshape"]:
                shaped[v] = readers[v][0]
    new: dict[Value, Value] = {}
    for v in nodes:
        args = tuple(new[a] for a in v.args)
        if v in shaped:
            with layer_scope(v.layer):
                new[v] = INTERLEAVED(*args, shape=shaped[v].shape)
        else:
            new[v] = args[0] if v in shaped.values() else rebuilt(v, args)
    return graph.with_roots(new[r] for r in graph.roots)


def _is_stack(v: Value) -> bool:
    """Whether v holds one element of each of a few values after another."""
    if v.op.name != "concat" or not v.size or not 2 <= len(v.args) <= INTERLEAVED_MAX:
        return False
    axis = v.attrs["axis"]
    return math.prod(v.shape[axis:]) == len(v.args) and all(x.shape[axis] == 1 for x in v.args)


def _is_computed(v: Value) -> bool:
    """Whether some value of a stack has to be computed before it is stored."""
    return any(not is_view(x) and x.op.kind != "leaf" for x in map(_without_views, v.args))


def _without_views(v: Value) -> Value:
    while is_view(v) and v.args:
        v = v.args[0]
    return v


def _is_read_in_place(v: Value, readers: dict[Value, list[Value]]) -> bool:
    """Whether some kernel that computes with the elements of a stack can pick them itself."""
    return any(_is_read_in_place(r, readers) if is_view(r) else r.op.kind in ("map", "reduce")
               for r in readers.get(v, ()))
