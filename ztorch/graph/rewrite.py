"""Rebuilding a graph from the bottom up, one local rule at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ztorch.graph.value import Graph, Value, layer_scope

Rule = Callable[[Value], Value | None]

_PATIENCE = 100  # rewrites of one node; real chains need a handful


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """The graph with every node replaced by what the rule makes of it, until it makes nothing.

    The rule sees a node whose arguments are rewritten already and gives another value of the same
    shape, dtype and meaning, or None. It must bring a node closer to something, or it would
    never end. Nodes keep the layer they came from; what the rule builds belongs to that layer too.
    """
    new: dict[Value, Value] = {}
    for old in graph.nodes():
        node = rebuilt(old, tuple(new[a] for a in old.args))
        with layer_scope(old.layer):
            for _ in range(_PATIENCE):
                better = rule(node)
                if better is None:
                    break
                assert (better.shape, better.dtype) == (node.shape, node.dtype), (node, better)
                node = better
            else:
                raise AssertionError(f"the rules go round in circles at {node}")
        new[old] = node
    return graph.with_roots(new[r] for r in graph.roots)


def rebuilt(node: Value, args: tuple[Value, ...]) -> Value:
    """The node on other arguments of the same shapes; itself if they are the same."""
    if args == node.args:
        return node
    return Value(node.op, args, node.attrs, node.shape, node.dtype, node.layer)


def filled(v: Value) -> bool:
    """Whether v is one number everywhere, known now."""
    return v.op.name == "full"


def is_number(v: Value, number: Any) -> bool:
    """Whether v is this number everywhere; 0.0 and -0.0 are two numbers."""
    if not filled(v) or v.attrs["value"] != number:
        return False
    value = v.attrs["value"]
    return not v.dtype.is_float or math.copysign(1, value) == math.copysign(1, number)


def same_number(a: Value, b: Value) -> bool:
    """Whether a and b are both one and the same number everywhere."""
    return filled(b) and is_number(a, b.attrs["value"])
