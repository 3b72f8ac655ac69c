"""The structure of pending tensors: the key of a compiled program, from which its graph is built.

A structure is a list with an entry for each pending node, in the order in which a walk from the
roots reaches them. An entry has the node's call, followed by the slot of each operand, or NUMBER.
Slots of pending nodes are 0, 1, ...; those of computed nodes -1, -2, ... If a call has several
results, the index of the result comes after the call. The entry of a further result of the same
call is AGAIN, the slot of its first result, and the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from sys import getrefcount
from typing import Any, NamedTuple

from ztorch.arrays.calls import Call
from ztorch.arrays.memory import Block, place_of
from ztorch.arrays.node import TensorNode
from ztorch.graph.tracing import NotTraced
from ztorch.graph.value import Value

NUMBER = None  # an operand that is a Python number
AGAIN = "again"  # starts the entry of a further result of a call


class Pending:
    """All nodes that some root nodes depend on.

    Args:
        arguments: Nodes that are treated as computed; the first leaves. Default: `()`.
        within: The ids of the nodes to compute, even those that are computed already; all other
            nodes are leaves. `None` means all pending nodes. Default: `None`.
    """

    __slots__ = ("blocks", "key", "leaves", "numbers", "order", "places", "plain", "roots", "slots",
                 "within")

    roots: Sequence[TensorNode]  # the roots that must be computed
    key: list[Any]  # the structure
    leaves: list[TensorNode]  # computed nodes, in the order of slots -1, -2, ...
    blocks: list[Block]  # the memory of the leaves that have a block
    places: list[Any]  # the addresses of these blocks
    numbers: list[Any]  # Python numbers, in the order of the key
    order: list[TensorNode]  # nodes to compute, in the order of slots 0, 1, ...; roots come first
    slots: dict[TensorNode, int]  # the slot of each node
    plain: bool  # whether all calls have one result
    within: set[int] | None  # see above

    def __init__(self, arguments: Sequence[TensorNode] = (), within: set[int] | None = None):
        self.roots, self.key, self.leaves, self.blocks = (), [], [*arguments], []
        self.places, self.numbers, self.order, self.within = [], [], [], within
        self.slots = {node: -1 - k for k, node in enumerate(arguments)}
        self.plain = True

    def new_slot(self, node: TensorNode) -> int:
        """Assigns a slot to a node that has none, as a node to compute or as a leaf."""
        block = node.block
        if block is None if self.within is None else id(node) in self.within:
            slot = len(self.order)
            self.order.append(node)
        else:
            self.leaves.append(node)
            slot = -len(self.leaves)
            if block is not None:
                self.blocks.append(block)
                self.places.append(place_of(block))
        self.slots[node] = slot
        return slot

    def add_results(self, call: Call, results: Sequence[Callable[[], TensorNode | None]]) -> None:
        """Adds the pending results of a call that are still referenced, so that later uses find
        them computed."""
        for other in [ref() for ref in results]:
            if other is not None and other.call is call and other.block is None and (
                    other not in self.slots):
                self.slots[other] = len(self.order)
                self.order.append(other)


def walk(roots: Sequence[TensorNode], arguments: Sequence[TensorNode] = (),
         within: set[int] | None = None) -> Pending:
    """The structure of nodes, down to computed ones.

    Args:
        roots: The nodes to compute.
        arguments: Nodes that are treated as computed; see `Pending`. Default: `()`.
        within: The ids of the nodes to compute; see `Pending`. Default: `None`.

    Raises:
        NotTraced: They depend on an argument of a function that is being compiled.
    """
    pending = Pending(arguments, within)
    key, slots, order, numbers = pending.key, pending.slots, pending.order, pending.numbers
    new_slot = pending.new_slot
    for node in roots:
        if node not in slots:
            new_slot(node)
    pending.roots = roots if len(order) == len(roots) else [r for r in roots if slots[r] >= 0]
    applied: dict[tuple[Call, int], int] = {}  # (call, id of operands) -> slot of its first result
    for node in order:  # grows during the loop
        operands = node.operands
        call = node.call  # read after the operands; see `settle`
        if call is None:
            if node.block is None or within is not None:
                raise NotTraced("a tensor has no value while the function that takes it is "
                                "compiled or differentiated as a whole; compute with zt.ops, not "
                                "NumPy, and use ops.where in place of if")
            return walk(roots, arguments)  # another thread has just computed it
        if node.siblings is None:
            key.append(call)
        else:
            first = applied.setdefault((call, id(operands)), slots[node])
            if first != slots[node]:
                key += (AGAIN, first, node.index)
                continue
            key += (call, node.index)
            if within is None:
                pending.add_results(call, node.siblings)
        for o in operands:
            if type(o) is TensorNode:
                slot = slots.get(o)
                key.append(new_slot(o) if slot is None else slot)
            else:
                key.append(NUMBER)
                numbers.append(o)
    pending.plain = not applied
    return pending


def dependents(roots: Sequence[TensorNode], sources: Sequence[TensorNode]) -> set[int]:
    """The ids of the nodes on paths from sources to roots, including both."""
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


def needed_elsewhere(pending: Pending) -> list[TensorNode]:
    """The intermediate nodes with other references, such as a user's variable or another pending
    computation. They are kept once they are computed."""
    inner = pending.order[len(pending.roots):]
    references = _references(inner)
    if pending.plain and max(references, default=0) == _OWN_REFERENCES + 1:
        return []  # each intermediate node is an operand once
    uses = _uses(pending.order)
    return [inner[k] for k, count in enumerate(references)
            if count > _OWN_REFERENCES + uses.get(id(inner[k]), 0)]


def _references(nodes: list[Any]) -> list[int]:
    """The reference count of each node."""
    return list(map(getrefcount, nodes))


def _own_references() -> int:
    """The references that this module holds while it counts: the order and the slots of `Pending`,
    the list of inner nodes, and temporary ones, which depend on the version of Python."""
    order = [object()]
    slots = dict.fromkeys(order, 0)
    [count] = _references(order[:])
    return count * len(slots)


_OWN_REFERENCES = _own_references()


def _uses(order: Sequence[TensorNode]) -> dict[int, int]:
    """How often each node is an operand. Its local variables must not keep nodes alive after it."""
    uses: dict[int, int] = {}
    counted: set[int] = set()
    for node in order:
        if id(node.operands) not in counted:  # results of one call share their operands
            counted.add(id(node.operands))
            for o in node.operands:
                uses[id(o)] = uses.get(id(o), 0) + 1
    return uses


class _Entry(NamedTuple):
    """A pending node in a structure."""

    call: Call | None  # None: a further result of an earlier entry's call
    result: int  # its index among the call's results
    slots: Sequence[Any]  # of its operands; for a further result, that of the first result


def _entries(key: Sequence[Any]) -> Iterator[_Entry]:
    at = 0
    while at < len(key):
        call = key[at]
        if call is AGAIN:
            yield _Entry(None, key[at + 2], key[at + 1:at + 2])
            at += 3
            continue
        several = len(call.results) > 1
        first = at + 2 if several else at + 1
        at = first + len(call.operands)
        yield _Entry(call, key[first - 1] if several else 0, key[first:at])


def rebuild(key: Sequence[Any], leaves: Sequence[Value],
            numbers: Sequence[Value]) -> dict[int, Value]:
    """The graph values of a structure, by slot.

    Args:
        key: The structure.
        leaves: The values of the computed nodes.
        numbers: The values of Python numbers, each in the dtype that its call computes in.
    """
    values = {-1 - k: v for k, v in enumerate(leaves)}
    entries = list(_entries(key))
    results: dict[int, list[Value]] = {}  # of calls, by the slot of their first entry
    remaining = iter(numbers)
    own_numbers = [[next(remaining) for s in e.slots if s is NUMBER] for e in entries]
    stack = list(range(len(entries)))[::-1]
    while stack:
        slot = stack[-1]
        entry = entries[slot]
        missing = [s for s in entry.slots if s is not NUMBER and s not in values]
        if slot in values:
            stack.pop()
        elif missing:
            stack += missing
        elif entry.call is None:
            values[slot] = results[entry.slots[0]][entry.result]
        else:
            own = iter(own_numbers[slot])
            results[slot] = entry.call.build([next(own) if s is NUMBER else values[s]
                                              for s in entry.slots])
            values[slot] = results[slot][entry.result]
    return values


def number_dtypes(key: Sequence[Any]) -> list[Any]:
    """The dtype in which each number of a structure is computed."""
    return [d for entry in _entries(key) if entry.call is not None
            for d, s in zip(entry.call.dtypes, entry.slots, strict=True) if s is NUMBER]
