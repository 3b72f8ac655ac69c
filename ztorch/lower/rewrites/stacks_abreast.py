"""Stacks of a loop that only other loops read, side by side in one stack, if it fits in the place
of a sequence that the loop reads.

    the gates of an LSTM: four stacks of (rows, units) become one of (rows, 4 * units)

A row of all gates is then where the row of their sum was, and where the row of their gradients will
be: a worker goes on with its own rows, and meets nobody. The gradients, a sum of columns, are
stored side by side, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ztorch.graph.body import RESULT, Body, arguments, slice_leaf
from ztorch.graph.loop_totals import columns
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt, substituted
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.lower.rewrites.histories import state_outs


def with_stacks_abreast(graph: Graph) -> Graph:
    """The graph with such stacks of all its loops joined."""
    nodes = graph.nodes()
    if not any(v.op.kind == "loop" for v in nodes):
        return graph
    group_of = {v: group for group in _groups(graph) for v in group}
    new: dict[Value, Value] = {}
    for v in nodes:
        with layer_scope(v.layer):
            if v.op.kind == "loop":
                new[v] = _loop(v, new, group_of)
            elif v.op.kind == "result":
                new[v] = RESULT(new[v.args[0]], index=_index(v, group_of))
            else:
                new[v] = rebuilt(v, tuple(new[a] for a in v.args))
    return graph.with_roots(new[r] for r in graph.roots)


def _groups(graph: Graph) -> list[list[Value]]:
    """Stacks of one loop and one shape that the same loops read by iteration, and nothing else."""
    readers: dict[Value, list[Value]] = {r: [r] for r in graph.roots}
    for v in graph.nodes():
        for a in v.args:
            readers.setdefault(a, []).append(v)
    groups: dict[tuple, list[Value]] = {}
    for v in graph.nodes():
        if v.op.kind != "result" or v.args[0].op.kind != "loop":
            continue
        body: Body = v.args[0].attrs["body"]
        number = v.attrs["index"] - len(body.carries)
        if number < 0 or number in state_outs(body) or body.proceed is not None:
            continue
        out = body.outs[number]
        if (body.outs.count(out) == 1 and out.rank > 1 and out.op.kind == "map"
                and not out.op.movement and out.args and _is_sequence(v, readers.get(v, []))):
            key = v.args[0], tuple(readers[v]), out.shape, out.dtype
            groups.setdefault(key, []).append(v)
    fitting = (group[:_most(group[0])] for group in groups.values())
    return [group for group in fitting if len(group) > 1]


def _most(stack: Value) -> int:
    """How many stacks like this one fit in the place of a sequence of their loop."""
    loop, (_, *rows, width) = stack.args[0], stack.shape
    sequences = arguments(loop.attrs["body"], loop.args)[1]
    return max((x.shape[-1] // width for x in sequences
                if x.dtype is stack.dtype and [*x.shape[1:-1]] == rows), default=0)


def _is_sequence(v: Value, readers: list[Value]) -> bool:
    """Whether a value is a sequence of loops, and nothing else reads it."""
    return bool(readers) and all(
        r.op.kind == "loop" and r.args.count(v) == 1
        and v in arguments(r.attrs["body"], r.args)[1] for r in readers)


def _index(result: Value, group_of: Mapping[Value, list[Value]]) -> int:
    """The number of a result. Stacks in a group have that of its first one."""
    index: int = group_of[result][0].attrs["index"] if result in group_of else result.attrs["index"]
    loop = result.args[0]
    return index - sum(v.args[0] is loop and v.attrs["index"] < index and group[0] is not v
                       for v, group in group_of.items())


def _loop(loop: Value, new: Mapping[Value, Value], group_of: Mapping[Value, list[Value]]) -> Value:
    """The loop that stores each group as one stack, and reads each group as one sequence."""
    body: Body = loop.attrs["body"]
    inits, sequences, shared = ([*part] for part in arguments(body, loop.args))
    slices = list(zip(body.slices, sequences, strict=True))
    pairs, parts = [], {}
    for s, x in slices:
        if x not in group_of:
            pairs.append((s, new[x]))
        elif x is group_of[x][0]:
            stacked = slice_leaf(new[x], len(pairs))
            pairs.append((stacked, new[x]))
            leaf_of = {y: t for t, y in slices}
            width = s.shape[-1]
            for k, y in enumerate(group_of[x]):
                parts[leaf_of[y]] = stacked[..., k * width:(k + 1) * width]
    outs = dict(enumerate(body.outs))
    first = len(body.carries)
    for v, group in group_of.items():
        if v.args[0] is loop and v is group[0]:
            members = [y.attrs["index"] - first for y in group]
            outs[members[0]] = OPS.concat(*(body.outs[k] for k in members), axis=-1)
            for k in members[1:]:
                del outs[k]
    stored = [_abreast(v) for v in outs.values()]
    joined = {v: stacked for v, stacked in zip(outs.values(), stored, strict=True)
              if v is not stacked}
    roots = substituted([*substituted(body.news, joined), *stored], parts)
    count = len(body.news)
    body = replace(body, news=tuple(roots[:count]), outs=tuple(roots[count:]),
                   slices=tuple(s for s, _ in pairs))
    args = (*(new[a] for a in inits), *(x for _, x in pairs), *(new[a] for a in shared))
    return Value(loop.op, args, {"body": body}, loop.shape, loop.dtype, loop.layer)


def _abreast(v: Value) -> Value:
    """A sum of columns as what it is: values side by side."""
    if v.op.name == "concat":
        return v
    parts = sorted(columns(v).items())
    ends = [0, *(at + x.shape[-1] for at, x in parts)]
    if len(parts) < 2 or [at for at, _ in parts] != ends[:-1] or ends[-1] != v.shape[-1]:
        return v
    return OPS.concat(*(x for _, x in parts), axis=-1)
