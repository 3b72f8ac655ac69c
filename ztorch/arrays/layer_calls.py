"""Layers and models called on tensors: `layer(x)` and `layer.stateless_call(...)`."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np

from ztorch.arrays.applying import common_memory
from ztorch.arrays.calls import Call
from ztorch.arrays.cells import Cell, is_tracing
from ztorch.arrays.elements import node_of_array, operand_of
from ztorch.arrays.layer_repeats import added_by, begun, mask_of
from ztorch.arrays.layer_settings import settings_of
from ztorch.arrays.node import TensorNode
from ztorch.arrays.realize import realize
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.specs import Spec, spec
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.arrays.value_functions import as_layer_input
from ztorch.arrays.weight_cells import cell_of
from ztorch.dtypes import DType, f32
from ztorch.errors import ConfigError, ShapeError, WeightsError
from ztorch.graph.narrow import products_of
from ztorch.graph.op import OPS, first_value, leaf
from ztorch.graph.rewrite import substituted
from ztorch.graph.trees import LEAF, flatten, unflatten
from ztorch.graph.value import Value
from ztorch.layers.context import Context, States
from ztorch.layers.layer import Layer
from ztorch.layers.own_policy import rounding_of
from ztorch.layers.plain_calls import adopt_attributes
from ztorch.layers.tree import LayerNode
from ztorch.layers.weight import Weight

VERSIONS = 256  # cached input specs of a layer
_ONE_TENSOR = flatten((("a tensor",), {}))[1]  # the structure of the arguments of most calls


class _Traced(NamedTuple):
    """A layer traced for inputs of certain specs."""

    call: Call  # (weights, inputs, masks, counters) -> (outputs, new weights, masks, new counters)
    tree: Any  # structure of the outputs
    masked: tuple[int, ...]  # indices of the outputs that have a mask
    added: int  # how many losses layers add, after the masks
    counters: list[Cell]  # seed and step of random numbers, and states of stateful layers
    changed: list[Cell]  # the cells that each call changes
    keepers: list[tuple[Layer, int]]  # stateful layers, and the batch size of their states
    assigned: list[int]  # the weights that each call changes, by their number


class _Memory:
    """The states of a stateful layer. Another batch size needs a reset first."""

    def __init__(self) -> None:
        self.rows: int | None = None  # batch size since the last reset
        self.cells: dict[tuple[str, Spec], Cell] = {}  # by name and spec of the state


_traced: weakref.WeakKeyDictionary[Layer, Recent[Any, _Traced]] = weakref.WeakKeyDictionary()
# The arguments and settings for which a layer was built.
_built: weakref.WeakKeyDictionary[Layer, Recent[Any, bool]] = weakref.WeakKeyDictionary()
_memories: weakref.WeakKeyDictionary[Layer, _Memory] = weakref.WeakKeyDictionary()


def call_layer(layer: Layer, inputs: Sequence[Any], *, training: bool | None = None,
               **keywords: Any) -> Any:
    """The output of a layer for tensors or arrays; see `Layer.__call__`."""
    fixed = {name: tuple(x) if isinstance(x, list) else x for name, x in keywords.items()
             if _is_fixed(x)}
    leaves, tree = flatten((tuple(inputs), {name: x for name, x in keywords.items()
                                            if name not in fixed}))
    labels = [f"input {k}" for k in range(len(leaves))]
    is_alone = training is None and not keywords and not is_tracing() and tree == _ONE_TENSOR
    repeats = begun(layer) if is_alone else None  # before the settings are read
    place = common_memory(f"layer {layer.name!r}", labels, leaves)
    arguments: _Arguments = unflatten(tree, iter([
        x if isinstance(x, Tensor) else tensor_of(
            as_layer_input(f"layer {layer.name!r}: {label}", x, place))
        for label, x in zip(labels, leaves, strict=True)]))
    settings = _build(layer, arguments, fixed)
    cells = [cell_of(w, place) for w in layer.weights]
    result = _called(layer, [cell.get() for cell in cells], arguments, training, place, settings,
                     fixed)
    added_by[layer] = result.added
    changed = [(cells[k], result.weights[k]) for k in result.assigned]
    if changed and not is_tracing():  # compute the outputs beside them, not once more later
        realize([*(y.node for y in flatten(result.outputs)[0]), *(node for _, node in changed)])
    for cell, node in changed:
        cell.set(node)
    if repeats is not None and result.repeated is not None:
        repeats.put(arguments[0][0].node.spec, result.repeated, cells)
    return result.outputs


def _is_fixed(x: Any) -> bool:
    """Whether `call` gets an argument as it is, not as a tensor: a flag, text, number or shape."""
    return isinstance(x, (bool, int, str)) or (
        isinstance(x, (list, tuple)) and bool(x) and all(isinstance(n, int) for n in x))


def reset_states(layer: Layer) -> None:
    """Sets the states of stateful layers to zero; see `Layer.reset_states`."""
    for _, inner in layer.walk():
        memory = _memories.get(inner)
        if memory is not None:
            memory.rows = None
            for (_, kind), cell in memory.cells.items():
                cell.set(_zeros(kind))


def added_losses(layer: Layer) -> list[Tensor]:
    """The losses that a layer and those inside it added in its last call on tensors."""
    return added_by.get(layer, [])


def _zeros(kind: Spec) -> TensorNode:
    return node_of_array(np.zeros(kind.shape), kind.dtype, kind.memory, copy=True)


def stateless_call(layer: Layer, trainable: Sequence[Any], non_trainable: Sequence[Any],
                   inputs: tuple[Any, ...], training: bool | None
                   ) -> tuple[Any, list[Tensor], list[Any]]:
    """The output of a layer with the given weights, its other weights after the call, and the
    losses that it adds; see `Layer.stateless_call`."""
    for weights in (trainable, non_trainable):
        if not isinstance(weights, (list, tuple)):
            raise WeightsError(f"layer {layer.name!r} takes its weights as lists of tensors, not "
                               f"{weights!r}")
    if not inputs:
        raise ConfigError(f"layer {layer.name!r} is called on nothing; give tensors after the "
                          "weights")
    values = [*trainable, *non_trainable, *flatten(inputs)[0]]
    place = common_memory(f"layer {layer.name!r}", [f"tensor {k}" for k in range(len(values))],
                          values)
    settings = _build(layer, (inputs, {}))
    by_weight: dict[Weight, TensorNode] = {}
    for kind, own, theirs in (("trainable", layer.trainable_weights, trainable),
                              ("non-trainable", layer.non_trainable_weights, non_trainable)):
        if len(own) != len(theirs):
            raise WeightsError(f"layer {layer.name!r} has {len(own)} {kind} weights, "
                               f"{len(theirs)} were given")
        for w, x in zip(own, theirs, strict=True):
            by_weight[w] = operand_of(f"weight {w.path!r}", x, place, copy=True)
            if by_weight[w].spec.shape != w.shape:
                raise WeightsError(f"weight {w.path!r} has shape {w.shape}, the given tensor "
                                   f"{by_weight[w].spec.shape}")
    weights = layer.weights
    outputs, after, _, added, _ = _called(layer, [by_weight[w] for w in weights], (inputs, {}),
                                       training, place, settings)
    new = dict(zip(weights, after, strict=True))
    penalties = [cast(Any, w.regularizer)(tensor_of(by_weight[w])) for w in layer.weights
                 if w.trains and w.regularizer is not None]
    return (outputs, [tensor_of(new[w]) for w in layer.non_trainable_weights],
            [*added, *penalties])


_Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # inputs and keywords
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def _build(layer: Layer, arguments: _Arguments, fixed: Mapping[str, Any] = _NOTHING
           ) -> tuple[Any, ...]:
    """Creates the weights of a layer, with a trace that computes nothing, unless it was built for
    such arguments before. `fixed` holds the keyword arguments that are not tensors. Returns the
    settings of the layer."""
    leaves, tree = flatten(arguments)
    for _, inner in layer.walk():  # users may have set other layers
        adopt_attributes(inner)
    key = tree, tuple((x.shape, x.dtype) for x in leaves), tuple(fixed.items())
    known = _built.setdefault(layer, Recent(VERSIONS))
    settings = settings_of(layer)
    if known.get((key, settings)):
        return settings
    values = [leaf("input", f"x{k}", x.shape, x.dtype) for k, x in enumerate(leaves)]
    inputs, keywords = unflatten(tree, iter(values))
    context = Context(states=States(data=False, root=layer.path))
    layer(*inputs, context=context, **keywords, **fixed)
    settings = settings_of(layer)
    known.put((key, settings), True)
    return settings


class _Result(NamedTuple):
    """The results of a call."""

    outputs: Any
    weights: list[TensorNode]  # all weights after the call
    assigned: list[int]  # those that the call changes, by their number
    added: list[Tensor]  # the losses that layers add
    repeated: Call | None  # the call, if it has one result and changes nothing


def _called(layer: Layer, weights: Sequence[TensorNode], arguments: _Arguments,
            training: bool | None, place: str, settings: tuple[Any, ...],
            fixed: Mapping[str, Any] = _NOTHING) -> _Result:
    """Calls a layer with these weights."""
    leaves, tree = flatten(arguments)
    own = [operand_of(f"layer {layer.name!r}", x, place, True) for x in leaves]
    masks = {k: mask_of[x] for k, x in enumerate(own) if x in mask_of}
    nodes = [*weights, *own, *masks.values()]
    specs = tuple(n.spec for n in nodes)
    versions = _traced.setdefault(layer, Recent(VERSIONS))
    key = tree, specs, training, tuple(masks), tuple(fixed.items()), settings
    traced = versions.get(key)
    if traced is None:
        traced = _trace(layer, specs, tree, training, place, tuple(masks), fixed)
        versions.put(key, traced)
    _need_same_rows(traced.keepers)
    results = record(traced.call, (*nodes, *(cell.get() for cell in traced.counters)))
    for cell, node in zip(traced.changed, results[len(results) - len(traced.changed):],
                          strict=True):
        cell.set(node)
    outputs = iter(map(tensor_of, results))
    tree_of_outputs = unflatten(traced.tree, outputs)
    new = [t.node for _, t in zip(weights, outputs, strict=False)]
    end = len(results) - len(traced.changed)
    first = end - traced.added - len(traced.masked)
    mask_of.update((results[k], results[first + n]) for n, k in enumerate(traced.masked))
    is_plain = traced.tree == LEAF and not (
        masks or traced.masked or traced.added or traced.counters or traced.assigned)
    return _Result(tree_of_outputs, new, traced.assigned,
                   [tensor_of(x) for x in results[end - traced.added:end]],
                   traced.call if is_plain else None)


def _trace(layer: Layer, specs: Sequence[Spec], tree: Any, training: bool | None, place: str,
           masked: tuple[int, ...], fixed: Mapping[str, Any]) -> _Traced:
    """The layer traced for inputs of these specs; `masked` are the indices of inputs with a
    mask."""
    count, inputs_end = len(layer.weights), len(specs) - len(masked)
    computed = next((s.dtype for s in specs[count:] if s.dtype.is_float), f32)
    rounding = rounding_of(layer, computed)
    states = States(computed, rounding, exact=True, root=layer.path, seed=layer.model_seed)
    context = Context(training=training, states=states)
    xs = [leaf("input", f"x{k}", s.shape, s.dtype)
          for k, s in enumerate(specs[count:inputs_end])]
    known_masks = [leaf("input", f"mask{k}", s.shape, s.dtype)
                   for k, s in zip(masked, specs[inputs_end:], strict=True)]
    context.masks.update((xs[k], mask) for k, mask in zip(masked, known_masks, strict=True))
    args, keywords = unflatten(tree, iter(xs))
    with products_of(rounding):
        outputs, shape = flatten(layer(*args, context=context, **keywords, **fixed))
    stored = [context.stored(w) for w in layer.weights]
    own = set(stored)
    counters = [s for s in states.leaves.values() if s not in own]
    changed = [s for s in counters if s in context.updates]
    masks = {k: context.masks[y] for k, y in enumerate(outputs) if y in context.masks}
    added = [*(OPS.mean(rows) for rows in context.losses), *context.penalties]
    roots = [*outputs, *(context.updates.get(s, s) for s in stored), *masks.values(), *added,
             *(context.updates.get(s, s) for s in changed)]

    # First values of states know the layer, which a call in a cache must not keep alive.
    inputs = [leaf("input", f"w{k}", s.shape, s.dtype) for k, s in enumerate((*stored, *counters))]
    roots = substituted(roots, dict(zip((*stored, *counters), inputs, strict=True)))
    inputs[count:count] = [*xs, *known_masks]

    def build(values: Sequence[Value]) -> list[Value]:
        return substituted(roots, dict(zip(inputs, values, strict=True)))

    cells = {s: _remembered(context.keepers[s], s, place) if s in context.keepers else
             _counter(s, place) for s in counters}
    kinds = (*specs, *(c.node.spec for c in cells.values()))
    dtypes: list[DType] = [*(computed for _ in stored), *(s.dtype for s in kinds[count:])]
    return _Traced(Call(layer.name, kinds, dtypes, build, place), shape, tuple(masks),
                   len(added), list(cells.values()),
                   [cells[s] for s in changed],
                   [(cast(Layer, keeper), s.shape[0]) for s, keeper in context.keepers.items()],
                   [k for k, s in enumerate(stored) if s in context.updates])


def _need_same_rows(keepers: Sequence[tuple[Layer, int]]) -> None:
    """Raises if a stateful layer has states of another batch size."""
    for keeper, rows in keepers:
        memory = _memories.setdefault(keeper, _Memory())
        if memory.rows not in (None, rows):
            raise ShapeError(f"layer {keeper.path!r} is stateful: it remembers states of "
                             f"{memory.rows} rows and is called on {rows}; call reset_states() "
                             "before another batch size")
        memory.rows = rows


def _remembered(keeper: LayerNode, state: Value, place: str) -> Cell:
    """The cell of a layer's state, initially zero."""
    cells = _memories.setdefault(cast(Layer, keeper), _Memory()).cells
    key = state.attrs["name"].rpartition("/")[2], spec(state.shape, state.dtype, place)
    if key not in cells:
        cells[key] = Cell(_zeros(key[1]))
    return cells[key]


def _counter(state: Value, place: str) -> Cell:
    """The cell of a counter with its initial value."""
    array = first_value(state).reshape(state.shape)
    return Cell(node_of_array(array, state.dtype, place, copy=True))
