"""Nodes: tensors that are computed, or recorded and not yet computed."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ztorch.arrays.specs import Spec

if TYPE_CHECKING:
    from ztorch.arrays.calls import Call
    from ztorch.arrays.memory import Allocation

MAX_DEPTH = 200  # calls that may lie one upon the other before they are computed


class TensorNode:
    """A tensor as the recorder sees it: memory that holds it, or the call that gives it.

    Attributes:
        spec: Its shape, dtype and memory.
        block: Where its elements lie; None while it is pending.
        call: What computes it; None if nothing has to.
        operands: Nodes and numbers that the call takes.
        index: Which of the call's results it is.
        depth: Pending calls between it and what is computed, at most.
        siblings: Weak references to all results of its call; None if it is the only one.
    """

    __slots__ = ("__weakref__", "block", "call", "depth", "index", "operands", "siblings", "spec")

    def __init__(self, spec: Spec, block: Allocation | None = None, call: Call | None = None,
                 operands: tuple[Any, ...] = (), index: int = 0, depth: int = 0):
        self.spec = spec
        self.block = block
        self.call = call
        self.operands = operands
        self.index = index
        self.depth = depth
        self.siblings: list[weakref.ref[TensorNode]] | None = None

    def settle(self, block: Allocation) -> None:
        """Says where its elements lie now. What it was computed from may go."""
        self.block = block  # first: other threads read it before they follow the operands
        self.call = None
        self.operands = ()
        self.depth = 0


def placeholder(spec: Spec) -> TensorNode:
    """An argument of a function that is being compiled: it has no value."""
    return TensorNode(spec)


class Handle:
    """What a user holds of a node: the base of `Tensor`, for what must know tensors when it sees
    one."""

    __slots__ = ("node",)
    node: TensorNode
