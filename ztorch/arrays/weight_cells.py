"""Weights of layers as cells: compiled functions read their current values, and a call may change
them."""

from __future__ import annotations

import weakref

import numpy as np

from ztorch.arrays.cells import Cell, fixes_weights
from ztorch.arrays.elements import node_of_array
from ztorch.arrays.node import TensorNode
from ztorch.arrays.tensor import tensor_of
from ztorch.dtypes import f32
from ztorch.layers.weight import Weight


class WeightCell(Cell):
    """The value of a weight in one memory. It is copied there when it has changed.

    Args:
        weight: The weight. The cell does not keep it alive.
        place: The memory.
    """

    __slots__ = ("_array", "_node", "_place", "_weight")

    def __init__(self, weight: Weight, place: str):
        self._weight, self._place = weakref.ref(weight), place
        self._array: np.ndarray | None = None  # the value that the node holds
        self._node: TensorNode

    @property
    def node(self) -> TensorNode:
        weight = self._weight()
        if weight is not None and (array := weight.value) is not self._array:
            self._node = node_of_array(array, f32, self._place, copy=True)
            self._array = array
        return self._node

    @node.setter
    def node(self, new: TensorNode) -> None:
        weight = self._weight()
        if weight is not None:
            weight.value = tensor_of(new).numpy()

    def get(self) -> TensorNode:
        return self.node if fixes_weights() else super().get()


_cells: weakref.WeakKeyDictionary[Weight, dict[str, WeightCell]] = weakref.WeakKeyDictionary()


def cell_of(weight: Weight, place: str) -> WeightCell:
    """The cell of a weight in a memory."""
    cells = _cells.setdefault(weight, {})
    if place not in cells:
        cells[place] = WeightCell(weight, place)
    return cells[place]
