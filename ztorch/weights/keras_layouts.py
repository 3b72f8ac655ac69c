"""The names of weights in Keras files. Shapes and order of the arrays are the same as ours.

A file names a layer by its class and a number in its model, such as `layers/dense_1`, and weights
by number. It also has the names of the layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch.layers.attention import MultiHeadAttention
from ztorch.layers.bidirectional import Bidirectional
from ztorch.layers.containers import TimeDistributed
from ztorch.layers.group_attention import GroupQueryAttention
from ztorch.layers.layer import Layer
from ztorch.layers.naming import snake_case
from ztorch.layers.nested import Container
from ztorch.layers.network import Network
from ztorch.layers.plain_calls import NOT_ATTRIBUTES
from ztorch.layers.preprocessing import Normalization
from ztorch.layers.recurrent import RecurrentLayer
from ztorch.layers.rnn import RNN, StackedRNNCells
from ztorch.layers.spectral import SpectralNormalization
from ztorch.layers.transformer import TransformerBlock
from ztorch.layers.weight import Weight
from ztorch.weights.keras_branches import flat, has_branches, is_plain_sequential
from ztorch.weights.keras_classes import is_user_defined
from ztorch.weights.modules import Entry, ModelPart

_BLOCK = {  # attributes of KerasHub's blocks
    "self_attention": "_self_attention_layer", "self_attention_norm": "_self_attention_layer_norm",
    "cross_attention": "_cross_attention_layer", "cross_attention_norm":
    "_cross_attention_layer_norm", "feedforward_norm": "_feedforward_layer_norm",
    "intermediate": "_feedforward_intermediate_dense", "output": "_feedforward_output_dense"}
_KERAS_CLASSES = {  # our classes that have another name in Keras
    "Model": "Functional", "GroupQueryAttention": "GroupedQueryAttention"}


def parts(model: Network) -> list[ModelPart]:
    """A model as the groups of a Keras file; names of layers are second names of a group."""
    walk = _attributes(model, "", "", set()) if model.own_call else _numbered(model, "", "")
    return [part for part in (_own(model, "", ""), *walk) if part.entries]


def _own(layer: Layer, path: str, name: str) -> ModelPart:
    """The weights that a user's class makes itself: in Keras those that train come first."""
    weights = sorted(layer.own_weights, key=lambda w: not w.trainable)
    return ModelPart(layer, (path, name), {str(k): Entry((w,)) for k, w in enumerate(weights)})


def _numbered(layer: Layer, path: str, name: str) -> Iterator[ModelPart]:
    """The layers inside a layer, each named by its class and a number."""
    counts: dict[str, int] = {}
    for inner in _flat(layer):
        kind = snake_case(_keras_class(inner))
        k = counts[kind] = counts.get(kind, -1) + 1
        yield from _walk(inner, f"{path}layers/{kind}{f'_{k}' if k else ''}",
                         f"{name}{inner.name}")


def _keras_class(layer: Layer) -> str:
    name = type(layer).__name__
    if name == "Sequential" and isinstance(layer, Network) and not is_plain_sequential(layer):
        name = "Model"
    return _KERAS_CLASSES.get(name, name)


def _flat(layer: Layer) -> Iterator[Layer]:
    """The layers of a model. Our nested branches are layers of the model in Keras."""
    if isinstance(layer, Network) and layer.own_call is None and any(
            map(has_branches, layer.adopted)):
        yield from flat(layer).layers
        return
    for inner in (layer.stands_for for layer in layer.adopted):
        if isinstance(inner, Container):
            yield from _flat(inner)
        else:
            yield inner


def _walk(layer: Layer, path: str, name: str) -> Iterator[ModelPart]:
    def part(weights: list[Weight], path: str = path, name: str = name) -> ModelPart:
        entries = {str(k): Entry((w,)) for k, w in enumerate(weights)}
        # Keras also stores the number of batches that adapt has read.
        counts = {"2": np.zeros((), np.int32)} if isinstance(layer, Normalization) else {}
        return ModelPart(layer, (path, name), entries, counts if entries else {})

    if isinstance(layer, MultiHeadAttention):
        for projection, weights in layer.projections.items():
            end = "attention_output" if projection == "output" else projection
            start = "_" if isinstance(layer, GroupQueryAttention) else ""
            yield part(weights, f"{path}/{start}{projection}_dense", f"{name}/{end}")
    elif isinstance(layer, RNN):
        yield from _cell(layer.cell, f"{path}/cell", f"{name}/{layer.cell.name}")
    elif isinstance(layer, RecurrentLayer):
        yield part(layer.own_weights, f"{path}/cell")
    elif isinstance(layer, Bidirectional):
        yield from _walk(layer.forward_way, f"{path}/forward_layer",
                         f"{name}/{layer.forward_way.name}")
        yield from _walk(layer.backward_way, f"{path}/backward_layer",
                         f"{name}/{layer.backward_way.name}")
    elif isinstance(layer, TimeDistributed):
        yield from _walk(layer.layer.stands_for, f"{path}/layer", f"{name}/{layer.layer.name}")
    elif isinstance(layer, SpectralNormalization):
        yield part([layer.kernel, layer.vector_u])  # the kernel is also a weight of the inner layer
        yield from _walk(layer.layer.stands_for, f"{path}/layer", f"{name}/{layer.layer.name}")
    elif isinstance(layer, TransformerBlock):
        for inner in layer.adopted:
            if inner.name in _BLOCK:
                yield from _walk(inner, f"{path}/{_BLOCK[inner.name]}", f"{name}/{inner.name}")
    elif is_user_defined(layer):
        yield _own(layer, path, name)
        yield from _attributes(layer, f"{path}/", f"{name}/", set())
    else:
        yield part(layer.own_weights)
        yield from _numbered(layer, f"{path}/", f"{name}/")


def _attributes(layer: Layer, path: str, name: str, visited: set[Layer]) -> Iterator[ModelPart]:
    """The layers in the attributes of a user-defined layer, in the order of their names, each
    once. Layers in lists are named by their class and a number."""
    members = {key: x for key, x in vars(layer).items() if key not in NOT_ATTRIBUTES}
    if isinstance(layer, Network):
        members["layers"] = layer.adopted  # as in Keras, which includes layers in attributes
    for key in sorted(members, key=lambda key: (key.startswith("_"), key)):
        yield from _layers_in(members[key], f"{path}{key}", name, visited)


def _layers_in(x: Any, path: str, name: str, visited: set[Layer]) -> Iterator[ModelPart]:
    if isinstance(x, Layer):
        if x not in visited:
            visited.add(x)
            yield from _walk(x.stands_for, path, f"{name}{x.name}")
        return
    counts: dict[str, int] = {}
    for item in (x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()):
        if isinstance(item, (Layer, list, tuple, dict)):
            kind = snake_case(_keras_class(item)) if isinstance(item, Layer) else "container"
            k = counts[kind] = counts.get(kind, -1) + 1
            yield from _layers_in(item, f"{path}/{kind}{f'_{k}' if k else ''}", name, visited)


def _cell(cell: Layer, path: str, name: str) -> Iterator[ModelPart]:
    """A cell, or each of stacked cells, named by its class and a number."""
    if not isinstance(cell, StackedRNNCells):
        yield from _walk(cell, path, name)
        return
    counts: dict[str, int] = {}
    for inner in cell.adopted:
        kind = snake_case(type(inner).__name__)
        k = counts[kind] = counts.get(kind, -1) + 1
        yield from _cell(inner, f"{path}/cells/{kind}{f'_{k}' if k else ''}",
                         f"{name}/{inner.name}")
