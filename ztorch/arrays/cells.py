"""Cells: state that functions of tensors read and change, such as the slots of an optimizer.

While a function is compiled, each cell that it reads becomes an input, and each cell that it
changes becomes an output. The compiled function reads and updates the cells at each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ztorch.arrays.node import TensorNode, placeholder
from ztorch.graph.tracing import NotTraced


class Cell:
    """One tensor that can be replaced."""

    __slots__ = ("node",)

    def __init__(self, node: TensorNode):
        self.node = node

    def get(self) -> TensorNode:
        """The current tensor; in a function that is being compiled, the one at the time of the
        call."""
        trace = _trace.get()
        return self.node if trace is None else trace.get(self)

    def set(self, node: TensorNode) -> None:
        """Replaces the tensor with one of the same spec."""
        trace = _trace.get()
        if trace is None:
            self.node = node
        else:
            trace.written[self] = node


class Trace:
    """The cells that a function reads and changes while it is being compiled.

    Args:
        fixes_weights: Whether weights of layers are constants, not cells. Default: `False`.
    """

    def __init__(self, fixes_weights: bool = False) -> None:
        self.fixes_weights = fixes_weights
        self.read: dict[Cell, TensorNode] = {}  # by cell: its placeholder
        self.written: dict[Cell, TensorNode] = {}  # by cell: its new tensor

    def get(self, cell: Cell) -> TensorNode:
        if cell in self.written:
            return self.written[cell]
        if cell not in self.read:
            self.read[cell] = placeholder(cell.node.spec)
        return self.read[cell]


_trace: ContextVar[Trace | None] = ContextVar("trace", default=None)


@contextmanager
def tracing(fixes_weights: bool = False) -> Iterator[Trace]:
    """Compiles a function inside this `with` block; yields the trace of the cells that it uses.

    Args:
        fixes_weights: Whether weights of layers are constants, as in a file. Default: `False`.
    """
    trace = Trace(fixes_weights)
    token = _trace.set(trace)
    try:
        yield trace
    finally:
        _trace.reset(token)


def is_tracing() -> bool:
    """Whether a function is being compiled."""
    return _trace.get() is not None


def fixes_weights() -> bool:
    """Whether a function is being compiled with the weights of now."""
    trace = _trace.get()
    return trace is not None and trace.fixes_weights


def need_known(label: str) -> None:
    """Raises an error where a function is being compiled that reads weights at each call."""
    if is_tracing() and not fixes_weights():
        raise NotTraced(f"{label} is asked for its numbers while a function is compiled, which "
                        "would keep them for ever; compute with the weight itself, or pass it on: "
                        "it is a tensor of its value at each call")
