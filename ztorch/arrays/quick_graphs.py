"""Computes pending tensors whose structure ran before with one native function, which also checks
that they have this structure."""

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
    """Computes pending nodes, if their structure is known and no other reference keeps an
    intermediate node alive, which would be worth storing then. Returns whether it did.

    Args:
        roots: The nodes, each once.
    """
    if device_of_block() is None and not keeps_operands():
        call = roots[0].call
        if call is not None:
            for native in call.natives.get((roots[0].depth, len(roots)), ()):
                if native(*roots) is True:
                    return True
    return False


def learn(pending: Pending, program: ArrayProgram, apart: bool = False) -> None:
    """From now on, computes nodes of a structure by a native function, if that is possible.

    Args:
        pending: Nodes, before they are settled. All of their roots are pending.
        program: Their program, which ran with their numbers.
        apart: Whether the program has an input for each operand, even if two are one tensor.
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
    """How to recognize nodes of the same structure: the same calls, the same numbers, and the same
    operands shared. None if such nodes cannot be computed by a native function.

    Args:
        pending: Nodes, before they are computed. All of their roots are pending.
        apart: Whether the program has an input for each operand, even if two are one tensor.
    """
    at = slot_offsets(TensorNode)
    m = Matching(len(pending.roots))
    order = [*pending.roots]
    entries = {node: k for k, node in enumerate(order)}
    uses: dict[TensorNode, int] = {}  # of intermediate nodes, as operands
    results: dict[int, list[int]] = {}  # of one call: entries of their operands, by its id
    for node in order:  # which grows
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
    for own in results.values():  # other uses find all of them computed
        m.references(own[0], len(own))
    if not apart:
        m.blocks = [m.slot(entries[leaf], at["block"]) for leaf in pending.leaves]
    return m
