"""Computes pending tensors: what was recorded becomes a graph, and the graph one native call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from ztorch.arrays.memory import Block, memory, place_of
from ztorch.arrays.node import TensorNode
from ztorch.arrays.placement import code_for, device_of_block, when_default_changes
from ztorch.arrays.programs import (
    find_calls_again,
    program_for,
    program_of,
    set_at_once,
)
from ztorch.arrays.structure import needed_elsewhere, walk

_keeps_operands: ContextVar[bool] = ContextVar("keeps_operands", default=False)
keeps_operands = _keeps_operands.get  # whether a function is being differentiated
when_default_changes.append(find_calls_again)


@contextlib.contextmanager
def operands_kept() -> Iterator[None]:
    """Inside, computed tensors still know what they were computed from, for differentiation."""
    token = _keeps_operands.set(True)
    try:
        yield
    finally:
        _keeps_operands.reset(token)


def realize(nodes: Sequence[TensorNode]) -> None:
    """Computes pending nodes, all that lie in one memory by one native call.

    What they are computed from is kept where somebody else refers to it, so nothing is computed
    twice.
    """
    if len(nodes) == 1:
        if nodes[0].block is None and not _compute_call(nodes[0]):
            _compute(nodes, nodes[0].spec.memory)
        return
    pending = dict.fromkeys([n for n in nodes if n.block is None])
    for place in {n.spec.memory for n in pending}:
        _compute([n for n in pending if n.spec.memory == place], place)


def _compute_call(node: TensorNode) -> bool:
    """Computes a node whose operands are computed: the quick way for one op at a time. Returns
    whether the node is of that kind."""
    operands, call = node.operands, node.call  # in this order; see `settle`
    if call is None or node.siblings is not None:
        return False
    leaves: list[TensorNode] = []
    blocks: list[Block] = []  # so that no other thread frees one
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
    again = program.is_compiled
    program.run(pool, leaves, places, numbers, [result.place])
    if again and call.at_once is None and device_of_block() is None:
        set_at_once(call, program, operands)
    if keeps_operands():
        node.block = result
    else:
        node.settle(result)
    return True


def _compute(roots: Sequence[TensorNode], place: str) -> None:
    pending = walk(roots)
    results = pending.roots
    if not results:
        return
    slots = _ONE if len(results) == 1 else tuple(range(len(results)))
    if len(pending.order) > len(results) and (kept := needed_elsewhere(pending)):
        results = [*results, *kept]
        slots += tuple([pending.slots[n] for n in kept])
    pool = memory(place)
    program = program_for(tuple(pending.key), slots, code_for(place))
    blocks, places = [], []
    for node in results:
        block = pool.alloc(node.spec.nbytes)
        blocks.append(block)
        places.append(block.place)
    program.run(pool, pending.leaves, pending.places, pending.numbers, places)
    if keeps_operands():
        for node, block in zip(results, blocks, strict=True):
            node.block = block
    else:
        for node, block in zip(results, blocks, strict=True):
            node.settle(block)


_ONE: tuple[int, ...] = (0,)  # the slots of a single result
