"""The structure of pending tensors: what a compiled program is found by, and built from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from ztorch.arrays.calls import Call
from ztorch.arrays.node import TensorNode
from ztorch.arrays.specs import Spec
from ztorch.graph.tracing import NotTraced
from ztorch.graph.value import Value

NUMBER = -1  # stands in a key for one of Python's numbers


class Pending(NamedTuple):
    """Everything that some nodes depend on."""

    key: list[Any]  # the structure; see `walk`
    leaves: list[TensorNode]  # computed nodes, in the order of the key
    numbers: list[Any]  # Python's numbers, in the order of the key
    order: list[TensorNode]  # nodes to compute, each after its operands
    slots: dict[int, int]  # id of a node -> its number in the key


def walk(roots: Sequence[TensorNode], arguments: Sequence[TensorNode] = (),
         within: set[int] | None = None) -> Pending:
    """Follows nodes down to what is computed.

    The key holds, for each computed node, its Spec; for each pending one its Call, which of the
    results it is, and for each operand its number, or NUMBER; below NUMBER the numbers that an
    earlier result of the same call took, counted down.

    Args:
        roots: The nodes to compute.
        arguments: Nodes that count as computed, and come first in the key. Default: `()`.
        within: If not `None`, ids of the nodes to compute: all others count as computed, and these
            do not, even if they are. Default: `None`.

    Raises:
        NotTraced: They depend on an argument of a function that is being compiled.
    """
    key: list[Any] = [node.spec for node in arguments]
    leaves: list[TensorNode] = list(arguments)
    numbers: list[Any] = []
    order: list[TensorNode] = []
    slots: dict[int, int] = {id(node): k for k, node in enumerate(arguments)}
    first_number: dict[int, int] = {}  # id of operands -> place of their first number in numbers
    stack = list(roots)
    while stack:
        node = stack[-1]
        if id(node) in slots:
            stack.pop()
            continue
        call, operands = node.call, node.operands
        if (node.block is not None if within is None else  # read last: it may just be computed
                id(node) not in within):
            stack.pop()
            slots[id(node)] = len(slots)
            leaves.append(node)
            key.append(node.spec)
            continue
        if call is None:
            raise NotTraced("a tensor has no value while the function that takes it is compiled or "
                            "differentiated as a whole; use ops.where to choose by its value")
        depth = len(stack)
        for o in operands:
            if type(o) is TensorNode and id(o) not in slots:
                if within is None and o.block is not None:  # a short way for most operands
                    slots[id(o)] = len(slots)
                    leaves.append(o)
                    key.append(o.spec)
                else:
                    stack.append(o)
        if len(stack) > depth:
            continue
        stack.pop()
        key.append(call)
        key.append(node.index)
        known = first_number.get(id(operands))  # of an earlier result of the same call
        if known is None:
            first_number[id(operands)] = len(numbers)
        for o in operands:
            if type(o) is TensorNode:
                key.append(slots[id(o)])
            elif known is None:
                key.append(NUMBER)
                numbers.append(o)
            else:
                key.append(NUMBER - 1 - known)
                known += 1
        slots[id(node)] = len(slots)
        order.append(node)
        if node.siblings is not None and within is None:  # whoever wants those finds them computed
            stack += [s for ref in node.siblings if (s := ref()) is not None
                      and id(s) not in slots and s.call is call and s.block is None]
    return Pending(key, leaves, numbers, order, slots)


def dependents(roots: Sequence[TensorNode], sources: Sequence[TensorNode]) -> set[int]:
    """The ids of the nodes on the way from sources to roots, with both."""
    depends = dict.fromkeys(map(id, sources), True)
    stack = list(roots)
    while stack:
        node = stack[-1]
        if id(node) in depends:
            stack.pop()
            continue
        operands = [o for o in node.operands if type(o) is TensorNode]
        unvisited = [o for o in operands if id(o) not in depends]
        if unvisited:
            stack += unvisited
            continue
        depends[id(node)] = any(depends[id(o)] for o in operands)
    return {key for key, reached in depends.items() if reached}


def needed_elsewhere(pending: Pending, roots: Sequence[TensorNode]) -> list[TensorNode]:
    """The nodes on the way to the roots that somebody else refers to: a variable of the user's, or
    a pending computation of another kind. They are worth keeping once they are computed."""
    if len(pending.order) == len({*map(id, roots)}):
        return []
    uses = _uses(pending.order)
    wanted = {id(r) for r in roots}
    # Besides operands, two refer to a node: the list and the loop; getrefcount counts itself too.
    return [node for node in pending.order
            if sys.getrefcount(node) > 3 + uses.get(id(node), 0) and id(node) not in wanted]


def _uses(order: Sequence[TensorNode]) -> dict[int, int]:
    """How often each node is an operand. A function, since its variables refer to nodes."""
    uses: dict[int, int] = {}
    counted: set[int] = set()
    for node in order:
        if id(node.operands) not in counted:  # results of one call share their operands
            counted.add(id(node.operands))
            for o in node.operands:
                uses[id(o)] = uses.get(id(o), 0) + 1
    return uses


def rebuild(key: Sequence[Any], leaves: Sequence[Value], numbers: Sequence[Value]) -> list[Value]:
    """The values of a graph that a key describes, by their number in the key.

    Args:
        key: The structure.
        leaves: Values of the computed nodes, in the order of the key.
        numbers: Values of Python's numbers, likewise, each of the dtype that its call wants.
    """
    values: list[Value] = []
    results: dict[tuple[Any, ...], list[Value]] = {}  # of calls, by call and operands
    next_leaf, next_number = iter(leaves), iter(numbers)
    at = 0
    while at < len(key):
        call = key[at]
        at += 1
        if isinstance(call, Spec):
            values.append(next(next_leaf))
            continue
        index, at = key[at], at + 1
        slots = tuple(key[at:at + len(call.operands)])
        at += len(slots)
        operands = [values[s] if s >= 0 else next(next_number) if s == NUMBER else
                    numbers[NUMBER - 1 - s] for s in slots]
        made = (call, *(id(v) for v in operands))
        if made not in results:
            results[made] = call.build(operands)
        values.append(results[made][index])
    return values


def number_dtypes(key: Sequence[Any]) -> list[Any]:
    """The dtype that each of the numbers of a key is computed in."""
    dtypes: list[Any] = []
    for at, call in enumerate(key):
        if isinstance(call, Call):
            slots = key[at + 2:at + 2 + len(call.operands)]
            dtypes += [d for d, s in zip(call.dtypes, slots, strict=True) if s == NUMBER]
    return dtypes
