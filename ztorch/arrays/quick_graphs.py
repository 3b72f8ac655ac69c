"""Pending tensors of a structure that ran before: computed without a look at programs, without a
lock, and without a pool where the result is small."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from ztorch.arrays.memory import Block
from ztorch.arrays.node import TensorNode, keeps_operands
from ztorch.arrays.placement import device_of_block
from ztorch.arrays.programs import known_wholes

# What such a structure is known by: the number of its roots, and for each node, in the order of
# `structure.walk`, its call, the slots of its operands, and numbers. Empty: it never runs so.
Key = tuple[Any, ...]


def compute_again(roots: Sequence[TensorNode]) -> Key | None:
    """Computes pending nodes in one memory, if their structure is known and nobody else refers to a
    node on the way, which is worth keeping then. Returns None if it did, else what to know them by.

    This is one function, and takes half the time of `structure.walk`, since it runs for each small
    computation.

    Args:
        roots: The nodes, each once.
    """
    if roots[0].spec.memory != "cpu" or device_of_block() is not None or keeps_operands():
        return ()
    count = len(roots)
    key: list[Any] = [count]
    order = [*roots]
    slots = {roots[0]: 0}
    if count > 1:
        slots.update(zip(roots, range(count), strict=True))
    blocks: list[Block] = []  # so that no other thread frees one
    places: list[Any] = []
    uses = references = 0  # of the nodes on the way: as operands, and when they are met first
    for node in order:  # which grows
        operands, call = node.operands, node.call  # in this order; see `settle`
        if call is None or node.siblings is not None:
            return ()
        key.append(call)
        for o in operands:
            if type(o) is TensorNode:
                slot = slots.get(o)
                if slot is None:
                    block = o.block
                    if block is None:
                        slot = len(order)
                        references += getrefcount(o) - _OWN_REFERENCES
                        uses += 1
                        order.append(o)
                    else:
                        if type(block) is bytes:
                            places.append(block)
                        else:
                            blocks.append(block)
                            places.append(block.place)  # type: ignore[union-attr]
                        slot = -len(places)
                    slots[o] = slot
                elif slot >= count:
                    uses += 1
                key.append(slot)
            else:
                key.append(o or repr(o))  # 0.0 and -0.0 are two
    name = tuple(key)
    run = known_wholes.get(name)
    if run is None:
        return name
    if references != uses:
        return ()
    made = run(*places)
    if type(made) is list:
        for node, block in zip(roots, made, strict=True):
            node.settle(block)
    else:
        roots[0].settle(made)
    return None


def _own_references() -> int:
    """How many of them are ours: a variable and the argument of counting. It depends on the version
    of Python."""
    operands = object(),
    for o in operands:
        count = getrefcount(o)
    return count - len(operands)


_OWN_REFERENCES = _own_references()
