"""Computes pending tensors with a native function, if their structure was computed before. The
function itself checks the structure."""

from __future__ import annotations

from collections.abc import Sequence

from ztorch.arrays.node import TensorNode, keeps_operands
from ztorch.arrays.placement import device_of_block
from ztorch.arrays.programs import ArrayProgram, may_know_natives, set_known
from ztorch.arrays.quick_calls import Output
from ztorch.arrays.structure import Pending
from ztorch.backends.matching import Matching
from ztorch.backends.python_calls import slot_offsets


def compute_again(roots: Sequence[TensorNode]) -> bool:
    """Computes pending nodes if their structure is known. An intermediate node with other
    references is worth storing; then the general path computes the nodes. Returns whether they are
    computed.

    Args:
        roots: The nodes, without duplicates.
    """
    if device_of_block() is None and not keeps_operands():
        call = roots[0].call
        if call is not None:
            for native in call.natives.get((roots[0].depth, len(roots)), ()):
                if native(*roots) is True:
                    return True
    return False


def learn(pending: Pending, program: ArrayProgram, apart: bool = False) -> None:
    """Registers a native function that computes nodes of this structure from now on, if possible.

    Args:
        pending: The structure of nodes that are not settled yet.
        program: Their program, which ran with their numbers.
        apart: Whether the program has an input for each operand, even if two are the same tensor.
            Default: `False`.
    """
    if pending.roots and program.is_quick and may_know_natives() and device_of_block() is None and (
            not keeps_operands()) and (matching := structure_of(pending, apart)):
        root = pending.roots[0]
        native = program.native(pending.numbers, matching,
                                [Output(node.spec) for node in pending.roots])
        if native is not None and root.call is not None:
            count = len(pending.roots)
            set_known(root.call, root.depth if count == 1 else (root.depth, count), native)


def structure_of(pending: Pending, apart: bool) -> Matching | None:
    """How to recognize nodes of the same structure: equal calls and numbers, and operands shared in
    the same way. None if a native function cannot compute such nodes.

    Args:
        pending: The structure of nodes that are not computed yet.
        apart: Whether the program has an input for each operand, even if two are the same tensor.
    """
    at = slot_offsets(TensorNode)
    m = Matching(len(pending.roots))
    order = [*pending.roots]
    entries = {node: k for k, node in enumerate(order)}
    uses: dict[TensorNode, int] = {}  # how often each intermediate node is an operand
    # By the id of a call's operands: for each of its results, the entry of the operands.
    results: dict[int, list[int]] = {}
    for node in order:  # grows during the loop
        operands, call = node.operands, node.call  # in this order; see `settle`
        if call is None:
            return None
        m.same(m.slot(entries[node], at["call"]), call)
        all_operands = m.slot(entries[node], at["operands"])
        if node.siblings is not None:
            m.number(m.slot(entries[node], at["index"]), node.index)
            own = results.setdefault(id(operands), [])
            own.append(all_operands)
            if len(own) > 1:
                m.one(all_operands, own[0])
                continue
        for x, entry in zip(operands, m.sequence_items(all_operands, operands), strict=True):
            if type(x) is not TensorNode:
                m.number(entry, x)
                continue
            slot = pending.slots[x]
            if slot >= len(pending.roots):
                uses[x] = uses.get(x, 0) + 1
            if apart:
                m.blocks.append(m.slot(entry, at["block"]))
            elif x in entries:
                m.one(entry, entries[x])
            else:
                entries[x] = entry
                if slot >= 0:
                    order.append(x)
    for node, count in uses.items():
        m.references(entries[node], count)
    for own in results.values():  # all results of a call are computed together
        m.references(own[0], len(own))
    if not apart:
        m.blocks = [m.slot(entries[leaf], at["block"]) for leaf in pending.leaves]
    return m
