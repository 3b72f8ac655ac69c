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
from ztorch.arrays.elements import node_from, stored_array
from ztorch.arrays.memory import memory
from ztorch.arrays.node import TensorNode, computed
from ztorch.arrays.recording import record
from ztorch.arrays.specs import Spec, spec
from ztorch.arrays.tensor import tensor_of
from ztorch.dtypes import to_storage
from ztorch.errors import ConfigError, DeviceError, ShapeError
from ztorch.graph.op import first_value, leaf
from ztorch.graph.rewrite import substituted
from ztorch.graph.trees import flatten, leaf_names, unflatten
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
            self._node = computed(own, memory(own.memory).upload(number))
        return self._node


class Step(NamedTuple):
    """The step of one optimizer for parameters of certain specs."""

    call: Call  # (parameters, gradients, states) -> (parameters, changed states)
    states: list[Cell]
    changed: list[Cell]
    settings: dict[str, Any]  # of the optimizer, which the call has compiled in
    cells: dict[str, Cell]  # all states by name, with those of earlier settings


class Steps:
    """The steps of one optimizer, by the parameters they take. Copies and pickles of it hold the
    states as arrays."""

    def __init__(self, states: dict[Any, list[np.ndarray]] | None = None):
        self.known: dict[Any, Step] = {}
        self._restored = states or {}  # states of steps that are not known yet

    def find(self, optimizer: Optimizer, tree: Any, specs: tuple[Spec, ...]) -> Step:
        """The step for parameters in a tree."""
        step = self.known.get((tree, specs))
        settings = _settings(optimizer)
        if step is not None and step.settings != settings:  # as beta_1, changed between two steps
            step = self.known[tree, specs] = _step(optimizer, tree, specs, settings, step.cells)
        if step is None:
            step = self.known[tree, specs] = _step(optimizer, tree, specs, settings, {})
            restored = self._restored.pop(_portable(tree, specs), ())
            for cell, array in zip(step.states, restored, strict=False):
                if not isinstance(cell, _Rate):  # the optimizer holds that
                    own = cell.node.spec
                    cell.node = computed(own, memory(own.memory).upload(array))
        return step

    def __reduce__(self) -> tuple[Any, ...]:
        states = {_portable(*key): [stored_array(cell.node).copy() for cell in step.states]
                  for key, step in self.known.items()}
        return Steps, ({**self._restored, **states},)


def _portable(tree: Any, specs: Sequence[Spec]) -> tuple[Any, ...]:
    """The name of a step in another process."""
    return tree, tuple((s.shape, s.dtype.long, s.memory) for s in specs)


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
    if any(s.memory != specs[0].memory for s in specs):
        places = sorted({s.memory for s in specs})
        raise DeviceError(f"update takes parameters of one device, not of {' and '.join(places)}")
    steps: Steps = vars(optimizer).setdefault("_steps", Steps())
    step = steps.find(optimizer, tree, specs[:len(weights)])
    results = record(step.call, (*nodes, *(cell.get() for cell in step.states)))
    for cell, node in zip(step.changed, results[len(weights):], strict=True):
        cell.set(node)
    return unflatten(tree, map(tensor_of, results[:len(weights)]))


def _settings(optimizer: Optimizer) -> dict[str, Any]:
    """All that users may set of an optimizer, but a learning rate that is a number: a cell."""
    return {name: x for name, x in vars(optimizer).items() if name != "_steps" and not (
        name == "learning_rate" and isinstance(x, (int, float)))}


def _step(optimizer: Optimizer, tree: Any, specs: Sequence[Spec], settings: dict[str, Any],
          before: dict[str, Cell]) -> Step:
    """The step of an optimizer.

    Args:
        optimizer: The optimizer.
        tree: The tree of its parameters.
        specs: Their specs.
        settings: The result of `_settings`.
        before: Cells that it has already, by the names of their states.
    """
    place = specs[0].memory
    weights = [leaf("state", name, s.shape, s.dtype)
               for name, s in zip(leaf_names(tree), specs, strict=True)]
    slopes = [leaf("input", f"g{k}", s.shape, s.dtype) for k, s in enumerate(specs)]
    count = leaf("state", "optimizer/step", (), "int32", np.int32(0))
    updates = optimizer.new_values(weights, slopes, count)
    new = [updates[w] for w in weights]
    changed = [s for s in updates if s not in weights]
    graph = Graph({f"y{k}": v for k, v in enumerate([*new, *(updates[s] for s in changed)])})
    known = {*weights}
    states = [s for s in graph.leaves("state") if s not in known]
    cells = {s: before.get(s.attrs["name"]) or _cell(optimizer, s, place)
             for s in dict.fromkeys([*states, *changed])}

    def build(values: Sequence[Value]) -> list[Value]:
        leaves = [*weights, *slopes, *cells]
        return substituted(graph.roots, dict(zip(leaves, values, strict=True)))

    kinds = (*specs, *specs, *(c.node.spec for c in cells.values()))
    call = Call(type(optimizer).__name__, kinds, [s.dtype for s in kinds], build, place)
    return Step(call, list(cells.values()), [cells[s] for s in changed], settings,
                {**before, **{s.attrs["name"]: cell for s, cell in cells.items()}})


def _cell(optimizer: Optimizer, state: Value, place: str) -> Cell:
    """The cell of a state, with its first value."""
    data = first_value(state)
    block = memory(place).upload(to_storage(state.dtype, data))
    node = computed(spec(state.shape, state.dtype, place), block)
    return _Rate(optimizer, node) if state.attrs["name"] == RATE else Cell(node)
