"""Values that are stacked are computed by one kernel, and stored in turns.

Along a last axis the kernel computes an element of each, as those of a complex number or a rotated
pair, and stores them side by side: from vectors of each, shuffles make vectors of the result. A
kernel of the stack would compute or read one element at a time, and test which value it belongs to.

Along another axis the values are stored in runs. Where all are computed from the same numbers, as
the results of a butterfly of a Fourier transform, one kernel reads and computes these once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.lower.insets import INTERLEAVED
from ztorch.lower.region import is_view
from ztorch.lower.tuning import INTERLEAVED_MAX, REGION_MEMBERS_MAX

Shape = tuple[int, ...]


def with_interleaves(graph: Graph, in_runs: bool = True) -> Graph:
    """The graph with stacks of few values as interleaved values, along their last axis or, with
    `in_runs`, along others. In a loop the parts of a stack may lie in places of their own, which
    others leave to them."""
    nodes = graph.nodes()
    stacks = {v: parts for v in nodes if (parts := stacked(v, v.args))}
    runs = {v for v in nodes if in_runs and v not in stacks and _has_siblings(v)}
    if not stacks and not runs:
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
        if v in runs:
            with layer_scope(v.layer):
                new[v] = INTERLEAVED(*args, shape=v.shape, run=_run(v))
        elif v in shapes:
            new[v] = args[0]  # with this shape
        elif parts and (_is_only_stored(v, readers) if v.op.movement else
                        any(map(_is_computed, parts)) or not _is_read_in_place(v, readers)):
            [reader, *others] = readers.get(v, []) or [v]
            if v not in roots and not others and reader.op.name == "reshape":
                shapes[reader] = reader.shape
            with layer_scope(v.layer):
                new[v] = INTERLEAVED(*stacked(v, args), shape=shapes.get(reader, v.shape), run=1)
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


def _run(v: Value) -> int:
    """The elements of a part of a concatenation that are stored in a row."""
    return math.prod(v.args[0].shape[v.attrs["axis"]:])


def _has_siblings(v: Value) -> bool:
    """Whether v joins values of one shape, in runs, which elementwise work computes from the same
    values: few enough for one kernel."""
    if v.op.name != "concat" or not v.size or len({a.shape for a in v.args}) > 1 or _run(v) == 1:
        return False
    sources: list[set[Value]] = []  # groups of values that no other group's parts depend on
    for part in v.args:
        if not _is_computed(part):
            return False
        own = _elementwise_sources(part)
        apart = [group for group in sources if not group & own]
        sources = [*apart, own.union(*(group for group in sources if group & own))]
    return len(v.args) > 1 and len(sources) == 1 and len(sources[0]) < REGION_MEMBERS_MAX


def _elementwise_sources(part: Value) -> set[Value]:
    """The values that elementwise work computes a part of, itself among them, and the first others
    that these read."""
    values, stack = set[Value](), [part]
    while stack and len(values) < REGION_MEMBERS_MAX:
        x = stack.pop()
        while is_view(x) and x.op.name == "reshape":
            x = x.args[0]
        if x not in values:
            values.add(x)
            stack += x.args if x.op.kind == "map" and x.op.opcode else ()
    return {x for x in values if x.op.kind != "map" or x.args}


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
