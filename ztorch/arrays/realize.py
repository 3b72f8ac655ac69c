"""Computes pending tensors: what was recorded becomes a graph, and the graph one native call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

from ztorch.arrays.memory import memory
from ztorch.arrays.node import TensorNode
from ztorch.arrays.placement import code_for
from ztorch.arrays.programs import program_for
from ztorch.arrays.structure import needed_elsewhere, walk

_keeps_operands: ContextVar[bool] = ContextVar("keeps_operands", default=False)


@contextlib.contextmanager
def operands_kept() -> Iterator[None]:
    """Inside, computed tensors still know what they were computed from, for differentiation."""
    token = _keeps_operands.set(True)
    try:
        yield
    finally:
        _keeps_operands.reset(token)


def keeps_operands() -> bool:
    """Whether a function is being differentiated."""
    return _keeps_operands.get()


def realize(nodes: Sequence[TensorNode]) -> None:
    """Computes pending nodes, all that lie in one memory by one native call.

    What they are computed from is kept where somebody else refers to it, so nothing is computed
    twice.
    """
    if len(nodes) == 1:
        if nodes[0].block is None:
            _compute(nodes, nodes[0].spec.memory)
        return
    pending = dict.fromkeys([n for n in nodes if n.block is None])
    for place in {n.spec.memory for n in pending}:
        _compute([n for n in pending if n.spec.memory == place], place)


def _compute(roots: Sequence[TensorNode], place: str) -> None:
    pending = walk(roots)
    results = pending.roots
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
    if _keeps_operands.get():
        for node, block in zip(results, blocks, strict=True):
            node.block = block
    else:
        for node, block in zip(results, blocks, strict=True):
            node.settle(block)


_ONE: tuple[int, ...] = (0,)  # the slots of a single result
