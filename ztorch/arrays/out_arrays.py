"""Arrays of the caller that take the results of a compiled function: `out=`.

Tensors never change, so a call that has one returns new tensors, and takes no `out=`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ztorch.arguments import need_out_array, need_separate
from ztorch.arrays.elements import stored_array
from ztorch.arrays.exchange import shown
from ztorch.arrays.memory import Allocation, HostPool, Pool, place_of
from ztorch.arrays.node import TensorNode
from ztorch.arrays.specs import Spec
from ztorch.errors import ConfigError, Unsupported
from ztorch.graph.trees import LEAF, Shape, TreeBranch, flatten, spelled


def takes_out(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter `out` of its own.

    >>> takes_out(lambda x, **options: x), takes_out(lambda x: x)
    (True, False)
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C
        return False
    return any(p.name == "out" or p.kind is p.VAR_KEYWORD for p in parameters)


class OutArrays:
    """The arrays of `out=`, checked against the results of a function.

    Args:
        name: The function, for errors.
        out: An array, or a tree of them like that of the results.
        tree: The tree of the results.
        results: The leaves of the results.
    """

    def __init__(self, name: str, out: Any, tree: Shape, results: Sequence[Spec]):
        self._arrays, form = flatten(out)
        if _has_branches(tree):
            raise Unsupported(f"{name}(out=...): complex results on any device")
        if _of_tuples(form) != _of_tuples(tree):
            raise ConfigError(f"{name}(out=...) takes {spelled(tree).replace('tensor', 'array')}, "
                              f"as the function returns, not "
                              f"{spelled(form).replace('tensor', 'array')}")
        for array, s in zip(self._arrays, results, strict=True):
            need_out_array(array, s.shape, shown(np.empty(0, s.dtype.numpy), s.dtype).dtype)
        need_separate(self._arrays)

    def blocks(self, pool: Pool, leaves: Sequence[TensorNode]) -> list[Allocation]:
        """The memory of each result: that of its array if the code can write there, and reads
        nothing there; else a new block.

        Args:
            pool: The memory of the results.
            leaves: What the code reads, all computed.
        """
        read = []
        if isinstance(pool, HostPool):
            read = [(start, start + leaf.spec.nbytes) for leaf in leaves
                    if leaf.block is not None for start in (place_of(leaf.block),)]
        blocks = []
        for array in self._arrays:
            block = pool.lend(array) if isinstance(pool, HostPool) and array.size else None
            if block is None or any(block.place < end and start < block.place + block.nbytes
                                    for start, end in read):
                block = pool.alloc(array.nbytes)
            blocks.append(block)
        return blocks

    def take(self, nodes: Sequence[TensorNode]) -> None:
        """Copies the results that the code has not written to their arrays."""
        for array, node in zip(self._arrays, nodes, strict=True):
            if not isinstance(node.block, Allocation) or node.block.memory is not None:
                array[...] = shown(stored_array(node), node.spec.dtype)


def _of_tuples(shape: Shape) -> Shape:
    """The shape of a tree, with tuples in place of lists."""
    if shape is None or shape == LEAF:
        return shape
    kind, keys, parts = shape
    return dict if kind is dict else tuple, keys, tuple(map(_of_tuples, parts))


def _has_branches(shape: Shape) -> bool:
    return isinstance(shape, tuple) and (issubclass(shape[0], TreeBranch)
                                         or any(map(_has_branches, shape[2])))
