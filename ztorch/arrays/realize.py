"""Computes pending tensors: recorded nodes become a graph, and the graph one native call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.arrays.memory import Block, is_owned, memory, place_of
from ztorch.arrays.node import TensorNode, keeps_operands
from ztorch.arrays.placement import code_for, device_of_block, when_default_changes
from ztorch.arrays.programs import (
    find_calls_again,
    program_for,
    program_of,
)
from ztorch.arrays.quick_graphs import compute_again, learn
from ztorch.arrays.structure import needed_elsewhere, walk

when_default_changes.append(find_calls_again)


def realize(nodes: Sequence[TensorNode]) -> None:
    """Computes pending nodes: those in one memory by one native call.

    Intermediate nodes with other references are kept, so nothing is computed twice.
    """
    if len(nodes) == 1:
        if nodes[0].block is None:
            compute(nodes[0])
        return
    pending = dict.fromkeys([n for n in nodes if n.block is None])
    for place in {n.spec.memory for n in pending}:
        roots = [n for n in pending if n.spec.memory == place]
        if len(roots) == 1:
            compute(roots[0])
        elif not compute_again(roots):
            _compute(roots)


def compute(node: TensorNode) -> None:
    """Computes a pending node, and the other results of its call that are referenced."""
    call = node.call
    if call is not None and call.reshapes and _share_memory(node):
        return
    if node.siblings is not None and len(together := _pending_results(node)) > 1:
        if not compute_again(together):
            _compute(together)
        return
    if call is not None and device_of_block() is None and not keeps_operands():
        for native in call.natives.get(node.depth, ()):  # as `compute_again` does for several
            if native(node) is True:
                return
    if not (node.depth == 1 and _compute_call(node)):
        _compute((node,))


def _pending_results(node: TensorNode) -> list[TensorNode]:
    """The pending results of a node's call that are referenced, in order; one run of the call
    computes all of them."""
    results = [ref() for ref in node.siblings or ()]
    return [r for r in results if r is not None and r.block is None and r.call is not None]


def _share_memory(node: TensorNode) -> bool:
    """Lets a reshaped node share the memory of its operand, if the operand is computed and nobody
    writes to its memory. Returns whether it does."""
    operands = node.operands
    block = operands[0].block if operands else None  # another thread may have computed the node
    if block is None or not is_owned(block):
        return False
    if keeps_operands():
        node.block = block
    else:
        node.settle(block)
    return True


def _compute_call(node: TensorNode) -> bool:
    """Computes a node whose operands are all computed; faster than `_compute`. Returns whether it
    is such a node."""
    operands, call = node.operands, node.call  # in this order; see `settle`
    if call is None or node.siblings is not None:
        return False
    leaves: list[TensorNode] = []
    blocks: list[Block] = []  # keeps them alive, against other threads
    places: list[Any] = []
    numbers: list[Any] = []
    for o in operands:
        if type(o) is TensorNode:
            block = o.block
            if block is None:
                return False
            leaves.append(o)
            blocks.append(block)
            places.append(place_of(block))
        else:
            numbers.append(o)
    s = node.spec
    pool = memory(s.memory)
    result = pool.alloc(s.nbytes)
    program = program_of(call, code_for(s.memory))
    was_compiled = program.is_compiled
    program.run(pool, leaves, places, numbers, [result.place])
    if was_compiled and program.is_quick and node.block is None:
        learn(walk((node,)), program, apart=True)
    if keeps_operands():
        node.block = result
    else:
        node.settle(result)
    return True


def _compute(roots: Sequence[TensorNode]) -> None:
    """Computes nodes in one memory."""
    pending = walk(roots)
    results = pending.roots
    if not results:
        return
    slots = _ONE if len(results) == 1 else tuple(range(len(results)))
    if len(pending.order) > len(results) and (needed := needed_elsewhere(pending)):
        results = [*results, *needed]
        slots += tuple([pending.slots[n] for n in needed])
    place = results[0].spec.memory
    pool = memory(place)
    program = program_for(tuple(pending.key), slots, code_for(place))
    was_compiled = program.is_compiled
    blocks, places = [], []
    for node in results:
        block = pool.alloc(node.spec.nbytes)
        blocks.append(block)
        places.append(block.place)
    program.run(pool, pending.leaves, pending.places, pending.numbers, places)
    if was_compiled and len(results) == len(roots):
        learn(pending, program)
    if keeps_operands():
        for node, block in zip(results, blocks, strict=True):
            node.block = block
    else:
        for node, block in zip(results, blocks, strict=True):
            node.settle(block)


_ONE: tuple[int, ...] = (0,)  # the slots of a single result
