"""Prepares loops: the body of a loop becomes a function that can be lowered to kernels.

Its arguments are buffers. Views of them are read inside the body. Loop-invariant values, such as a
matrix packed for a product, are hoisted: they are computed once, before the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ztorch.graph.body import (
    CARRY,
    SHARED,
    Body,
    arguments,
    closed,
    dependents,
    first_values,
    slice_leaf,
)
from ztorch.graph.narrow import converts
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rewrite, substituted
from ztorch.graph.value import Graph, Value, topological
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import flatten
from ztorch.lower.region import COPY, is_view, view_of
from ztorch.lower.rewrites.frozen import Derived
from ztorch.lower.rewrites.histories import row_elements, state_outs


def body_graph(body: Body) -> Graph:
    """The body as a function: outs are its outputs, and it updates the carries that change. Outs
    that are states share the buffers of the carries."""
    states = state_outs(body)
    updates = {c.attrs["name"]: v for c, v in zip(body.carries, body.news, strict=True)
               if v is not c}
    outs = {f"out {k}": v for k, v in enumerate(body.outs) if k not in states}
    return Graph(outs, updates)


def loops_outside(graph: Graph) -> Graph:
    """The graph with loop-invariant inner loops hoisted out of their loop, and prepared there like
    all others. Passes over a body can make an inner loop invariant."""
    changed = True
    while changed:
        changed = False

        def moved(v: Value) -> Value | None:
            nonlocal changed
            if v.op.kind != "loop" or not _has_invariant_loops(v.attrs["body"]):
                return None
            changed = True
            inits, sequences, shared = arguments(v.attrs["body"], v.args)
            body, shared = closed(_opened(v.attrs["body"], shared),
                                  inside=lambda x: is_view(x) or converts(x))
            return Value(v.op, (*inits, *sequences, *shared), {"body": body}, v.shape, v.dtype)

        graph = rewrite(graph, moved)
    return graph


def _has_invariant_loops(body: Body) -> bool:
    """Whether a body with several iterations has inner loops that do not depend on the iteration.
    """
    loops = [v for v in topological(body.roots) if v.op.kind == "loop"]
    if not loops or body.trip_count == 1:
        return False
    depends = dependents(body.roots, {*body.carries, *body.slices})
    return any(v not in depends for v in loops)


def prepared_loop(loop: Value, prepare: Callable[[Graph], Graph], align: int,
                  roots: Collection[int] = (), derived: Derived | None = None,
                  from_caller: bool = False) -> Value:
    """The loop with a prepared body, and arguments that are in buffers.

    Args:
        loop: A loop.
        prepare: Prepares the graph of a body.
        align: The alignment of each iteration's part of a sequence, in bytes.
        roots: The numbers of results that are roots of the graph. A stack among them is written
            to the root's buffer, even if it is a stack of states. Default: `()`.
        derived: The states that are derived from weights that never change. Default: `None`.
        from_caller: Whether iterations can read their parts of an input where the caller has it.
            Default: `False`.
    """
    body: Body = loop.attrs["body"]
    copied = [k for k in state_outs(body) if k + len(body.carries) in roots]
    body = replace(body, outs=tuple(COPY(v) if k in copied else v for k, v in enumerate(body.outs)))
    inits, sequences, shared = arguments(body, loop.args)
    if body.trip_count == 1:  # a branch or a block: nothing is hoisted
        body = _prepared(body, prepare)
        shared = tuple(COPY(x) if is_view(x) else x for x in shared)
    else:
        body, shared = _closed_again(body, shared, converts)
        if derived is not None:
            derived.bind(body.shared, shared)
        body, shared = _closed_again(_prepared(body, prepare), shared, with_roots=False)
    args = (*map(COPY, inits), *(_in_rows(x, align, from_caller) for x in sequences), *shared)
    return Value(loop.op, args, {"body": body}, loop.shape, loop.dtype, loop.layer)


def _prepared(body: Body, prepare: Callable[[Graph], Graph]) -> Body:
    graph, states = prepare(body_graph(body)), state_outs(body)
    news = tuple(graph.updates.get(c.attrs["name"], c) for c in body.carries)
    outs = iter(graph.outputs.values())
    return replace(body, news=news, outs=tuple(
        (news if states[k][1] else body.carries)[states[k][0]] if k in states else next(outs)
        for k in range(len(body.outs))))


def prepared_result(result: Value, loop: Value, align: int) -> Value:
    """A result of a prepared loop. The rows of a stack may be padded for alignment."""
    body: Body = loop.attrs["body"]
    index, count = result.attrs["index"], len(body.carries)
    if index < count:
        return Value(result.op, (loop,), result.attrs, result.shape, result.dtype)
    row = row_elements(body.outs[index - count], align)
    size = body.outs[index - count].size
    if row == size:
        return Value(result.op, (loop,), result.attrs, result.shape, result.dtype)
    stack = Value(result.op, (loop,), result.attrs, (body.trip_count, row), result.dtype)
    return OPS.reshape(OPS.slice(stack, (0, 0), (1, 1), (body.trip_count, size)), result.shape)


def _closed_again(body: Body, shared: Sequence[Value],
                  also: Callable[[Value], bool] = lambda v: False,
                  with_roots: bool = True) -> tuple[Body, tuple[Value, ...]]:
    """The body after hoisting further loop-invariant values: all but views, values that inner loops
    overwrite, values for which `also` is true, and roots, unless `with_roots`."""
    open_body = _opened(body, shared)
    stay = first_values(topological(open_body.roots))
    stay |= set() if with_roots else {*open_body.roots}
    return closed(open_body, inside=lambda v: is_view(v) or v in stay or also(v))


def _opened(body: Body, shared: Sequence[Value]) -> Body:
    """The body with loop-invariant values in place of the leaves that represent them."""
    values = dict(zip(body.shared, shared, strict=True))
    return replace(body.with_roots(substituted(body.roots, values)), shared=())


def _in_rows(x: Value, align: int, from_caller: bool) -> Value:
    """A sequence in a buffer, with each iteration's part aligned: its own, or an iteration's part
    of a sequence of the loop outside."""
    trip_count, size = x.shape[0], math.prod(x.shape[1:])
    row = row_elements(slice_leaf(x, 0), align)
    loops = [Index.of(Var(f"d{k}", n)) if n > 1 else Index() for k, n in enumerate(x.shape)]
    base = view_of(x, loops)
    padded = flatten(loops[1:], x.shape[1:]) + loops[0] * row
    if base is not None and base[1] == padded and base[0].size >= trip_count * row and (
            base[0].attrs.get("role") not in (CARRY, SHARED, *(() if from_caller else ("input",)))):
        return base[0]
    if row == size:
        return COPY(x)
    return COPY(OPS.pad(OPS.reshape(x, (trip_count, size)), (0, 0), (0, row - size)))
