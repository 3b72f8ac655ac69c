"""Calls of a layer that repeat an earlier one, recorded without asking what the layer consists of.

A call remembers the attributes of the layer and of those inside it. While they are the same
objects, and those that can change inside have the same contents, the next call on a tensor of the
same shape is the same call, with the weights of now.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from ztorch import dispatch
from ztorch.arrays.calls import Call
from ztorch.arrays.cells import Cell, is_tracing
from ztorch.arrays.layer_settings import DERIVED, contents, has_own_code
from ztorch.arrays.node import Handle, TensorNode
from ztorch.arrays.placement import default_device, memory_of
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.specs import Spec
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.arrays.value_functions import as_layer_input
from ztorch.arrays.weight_cells import NodesOfNow
from ztorch.dtypes import DType
from ztorch.graph.value import current_layer
from ztorch.layers.layer import Layer
from ztorch.layers.tree import LayerNode
from ztorch.layers.weight import Weight, tracing

NAME = "_repeats"  # the attribute of a layer that holds its Repeats
_CACHED = 256  # calls of a layer, by the shape of the input
# The losses that the last call of a layer added.
added_by: weakref.WeakKeyDictionary[Layer, list[Tensor]] = weakref.WeakKeyDictionary()
# The mask of a tensor that a layer returned, for the next layer. Ops do not propagate it.
mask_of: weakref.WeakKeyDictionary[TensorNode, TensorNode] = weakref.WeakKeyDictionary()


class _KnownLayer(NamedTuple):
    """A layer, with the attributes that it had."""

    attributes: dict[str, Any]  # of now
    values: list[Any]
    adopted: list[Any]
    own_weights: list[Any]

    def holds(self) -> bool:
        """Whether it has the same attributes, inner layers and weights."""
        now = self.attributes
        return (_same(now.values(), self.values) and _same(now["adopted"], self.adopted)
                and _same(now["own_weights"], self.own_weights))


def _same(now: Any, before: list[Any]) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


class Repeats:
    """The calls of a layer that may be repeated, for its attributes of now.

    It is an attribute of the layer, so that both are collected together.

    Args:
        layer: The layer; its class and those of inner layers are of this package.

    Examples:
        >>> import ztorch as zt
        >>> dense = zt.layers.Dense(2)
        >>> y = dense(zt.ones((1, 3)))
        >>> repeats = Repeats(dense)
        >>> repeats.hold(), setattr(dense, "activation", "relu"), repeats.hold()
        (True, None, False)
    """

    __slots__ = ("_calls", "_contents", "_empty", "_open", "_parts", "layer")

    def __init__(self, layer: Layer):
        self.layer = layer  # a shallow copy of it has the same attributes
        own = {**vars(layer), NAME: self}
        self._parts = [
            _KnownLayer(vars(inner), [*(own if inner is layer else vars(inner)).values()],
                        [*inner.adopted], [*inner.own_weights]) for _, inner in layer.walk()]
        settings = [x for part in self._parts for name, x in part.attributes.items()
                    if name not in DERIVED and not _is_closed(x)]
        self._empty = [x for x in settings if type(x) is dict and not x]
        # No key: whatever is inside, the settings of a layer do not depend on it.
        self._open = [x for x, key in zip(settings, contents(settings), strict=True)
                      if key is not None and (type(x) is not dict or x)]
        self._contents = contents(self._open)
        self._calls: Recent[Spec, tuple[Call, NodesOfNow]] = Recent(_CACHED)  # by spec of input
        vars(layer)[NAME] = self  # now that it is complete, for threads

    def __reduce__(self) -> Any:
        return type(None), ()  # copies of the layer, also in files, begin anew

    def hold(self) -> bool:
        """Whether nothing has changed."""
        return all(part.holds() for part in self._parts) and not any(self._empty) and (
            not self._open or contents(self._open) == self._contents)

    def put(self, kind: Spec, call: Call, cells: Sequence[Cell]) -> None:
        """Keeps a call of (weights, input) with one result, for an input of a spec."""
        self._calls.put(kind, (call, NodesOfNow(cells)))

    def repeated(self, node: TensorNode) -> Tensor | None:
        """The result for an input, or None if there was no such call."""
        known = self._calls.get(node.spec)
        if known is None or (mask_of and node in mask_of):
            return None
        call, weights = known
        if self.layer in added_by:
            added_by[self.layer] = []
        return tensor_of(record(call, (*weights.get(), node))[0])


def _is_closed(x: Any) -> bool:
    """Whether an attribute has no contents that change. Layers and weights are parts of their
    own."""
    if type(x) is tuple:
        return all(map(_is_closed, x))
    return x is None or isinstance(x, (bool, int, float, str, DType, LayerNode, Weight, Repeats))


def begun(layer: Layer) -> Repeats | None:
    """Repeats of a layer for its attributes of now, to keep its next call; None if it has code of
    users, which may read anything."""
    repeats = vars(layer).get(NAME)
    if repeats is not None and repeats.layer is layer and repeats.hold():
        return repeats
    return None if has_own_code(layer) else Repeats(layer)


def call_again(layer: Any, inputs: tuple[Any, ...], keywords: dict[str, Any],
               context: Any) -> Tensor | None:
    """The output of a layer for one tensor or array, if this repeats an earlier call; else None."""
    if len(inputs) != 1 or keywords or context is not None:
        return None
    repeats = vars(layer).get(NAME)
    if repeats is None or repeats.layer is not layer or tracing.get() is not None or (
            current_layer() or is_tracing() or not repeats.hold()):
        return None
    x = inputs[0]
    if isinstance(x, Handle):
        return repeats.repeated(x.node)
    if type(x) is not np.ndarray:
        return None
    return repeats.repeated(as_layer_input(f"layer {layer.name!r}: input 0", x,
                                           memory_of(default_device())))


dispatch.call_again = call_again
