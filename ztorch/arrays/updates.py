"""Steps of optimizers on tensors: `optimizer.update(params, grads)`.

The states of an optimizer (slots, step counter, learning rate) are cells, so a function that
updates parameters can be compiled as a whole.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ztorch.arrays.calls import Call
from ztorch.arrays.cells import Cell
from ztorch.arrays.elements import node_from
from ztorch.arrays.memory import memory
from ztorch.arrays.node import TensorNode
from ztorch.arrays.recording import record
from ztorch.arrays.specs import Spec, spec
from ztorch.arrays.tensor import tensor_of
from ztorch.arrays.trees import flatten, unflatten
from ztorch.dtypes import to_storage
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.op import leaf
from ztorch.graph.rewrite import substituted
from ztorch.graph.value import Graph, Value
from ztorch.optimizers.optimizer import Optimizer

RATE = "optimizer/learning_rate"


class _Rate(Cell):
    """The learning rate, which users may change between calls."""

    __slots__ = ("_node", "_optimizer", "_rate")

    def __init__(self, optimizer: Optimizer, node: TensorNode):
        self._optimizer = weakref.ref(optimizer)
        self._rate = optimizer.learning_rate
        self._node = node

    @property
    def node(self) -> TensorNode:  # type: ignore[override]
        optimizer, own = self._optimizer(), self._node.spec
        if optimizer is not None and optimizer.learning_rate != self._rate:
            self._rate = optimizer.learning_rate
            number = to_storage(own.dtype, np.asarray(self._rate, own.dtype.working))
            self._node = TensorNode(own, memory(own.memory).upload(number))
        return self._node


class Step(NamedTuple):
    """What one optimizer does to parameters of certain specs."""

    call: Call  # (parameters, gradients, states) -> (parameters, changed states)
    states: list[Cell]
    changed: list[Cell]


_steps: weakref.WeakKeyDictionary[Optimizer, dict[Any, Step]] = weakref.WeakKeyDictionary()


def update(optimizer: Optimizer, params: Any, grads: Any) -> Any:
    """The parameters after a step of an optimizer; see `Optimizer.update`."""
    weights, tree = flatten(params)
    slopes, other = flatten(grads)
    if tree != other:
        raise ShapeError("update takes a gradient for each parameter, in the same tree")
    if not weights:
        raise ConfigError("update takes at least one parameter")
    nodes = [node_from(x, None, None, copy=True) for x in (*weights, *slopes)]
    specs = tuple(n.spec for n in nodes)
    for w, g in zip(specs[:len(weights)], specs[len(weights):], strict=True):
        if w is not g:
            raise ShapeError(f"a gradient of {g!r} for a parameter of {w!r}; they must be alike")
    steps = _steps.setdefault(optimizer, {})
    step = steps.get((tree, specs))
    if step is None:
        step = steps[tree, specs] = _step(optimizer, specs[:len(weights)])
    results = record(step.call, (*nodes, *(cell.get() for cell in step.states)))
    for cell, node in zip(step.changed, results[len(weights):], strict=True):
        cell.set(node)
    return unflatten(tree, map(tensor_of, results[:len(weights)]))


def _step(optimizer: Optimizer, specs: Sequence[Spec]) -> Step:
    place = specs[0].memory
    weights = [leaf("state", f"w{k}", s.shape, s.dtype) for k, s in enumerate(specs)]
    slopes = [leaf("input", f"g{k}", s.shape, s.dtype) for k, s in enumerate(specs)]
    count = leaf("state", "optimizer/step", (), "int32", np.int32(0))
    updates = optimizer.apply(weights, slopes, count)
    new = [updates[w] for w in weights]
    changed = [s for s in updates if s not in weights]
    graph = Graph({f"y{k}": v for k, v in enumerate([*new, *(updates[s] for s in changed)])})
    known = {*weights}
    states = [s for s in graph.leaves("state") if s not in known]
    cells = {s: _cell(optimizer, s, place) for s in dict.fromkeys([*states, *changed])}

    def build(values: Sequence[Value]) -> list[Value]:
        leaves = [*weights, *slopes, *cells]
        return substituted(graph.roots, dict(zip(leaves, values, strict=True)))

    kinds = (*specs, *specs, *(c.node.spec for c in cells.values()))
    call = Call(type(optimizer).__name__, kinds, [s.dtype for s in kinds], build, place)
    return Step(call, list(cells.values()), [cells[s] for s in changed])


def _cell(optimizer: Optimizer, state: Value, place: str) -> Cell:
    """The cell of a state, with its first value."""
    data = np.asarray(state.attrs["data"])
    block = memory(place).upload(to_storage(state.dtype, data))
    node = TensorNode(spec(state.shape, state.dtype, place), block)
    return _Rate(optimizer, node) if state.attrs["name"] == RATE else Cell(node)
