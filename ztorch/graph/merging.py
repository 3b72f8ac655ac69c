"""Merges loops that take the same iterations, and removes results that nothing reads.

A gradient adds results to a loop: it makes another loop of the same leaves, which becomes one with
the first here. So the order in which gradients are taken does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ztorch.graph.body import Body, arguments
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, topological


def merged(graph: Graph) -> Graph:
    """The graph with one loop for all that take the same iterations, without results nothing
    reads."""
    if not any(v.op.kind == "loop" for v in graph.nodes()):
        return graph
    return _without_unread(_united(graph))


def _united(graph: Graph) -> Graph:
    outs: dict[tuple, dict[Value, None]] = {}  # of all loops around the same leaves
    bodies: dict[tuple, Body] = {}
    for v in graph.nodes():
        if v.op.kind == "loop":
            body = v.attrs["body"]
            outs.setdefault(_iterations(body), {}).update(dict.fromkeys(body.outs))
            first = bodies.setdefault(_iterations(body), body)
            if body.proceed is None and first.proceed is not None:
                bodies[_iterations(body)] = body  # a stack needs every iteration
    bodies = {key: body.with_roots((*body.news, *outs[key])) for key, body in bodies.items()}
    loops: dict[tuple, Value] = {}
    results: dict[tuple, Value] = {}
    new: dict[Value, Value] = {}
    for v in graph.nodes():
        args = tuple(new[a] for a in v.args)
        if v.op.kind == "loop":
            key = _iterations(v.attrs["body"])
            new[v] = loops.setdefault((key, args), _with_body(v, args, bodies[key]))
        elif v.op.kind == "result":
            body = v.args[0].attrs["body"]
            index, count = v.attrs["index"], len(body.carries)
            if index >= count:
                united = args[0].attrs["body"]
                index = count + united.outs.index(body.outs[index - count])
            new[v] = results.setdefault((args[0], index), _result(v, args[0], index))
        else:
            new[v] = rebuilt(v, args)
    return graph.with_roots(new[r] for r in graph.roots)


def _iterations(body: Body) -> tuple:
    """The common properties of loops that take the same iterations."""
    return (body.trip_count, body.reverse, body.leaves, body.news, body.recompute)


def _with_body(v: Value, args: tuple[Value, ...], body: Body) -> Value:
    if args == v.args and body is v.attrs["body"]:
        return v
    return Value(v.op, args, {"body": body}, v.shape, v.dtype, v.layer)


def _result(v: Value, loop: Value, index: int) -> Value:
    if loop is v.args[0] and index == v.attrs["index"]:
        return v
    return Value(v.op, (loop,), {"index": index}, v.shape, v.dtype, v.layer)


# -- unread results -------------------------------------------------------------------------------


def _without_unread(graph: Graph) -> Graph:
    """The graph without results that nothing reads, nor results that only these needed."""
    while (smaller := _pruned(graph)) is not graph:
        graph = smaller
    return graph


def _pruned(graph: Graph) -> Graph:
    """The graph with every loop reduced to the results that are read; the graph itself if all
    are."""
    read: dict[Value, set[int]] = {}
    nodes = graph.nodes()
    for v in nodes:
        if v.op.kind == "result":
            read.setdefault(v.args[0], set()).add(v.attrs["index"])
    smaller = {loop: _PrunedBody(loop.attrs["body"], indices) for loop, indices in read.items()}
    if not any(pruned.less for pruned in smaller.values()):
        return graph
    new: dict[Value, Value] = {}
    for v in nodes:
        args = tuple(new[a] for a in v.args)
        if v.op.kind == "loop" and smaller[v].less:
            new[v] = _with_body(v, smaller[v].arguments(args), smaller[v].body)
        elif v.op.kind == "result":
            new[v] = _result(v, args[0], smaller[v.args[0]].index(v.attrs["index"]))
        else:
            new[v] = rebuilt(v, args)
    return graph.with_roots(new[r] for r in graph.roots)


class _PrunedBody:
    """The rest of a body of which only some results are read."""

    def __init__(self, body: Body, read: set[int]):
        self._old = body
        count = len(body.carries)
        outs = [k for k in range(len(body.outs)) if count + k in read]
        carries = {k for k in range(count) if k in read or k == body.proceed}
        while True:  # a carry is needed where one that is needed depends on it
            roots = [*(body.news[k] for k in carries), *(body.outs[k] for k in outs)]
            used = {v for v in topological(roots) if v.op.kind == "leaf"}
            more = carries | {k for k, c in enumerate(body.carries) if c in used}
            if more == carries:
                break
            carries = more
        keep = sorted(carries)
        leaves = [[v for v in part if v in used] for part in (body.slices, body.shared)]
        self.body = replace(
            body, carries=tuple(body.carries[k] for k in keep), slices=tuple(leaves[0]),
            shared=tuple(leaves[1]), news=tuple(body.news[k] for k in keep),
            outs=tuple(body.outs[k] for k in outs),
            proceed=None if body.proceed is None else keep.index(body.proceed))
        self.less = len(self.body.leaves) + len(outs) < len(body.leaves) + len(body.outs)
        # Loops inside have fewer readers now.
        self.body = self.body.with_roots(_without_unread(Graph({
            str(k): v for k, v in enumerate(self.body.roots)})).roots) if self.less else body
        self._new_index: Mapping[int, int] = {
            **{k: at for at, k in enumerate(keep)},
            **{count + k: len(keep) + at for at, k in enumerate(outs)}}

    def index(self, old: int) -> int:
        """The number of a result, from its old one."""
        return self._new_index[old]

    def arguments(self, args: tuple[Value, ...]) -> tuple[Value, ...]:
        """The arguments that remain."""
        leaves_left = {*self.body.leaves}
        parts = arguments(self._old, args)
        leaves = (self._old.carries, self._old.slices, self._old.shared)
        return tuple(a for part, own in zip(parts, leaves, strict=True)
                     for a, v in zip(part, own, strict=True) if v in leaves_left)

