"""Computes what a long loop of the user's recorded, in parts of one structure: so few programs are
compiled, however many turns the loop has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.arrays.node import TensorNode
from ztorch.arrays.realize import realize

LEAST_DEPTH = 100  # of nodes that are worth to be computed
MOST_NODES = 64  # of a part, if it has several turns: those compile in some tenths of a second


def compute_turns(operands: Sequence[Any]) -> int:
    """Computes the turns of the loop that nodes come from; all of them, if no loop is recognized.

    Args:
        operands: Nodes, and numbers.

    Returns:
        The depth of the nodes that are still pending.
    """
    pending = [o for o in operands if type(o) is TensorNode and o.block is None]
    if not pending:
        return 0
    parts, rest = _parts(pending)
    while parts:
        realize(parts.pop(0))  # and no longer refers to them
    _count_depths(rest)
    return max((o.depth for o in pending if o.block is None), default=0)


def _count_depths(nodes: Sequence[TensorNode]) -> None:
    """Counts the depth of nodes again, after some that they depend on were computed."""
    for node in sorted(nodes, key=lambda n: n.depth):
        node.depth = 1 + max((x.depth for x in node.operands
                              if type(x) is TensorNode and x.block is None), default=0)


def _parts(pending: list[TensorNode]) -> tuple[list[list[TensorNode]], list[TensorNode]]:
    """The nodes to compute for each part, and the nodes that are left. A function of its own,
    because its variables refer to nodes that would be kept for that."""
    nodes = dict.fromkeys(pending)
    order = list(nodes)
    for node in order:  # which grows
        for x in node.operands:
            if type(x) is TensorNode and x.block is None and x not in nodes:
                nodes[x] = None
                order.append(x)
    _count_depths(order)  # those beside the last operands were not counted again then
    chain = _chain(max(order, key=lambda n: n.depth))
    top, period = chain[0].depth, _period([n.call for n in chain])
    if top <= LEAST_DEPTH:
        return [], []
    if not period:
        return [pending], []
    last = dict.fromkeys(pending, top + 1)  # the depth of the last use
    at: list[list[TensorNode]] = [[] for _ in range(top + 1)]  # nodes by their depth
    for node in order:
        at[node.depth].append(node)
        for x in node.operands:
            if x in nodes and node.depth > last.get(x, 0):
                last[x] = node.depth

    def live(depth: int) -> list[TensorNode]:
        """What a turn that ends there computes and deeper nodes read."""
        return [n for same in at[max(0, depth - period + 1):depth + 1] for n in same
                if depth < last[n]]

    # A turn ends where the fewest tensors are alive.
    alive = [0] * (top + 1)
    for node in order:
        for depth in range(max(node.depth, top - period), min(last[node], node.depth + period)):
            alive[depth] += 1
    end = min(range(top - period, top), key=lambda d: (alive[d], id(chain[top - d].call)))
    size = sum(map(len, at[end - period + 1:end + 1]))
    turns = min(max(1, MOST_NODES // size), end // period)
    if not turns:
        return [pending], []
    first = end % period or period
    depths = range(first + (turns - 1) * period, end + 1, turns * period)
    return [live(d) for d in depths], [n for n in order if n.depth > depths[-1]]


def _chain(node: TensorNode) -> list[TensorNode]:
    """A node, its operand that is one less deep, and so on."""
    chain = [node]
    while True:
        before = [x for x in chain[-1].operands if type(x) is TensorNode and x.block is None
                  and x.depth == chain[-1].depth - 1]
        if not before:
            return chain
        chain.append(before[0])


def _period(calls: Sequence[Any]) -> int:
    """After how many calls a sequence repeats itself, but for its last quarter; 0: it does not.

    >>> _period("abcabcabcabx"), _period("abcdefghijkl")
    (3, 0)
    """
    most = len(calls) // 4 * 3
    for n in range(1, most // 2):
        if all(calls[k] is calls[k + n] for k in range(most - n)):
            return n
    return 0
