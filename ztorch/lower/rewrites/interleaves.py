"""Values that are stacked along a last axis are stored in turns.

One kernel computes an element of each, as those of a complex number or a rotated pair, and stores
them side by side: from vectors of each, shuffles make vectors of the result. A kernel of the stack
would compute or read one element at a time, and test which value it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.lower.insets import INTERLEAVED
from ztorch.lower.region import is_view
from ztorch.lower.tuning import INTERLEAVED_MAX

Shape = tuple[int, ...]


def with_interleaves(graph: Graph) -> Graph:
    """The graph with stacks of few values along their last axis as interleaved values."""
    nodes = graph.nodes()
    stacks = {v: parts for v in nodes if (parts := stacked(v, v.args))}
    if not stacks:
        return graph
    readers: dict[Value, list[Value]] = {}
    for v in nodes:
        for a in v.args:
            readers.setdefault(a, []).append(v)
    roots, shapes = {*graph.roots}, dict[Value, Shape]()
    new: dict[Value, Value] = {}
    for v in nodes:
        args = tuple(new[a] for a in v.args)
        parts = stacks.get(v, [])
        if v in shapes:
            new[v] = args[0]  # with this shape
        elif parts and (_is_only_stored(v, readers) if v.op.movement else
                        any(map(_is_computed, parts)) or not _is_read_in_place(v, readers)):
            [reader, *others] = readers.get(v, []) or [v]
            if v not in roots and not others and reader.op.name == "reshape":
                shapes[reader] = reader.shape
            with layer_scope(v.layer):
                new[v] = INTERLEAVED(*stacked(v, args), shape=shapes.get(reader, v.shape))
        else:
            new[v] = rebuilt(v, args)
    return graph.with_roots(new[r] for r in graph.roots)


def stacked(v: Value, args: Sequence[Value]) -> list[Value]:
    """The few values of which v, with these arguments, holds one element after another; empty if
    it holds others."""
    count = v.shape[-1] if v.shape else 0
    if not v.size or not 2 <= count <= INTERLEAVED_MAX:
        return []
    column_shape = (*v.shape[:-1], 1)
    if v.op.name == "concat" and v.attrs["axis"] == v.rank - 1:
        origin, unit = (0,) * (v.rank - 1), (1,) * v.rank
        return [x if x.shape == column_shape else OPS.slice(x, (*origin, k), unit, column_shape)
                for x in args for k in range(x.shape[-1])]
    if v.op.name == "broadcast_to" and args[0].shape == column_shape:
        return [args[0]] * count
    if v.op.name == "pad" and args[0].shape == column_shape:
        fill = OPS.full(column_shape, v.attrs["value"], v.dtype)
        return [args[0] if k == v.attrs["low"][-1] else fill for k in range(count)]
    return []


def _is_computed(v: Value) -> bool:
    """Whether a value has to be computed before it is stored."""
    while is_view(v) and v.args:
        v = v.args[0]
    return not is_view(v) and v.op.kind != "leaf"


def _is_read_in_place(v: Value, readers: Mapping[Value, Sequence[Value]]) -> bool:
    """Whether some kernel that computes with the elements of a stack can pick them itself."""
    return any(_is_read_in_place(r, readers) if is_view(r) else r.op.kind in ("map", "reduce")
               for r in readers.get(v, ()))


def _is_only_stored(v: Value, readers: Mapping[Value, Sequence[Value]]) -> bool:
    """Whether nothing reads a value: it is an output, in this shape or in another."""
    return all(r.op.name == "reshape" and r not in readers for r in readers.get(v, ()))
