"""Weights of layers as cells: compiled functions read their current values, and a call may change
them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ztorch.arrays.cells import Cell, fixes_weights
from ztorch.arrays.elements import node_of_array
from ztorch.arrays.node import TensorNode
from ztorch.arrays.tensor import tensor_of
from ztorch.dtypes import f32
from ztorch.layers.weight import Home, Weight


class WeightCell(Cell):
    """The value of a weight in one memory. It is copied there when it has changed.

    Args:
        weight: The weight. The cell does not keep it alive.
        place: The memory.
    """

    __slots__ = ("_copy", "_place", "_weight")

    def __init__(self, weight: Weight, place: str):
        self._weight, self._place = weakref.ref(weight), place
        # The value of the weight, and a node that holds it; one attribute, for threads.
        self._copy: tuple[np.ndarray, TensorNode] | None = None

    @property
    def node(self) -> TensorNode:
        weight, copy = self._weight(), self._copy
        array = None if weight is None else weight.value
        if copy is None or (array is not None and array is not copy[0]):
            assert array is not None  # a cell is made for a weight that is in use
            self._copy = copy = array, node_of_array(array, f32, self._place, copy=True)
        return copy[1]

    @node.setter
    def node(self, new: TensorNode) -> None:
        weight = self._weight()
        if weight is not None:
            weight.value = tensor_of(new).numpy()

    @property
    def home(self) -> Home | None:
        """The program that has the weight."""
        weight = self._weight()
        return None if weight is None else weight.home

    def get(self) -> TensorNode:
        return self.node if fixes_weights() else super().get()


class _Nodes(NamedTuple):
    """The nodes of cells, and when they hold: after a change of weights on the host, and for
    versions of the programs that have the others."""

    after: object
    homes: list[tuple[weakref.ref[Home], object]]
    nodes: list[TensorNode]


class NodesOfNow:
    """The nodes of cells that others change, for a native function that takes them at each call.
    Those of weights are looked up again after a change alone.

    Args:
        cells: The cells.
    """

    __slots__ = ("_cells", "_known")

    def __init__(self, cells: Sequence[Cell]):
        self._cells = cells
        self._known = _Nodes(None, [], [])  # one attribute, for threads

    def get(self) -> list[TensorNode]:
        """The current nodes."""
        after, homes, nodes = self._known
        if after is Weight.last_change and all(
                (home := own()) is not None and home.version(None) == v for own, v in homes):
            return nodes
        after = Weight.last_change if all(
            isinstance(cell, WeightCell) for cell in self._cells) else None
        programs = {cell.home for cell in self._cells if isinstance(cell, WeightCell)} - {None}
        homes = [(weakref.ref(home), home.version(None)) for home in programs if home is not None]
        nodes = [cell.node for cell in self._cells]  # read after the versions
        self._known = _Nodes(after, homes, nodes)
        return nodes


_cells: weakref.WeakKeyDictionary[Weight, dict[str, WeightCell]] = weakref.WeakKeyDictionary()


def cell_of(weight: Weight, place: str) -> WeightCell:
    """The cell of a weight in a memory."""
    cells = _cells.setdefault(weight, {})
    if place not in cells:
        cells[place] = WeightCell(weight, place)
    return cells[place]
