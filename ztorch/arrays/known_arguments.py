"""The arguments of a compiled function, sorted quickly: those of a call like an earlier one need no
checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ztorch.arrays.elements import node_of_array, operand_of
from ztorch.arrays.exchange import dtype_of
from ztorch.arrays.memory import memory
from ztorch.arrays.node import TensorNode, computed
from ztorch.arrays.placement import default_device, memory_of
from ztorch.arrays.realize import realize
from ztorch.arrays.specs import spec
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.dtypes import DType, f32, f64
from ztorch.graph.trees import TreeBranch

_QUICK = "?bBhHiIlLqQefd"  # NumPy's dtypes that tensors have, by their codes


class KnownArguments:
    """The leaves of a tree of arguments.

    Attributes:
        nodes: Its tensors, arrays and floats, in the order of `flatten`.
        kinds: What identifies the tree and the specs of its leaves.
        has_tensors: Whether a leaf is a tensor.
        has_arrays: Whether a leaf is an array.
        has_others: Whether a leaf is an array, a number or text.
        are_all: Whether all leaves are tensors, or arrays, beside numbers and text, and in one
            memory.
    """

    __slots__ = ("_on_host", "are_all", "has_arrays", "has_others", "has_tensors", "kinds",
                 "nodes")

    def __init__(self, args: tuple[Any, ...]):
        device = default_device()
        self.nodes: list[TensorNode] = []
        self.kinds: list[Any] = [device]
        self._on_host = memory_of(device) == "cpu"
        self.has_tensors = self.has_arrays = self.has_others = False
        self.are_all = self._add(args) and (not self.has_others or self._on_host) and not (
            self.has_tensors and self.has_arrays)

    @property
    def of_numpy(self) -> bool:
        """Whether the results are arrays: there are arguments, and none is a tensor."""
        return self.has_others and not self.has_tensors

    def _add(self, tree: Any) -> bool:
        nodes, kinds = self.nodes, self.kinds
        for x in tree:
            kind = type(x)
            if kind is Tensor:
                node = x.node
                nodes.append(node)
                kinds.append(own := node.spec)
                self.has_tensors = True
                if own.memory != "cpu":
                    self._on_host = False
            elif kind is list or kind is tuple:
                kinds += (kind, len(x))
                if not self._add(x):
                    return False
            elif kind is dict and all(type(k) is str for k in x):
                names = sorted(x)
                kinds += (kind, *names)
                if not self._add([x[k] for k in names]):
                    return False
            elif issubclass(kind, TreeBranch):
                kinds.append(kind)
                if not self._add([getattr(x, name) for name in kind._fields]):
                    return False
            elif not self._add_other(kind, x):
                return False
        return True

    def _add_other(self, kind: type, x: Any) -> bool:
        self.has_others = True
        if kind is np.ndarray and x.dtype.char in _QUICK and x.dtype.isnative:
            node = node_of_array(x, dtype_of(x.dtype), "cpu", copy=False)
            self.has_arrays = True
        elif kind is float:
            node = number_node(x, "cpu")
        else:
            self.kinds.append((kind, x))
            return kind is bool or kind is int or kind is str
        self.nodes.append(node)
        self.kinds.append(node.spec)
        return True


def number_node(x: float, place: str) -> TensorNode:
    """A node of a Python float: an input of the function."""
    kind: DType = f64 if place == "cpu" else f32
    block = memory(place).upload(kind.numpy.type(x))
    return computed(spec((), kind, place, number=True), block)


def computed_tensors(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Arguments with tensors instead of arrays, and with all their tensors computed. None if that
    changes nothing, and if they have no tensor: then the results are arrays."""
    pending, arrays = [], False
    for x in args:
        if type(x) is np.ndarray:
            arrays = True
        elif type(x) is Tensor and x.node.block is None:
            pending.append(x.node)
    if not (pending or arrays) or (like := _first_tensor(args)) is None:
        return None
    realize(pending)
    if not arrays:
        return args
    place = like.node.spec.memory
    return tuple([tensor_of(operand_of("", x, place, copy=False))
                  if type(x) is np.ndarray and x.dtype.char in _QUICK else x for x in args])


def _first_tensor(branches: Iterable[Any]) -> Tensor | None:
    """The first tensor in trees of tuples, lists and dicts."""
    for x in branches:
        if type(x) is Tensor:
            return x
        parts = x.values() if type(x) is dict else x if type(x) in (tuple, list) else ()
        if (inner := _first_tensor(parts)) is not None:
            return inner
    return None
