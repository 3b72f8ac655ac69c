"""Nodes: tensors that are computed, or recorded and pending."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ztorch.arrays.specs import Spec

if TYPE_CHECKING:
    from ztorch.arrays.calls import Call
    from ztorch.arrays.memory import Block


class TensorNode:
    """A tensor inside the recorder: the memory that holds it, or the call that computes it.

    There is no `__init__`: calling one takes longer than the rest of recording. The functions below
    create nodes.

    Attributes:
        spec: The shape, dtype and memory.
        block: The memory of its elements; None while it is pending.
        call: The call that computes it; None if it is computed.
        operands: The nodes and numbers that are operands of the call.
        index: The index among the call's results.
        depth: The length of the longest chain of pending calls that it depends on.
        siblings: Weak references to all results of the call; None if there is only one.
    """

    __slots__ = ("__weakref__", "block", "call", "depth", "index", "operands", "siblings", "spec")

    spec: Spec
    block: Block | None
    call: Call | None
    operands: tuple[Any, ...]
    index: int
    depth: int
    siblings: list[weakref.ref[TensorNode]] | None

    def settle(self, block: Block) -> None:
        """Sets the memory of its elements and drops its operands."""
        self.block = block  # other threads read the block first, then the operands, then the call
        self.call = None
        self.operands = ()
        self.depth = 0


def computed(spec: Spec, block: Block) -> TensorNode:
    """A node whose elements are in a block."""
    node = TensorNode()
    node.spec = spec
    node.block = block
    node.call = node.siblings = None
    node.operands = ()
    node.index = node.depth = 0
    return node


def pending(spec: Spec, call: Call, operands: tuple[Any, ...], index: int,
            depth: int) -> TensorNode:
    """A node that is a result of a call."""
    node = TensorNode()
    node.spec = spec
    node.block = node.siblings = None
    node.call = call
    node.operands = operands
    node.index = index
    node.depth = depth
    return node


def placeholder(spec: Spec) -> TensorNode:
    """An argument of a function that is being compiled; it has no value."""
    node = TensorNode()
    node.spec = spec
    node.block = node.call = node.siblings = None
    node.operands = ()
    node.index = node.depth = 0
    return node


class Handle:
    """A user's handle of a node. It is the base class of `Tensor`, for modules that must recognize
    tensors but cannot import it."""

    __slots__ = ("node",)
    node: TensorNode


_keeps_operands: ContextVar[bool] = ContextVar("keeps_operands", default=False)
keeps_operands = _keeps_operands.get  # whether a function is being differentiated


@contextlib.contextmanager
def operands_kept() -> Iterator[None]:
    """In this `with` block, computed tensors keep the calls that computed them, for
    differentiation."""
    token = _keeps_operands.set(True)
    try:
        yield
    finally:
        _keeps_operands.reset(token)
