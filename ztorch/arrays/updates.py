"""Steps of optimizers on tensors: `optimizer.update(params, grads)`.

The states of an optimizer (slots, step counter, learning rate) are cells, so a function that
updates parameters can be compiled as a whole.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ztorch.arrays.calls import Call
from ztorch.arrays.cells import Cell, is_tracing
from ztorch.arrays.elements import node_from, node_of_array
from ztorch.arrays.memory import memory
from ztorch.arrays.node import TensorNode, computed
from ztorch.arrays.placement import default_device, memory_of
from ztorch.arrays.realize import realize
from ztorch.arrays.recording import record
from ztorch.arrays.specs import Spec, spec
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.arrays.weight_cells import cell_of
from ztorch.dtypes import to_storage
from ztorch.errors import ConfigError, DeviceError, ShapeError
from ztorch.graph.op import first_value, leaf
from ztorch.graph.rewrite import substituted
from ztorch.graph.trees import flatten, leaf_names, unflatten
from ztorch.graph.value import Graph, Value
from ztorch.layers.weight import Weight
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
    """The compiled step of an optimizer for parameters of certain specs."""

    call: Call  # (parameters, gradients, states) -> (parameters, changed states)
    states: list[Cell]
    changed: list[Cell]
    settings: dict[str, Any]  # attributes of the optimizer that are compiled into the call
    cells: dict[str, Cell]  # all states by name, including those of earlier settings


States = dict[str, np.ndarray]  # the states of one step by name


class Steps:
    """The steps of one optimizer, by the structure and specs of their parameters. A copy or pickle
    holds the states as arrays."""

    def __init__(self, saved: Sequence[States] = ()):
        self.known: dict[Any, Step] = {}
        self.saved = [*saved]  # states of steps whose parameters are not known yet
        self._must_fit = False  # whether other parameters are an error; a copy may start with them

    def find(self, optimizer: Optimizer, tree: Any, specs: tuple[Spec, ...]) -> Step:
        """The step for parameters in a tree."""
        step = self.known.get((tree, specs))
        settings = _settings(optimizer)
        if step is not None and step.settings != settings:  # as beta_1, changed between two steps
            step = self.known[tree, specs] = _step(optimizer, tree, specs, settings, step.cells)
        if step is None:
            step = _step(optimizer, tree, specs, settings, {})
            self._restore(step)
            self.known[tree, specs] = step
        return step

    def restore(self, saved: Sequence[States]) -> None:
        """Replaces the states of all steps. States that fit no step wait for later parameters."""
        self.saved, self._must_fit = [*saved], True
        for step in self.known.values():
            self._restore(step)

    def _restore(self, step: Step) -> None:
        """Sets the states of a step to the saved states that fit it."""
        if not self.saved:
            return
        own = {n: c for n, c in step.cells.items() if not isinstance(c, _Rate)}
        fitting = [s for s in self.saved if all(
            n in s and s[n].shape == c.node.spec.shape for n, c in own.items())]
        if not fitting and not self._must_fit:
            return
        if not fitting:
            raise ShapeError("the saved states of the optimizer belong to other parameters: "
                             + _misfit(own, self.saved[0]))
        states = min(fitting, key=len)  # the states of plain SGD, a counter, are part of all others
        self.saved = [s for s in self.saved if s is not states]
        for name, cell in own.items():
            kind = cell.node.spec
            cell.node = node_of_array(states[name], kind.dtype, kind.memory, copy=True)

    def __reduce__(self) -> tuple[Any, ...]:
        states = [{n: tensor_of(c.node).numpy() for n, c in step.cells.items()
                   if not isinstance(c, _Rate)}  # the optimizer stores its learning rate
                  for step in self.known.values()]
        return Steps, ([*self.saved, *states],)


def _misfit(cells: Mapping[str, Cell], states: States) -> str:
    """What saved states lack."""
    name, cell = next((n, c) for n, c in cells.items()
                      if n not in states or states[n].shape != c.node.spec.shape)
    shape = cell.node.spec.shape
    if name not in states:
        return f"they lack {name!r} of shape {shape}"
    return f"{name!r} has shape {states[name].shape}, and {shape} is needed"


def get_state(optimizer: Optimizer) -> list[dict[str, Tensor]]:
    """The states of an optimizer; see `Optimizer.get_state`."""
    steps = _steps_of(optimizer)
    return [*({n: Tensor(a) for n, a in states.items()} for states in steps.saved),
            *({n: tensor_of(c.get()) for n, c in step.cells.items() if not isinstance(c, _Rate)}
              for step in steps.known.values())]


def set_state(optimizer: Optimizer, state: Sequence[Mapping[str, Any]]) -> None:
    """Replaces the states of an optimizer; see `Optimizer.set_state`."""
    if is_tracing():
        raise ConfigError("set_state replaces an optimizer's states once; call it outside the "
                          "function that is compiled")
    if isinstance(state, (str, Mapping)) or not all(isinstance(s, Mapping) for s in state):
        raise ConfigError("set_state takes a list of dicts, as get_state returns it")
    _steps_of(optimizer).restore([
        {name: tensor_of(node_from(x, None, None, copy=True)).numpy() for name, x in s.items()}
        for s in state])


def _steps_of(optimizer: Optimizer) -> Steps:
    steps: Steps = vars(optimizer).setdefault("_steps", Steps())
    return steps


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
    if any(s.memory != specs[0].memory for s in specs):
        places = sorted({s.memory for s in specs})
        raise DeviceError("update takes parameters and gradients on one device, not on "
                          f"{' and '.join(places)}; copy them with .to({places[0]!r})")
    for w, g in zip(specs[:len(weights)], specs[len(weights):], strict=True):
        if w is not g:
            raise ShapeError(f"a gradient of {g!r} for a parameter of {w!r}; their shapes and "
                             "dtypes must be equal")
    step = _steps_of(optimizer).find(optimizer, tree, specs[:len(weights)])
    results = record(step.call, (*nodes, *(cell.get() for cell in step.states)))
    for cell, node in zip(step.changed, results[len(weights):], strict=True):
        cell.set(node)
    return unflatten(tree, map(tensor_of, results[:len(weights)]))


def apply(optimizer: Optimizer, gradients: Sequence[Any], weights: Sequence[Weight] | None) -> None:
    """Changes weights of layers by a step of an optimizer; see `Optimizer.apply`."""
    of = f"{type(optimizer).__name__}.apply"
    if weights is None:
        raise ConfigError(f"{of} outside of a train_step takes the weights, too: "
                          f"{of.lower()}(gradients, model.trainable_weights)")
    gradients, weights = list(gradients), list(weights)
    if len(gradients) != len(weights):
        raise ShapeError(f"{of} takes a gradient for each weight: there are {len(gradients)} "
                         f"gradients and {len(weights)} weights")
    if not weights:
        return
    cells = [cell_of(w, memory_of(default_device())) for w in weights]
    names = [f"{k}/{w.path}" for k, w in enumerate(weights)]
    new = update(optimizer, {name: tensor_of(cell.get()) for name, cell in zip(
        names, cells, strict=True)}, dict(zip(names, gradients, strict=True)))
    values: list[Any] = [x if w.constraint is None else w.constraint(x)
                         for x, w in zip(map(new.get, names), weights, strict=True)]
    nodes = [x.node for x in values]
    if not is_tracing():
        realize(nodes)
    for cell, node in zip(cells, nodes, strict=True):
        cell.set(node)


def _settings(optimizer: Optimizer) -> dict[str, Any]:
    """The attributes of an optimizer that users may set, except a learning rate that is a number:
    that is a cell."""
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
        before: Existing cells, by the names of their states.
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
    own = {*weights}
    states = [s for s in graph.leaves("state") if s not in own]
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
    """A cell with the initial value of a state."""
    data = first_value(state)
    block = memory(place).upload(to_storage(state.dtype, data))
    node = computed(spec(state.shape, state.dtype, place), block)
    return _Rate(optimizer, node) if state.attrs["name"] == RATE else Cell(node)
