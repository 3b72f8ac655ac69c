"""Traces a function of tensors: calls it once, with tensors that have no values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ztorch.arrays.cells import Trace, tracing
from ztorch.arrays.node import TensorNode, placeholder
from ztorch.arrays.structure import Pending, walk
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.errors import ZtorchError
from ztorch.graph.tracing import NotTraced, traced
from ztorch.graph.trees import flatten, unflatten


class FunctionTrace(NamedTuple):
    """The graph of a function for arguments of certain shapes and dtypes."""

    tree: Any  # structure of the results
    nodes: list[TensorNode]  # the leaves of the results, then the new tensors of cells
    cells: Trace  # the cells that it reads and changes
    pending: Pending  # all nodes that the result nodes depend on
    captured: list[TensorNode]  # computed tensors that the function reads from its closure


def function_trace(function: Callable[..., Any], name: str, arguments: Sequence[Any],
                   shape: Any, fixes_weights: bool = False) -> FunctionTrace:
    """Calls a function with tensors that have no values.

    Args:
        function: The function.
        name: The function's name in errors.
        arguments: The leaves of its arguments: nodes of tensors, and constants that are compiled
            in.
        shape: The structure of its arguments: a tuple, and a dict of the keyword arguments.
        fixes_weights: Whether weights of layers are constants. Default: `False`.

    Raises:
        NotTraced: It does not return tensors, or it needs their values.
    """
    inside = [placeholder(a.spec) if isinstance(a, TensorNode) else a for a in arguments]
    tree = unflatten(shape, iter([tensor_of(a) if isinstance(a, TensorNode) else a
                                  for a in inside]))
    try:
        with tracing(fixes_weights) as cells:
            leaves, result_tree = flatten(traced(_spread(function), name, tree))
        if not leaves or not all(isinstance(y, Tensor) for y in leaves):
            other = next((y for y in leaves if not isinstance(y, Tensor)), None)
            raise NotTraced(f"{name} must give a tensor, or a tree of tensors, not {other!r}" + (
                "; it takes no tensor, so this is computed already: give it one as an argument"
                if not any(isinstance(a, TensorNode) for a in arguments) else ""))
    except ZtorchError as error:
        shown = ", ".join(repr(a.spec) if isinstance(a, TensorNode) else repr(a) for a in arguments)
        raise type(error)(f"{error}\n    in {name}({shown})") from None
    nodes = [*(y.node for y in leaves), *cells.written.values()]
    inputs = [a for a in inside if isinstance(a, TensorNode)] + [*cells.read.values()]
    pending = walk(nodes, inputs)
    return FunctionTrace(result_tree, nodes, cells, pending, pending.leaves[len(inputs):])


def _spread(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """The same function with one tree of all arguments as its argument."""
    return lambda tree: function(*tree[0], **tree[1])
