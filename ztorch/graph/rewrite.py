"""Rewrites a graph from the leaves up with a local rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import is_not
from typing import Any

from ztorch.graph.value import Graph, Value, layer_scope, topological

Rule = Callable[[Value], Value | None]

_MOST_REWRITES = 100  # of one node, to detect rules that undo each other; real chains need a few


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """The graph with the rule applied to every node until it returns None.

    Args:
        graph: The graph.
        rule: Called with a node whose arguments are rewritten already. It returns a value of the
            same shape, dtype and meaning, or None to keep the node. Repeated application must end.

    Returns:
        The new graph. Nodes that the rule builds belong to the layer of the node they replace.
    """
    new: dict[Value, Value] = {}
    for old in graph.nodes():
        node = rebuilt(old, tuple(new[a] for a in old.args))
        with layer_scope(old.layer):
            for _ in range(_MOST_REWRITES):
                better = rule(node)
                if better is None:
                    break
                assert (better.shape, better.dtype) == (node.shape, node.dtype), (node, better)
                node = better
            else:
                raise AssertionError(f"the rewrite rules undo each other at {node}")
        new[old] = node
    roots = [new[r] for r in graph.roots]
    return graph.with_roots(roots) if any(map(is_not, roots, graph.roots)) else graph


def rebuilt(node: Value, args: tuple[Value, ...]) -> Value:
    """The node with other arguments of the same shapes; the node itself if they are unchanged."""
    # == would call Python code for each pair that differs.
    if len(args) == len(node.args) and not any(map(is_not, args, node.args)):
        return node
    return Value(node.op, args, node.attrs, node.shape, node.dtype, node.layer)


def by_others(graph: Graph, serial: bool = False) -> Graph:
    """The graph with composite ops expanded into others, in loops too.

    Args:
        graph: The graph.
        serial: Whether it is for a processor. Default: `False`.
    """
    def expansion(v: Value) -> Callable[..., Value] | None:
        return v.op.serial if serial else v.op.others

    def rule(v: Value) -> Value | None:
        if (expand := expansion(v)) is not None:
            return expand(*v.args, **v.attrs)
        if v.op.kind == "loop":
            body = v.attrs["body"]
            graph = Graph({str(k): r for k, r in enumerate(body.roots)})
            inside = by_others(graph, serial).roots
            if inside != [*body.roots]:
                return Value(v.op, v.args, {"body": body.with_roots(inside)}, v.shape, v.dtype)
        return None

    if not any(v.op.kind == "loop" or expansion(v) is not None for v in graph.nodes()):
        return graph
    graph = rewrite(graph, rule)
    while any(expansion(v) is not None for v in graph.nodes()):  # of which others consist
        graph = rewrite(graph, rule)
    return graph


def substituted(roots: Sequence[Value], new: Mapping[Value, Value]) -> list[Value]:
    """The roots with some values replaced, and all that depends on them rebuilt.

    >>> from ztorch.graph.op import OPS, leaf
    >>> x, y = (leaf("input", name, (2,), "float32") for name in "xy")
    >>> substituted([OPS.exp(x)], {x: y})[0].args[0] is y
    True
    """
    replaced = dict(new)
    for v in topological(roots, new):
        if v not in replaced:
            replaced[v] = rebuilt(v, tuple(replaced[a] for a in v.args))
    return [replaced[r] for r in roots]


def filled(v: Value) -> bool:
    """Whether v is a fill: one known number everywhere."""
    return v.op.name == "full"


def is_number(v: Value, number: Any) -> bool:
    """Whether v is filled with this number; 0.0 and -0.0 differ."""
    if not filled(v) or v.attrs["value"] != number:
        return False
    value = v.attrs["value"]
    return not v.dtype.is_float or math.copysign(1, value) == math.copysign(1, number)


def same_number(a: Value, b: Value) -> bool:
    """Whether a and b are filled with the same number."""
    return filled(b) and is_number(a, b.attrs["value"])
