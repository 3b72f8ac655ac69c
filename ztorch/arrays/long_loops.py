"""Computes the tensors that a long Python loop recorded, in parts of equal structure. So few
programs are compiled, for any number of iterations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.arrays.node import TensorNode
from ztorch.arrays.realize import realize

LEAST_DEPTH = 100  # the least depth of a graph that is computed
MOST_NODES = 64  # of a part of several iterations, which then compiles in tenths of a second


def compute_iterations(operands: Sequence[Any]) -> int:
    """Computes the complete iterations of the loop that recorded nodes; all nodes, if no loop is
    recognized.

    Args:
        operands: Nodes and numbers.

    Returns:
        The depth of the nodes that are still pending.
    """
    pending = [o for o in operands if type(o) is TensorNode and o.block is None]
    if not pending:
        return 0
    parts, rest = _parts(pending)
    while parts:
        realize(parts.pop(0))  # popped, so that nothing here keeps its tensors alive
    _count_depths(rest)
    return max((o.depth for o in pending if o.block is None), default=0)


def _count_depths(nodes: Sequence[TensorNode]) -> None:
    """Counts the depth of nodes again, after some that they depend on were computed."""
    for node in sorted(nodes, key=lambda n: n.depth):
        node.depth = 1 + max((x.depth for x in node.operands
                              if type(x) is TensorNode and x.block is None), default=0)


def _parts(pending: list[TensorNode]) -> tuple[list[list[TensorNode]], list[TensorNode]]:
    """The nodes to compute for each part, and the nodes that are left. This is a separate function
    because its variables would keep nodes alive during the computation."""
    nodes = dict.fromkeys(pending)
    order = list(nodes)
    for node in order:  # grows during the loop
        for x in node.operands:
            if type(x) is TensorNode and x.block is None and x not in nodes:
                nodes[x] = None
                order.append(x)
    _count_depths(order)  # earlier parts were computed since some of them were counted
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
        """The nodes that an iteration ending at this depth computes and deeper nodes read."""
        return [n for same in at[max(0, depth - period + 1):depth + 1] for n in same
                if depth < last[n]]

    # Iterations end where the fewest tensors are alive, in the last iteration but one: of the last
    # one, some uses are not recorded yet. Of several such places, the names of the calls before
    # decide, so that the next part ends at the same one.
    alive, names = [0] * (top + 1), [getattr(n.call, "name", "") for n in chain]
    for node in order:
        for depth in range(max(node.depth, top - 2 * period),
                           min(last[node], node.depth + period)):
            alive[depth] += 1
    end = period + min(range(top - 2 * period, top - period),
                       key=lambda d: (alive[d], names[top - d:][:period]))
    size = sum(map(len, at[end - period + 1:end + 1]))
    iterations = min(max(1, MOST_NODES // size), end // period)
    if not iterations:
        return [pending], []
    first = end % period or period
    depths = range(first + (iterations - 1) * period, end + 1, iterations * period)
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
    """The number of calls after which a sequence, except its last quarter, repeats; 0: never.

    >>> _period("abcabcabcabx"), _period("abcdefghijkl")
    (3, 0)
    """
    most = len(calls) // 4 * 3
    for n in range(1, most // 2):
        if all(calls[k] is calls[k + n] for k in range(most - n)):
            return n
    return 0
