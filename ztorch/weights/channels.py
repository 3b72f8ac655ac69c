"""Finds the layers whose weights depend on the order of channels.

PyTorch's images have channels first, ours mostly last. So a Flatten after a convolution returns
features in another order, and the rows of the next Dense kernel are in that order. A Reshape from
features to an image does the same to the columns of the kernel before it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ztorch.errors import ConfigError
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.containers import TimeDistributed
from ztorch.layers.layer import Layer
from ztorch.layers.network import Network
from ztorch.layers.normalization import ScaledNormalization
from ztorch.layers.reshaping import Flatten, Reshape
from ztorch.layers.spatial import SpatialLayer

ORDERS = ("channels_first", "channels_last")


class Channels:
    """The images that the features of layers are flattened from, or reshaped to, if they have
    channels first in the other framework.

    Args:
        model: The model.
        flatten_from: The order of channels in the file; None: derived from the layers.
            Default: `None`.
    """

    def __init__(self, model: Network, flatten_from: str | None = None):
        if flatten_from not in (None, *ORDERS):
            raise ConfigError(f"flatten_from={flatten_from!r} must be one of {', '.join(ORDERS)}, "
                              "or None, to derive it from the layers")
        rows = model.traced_layers()
        self._flatten_from = flatten_from
        self._layers = {row.layer.path: row.layer for row in rows}
        self._inputs = {row.layer: _inputs_of(row.layer, row.nodes) for row in rows}
        self._columns: dict[Layer, Shape] = {}
        if flatten_from != "channels_last":
            for row in rows:
                if isinstance(row.layer, SpatialLayer) and not row.layer.channels_first:
                    for x in self._inputs[row.layer]:
                        self._mark_columns(x)

    def rows(self, layer: Layer) -> Shape | None:
        """The image that the input features of a layer are flattened from; None: their order is the
        same."""
        images = (self._image_behind(x) for x in self._inputs.get(layer, ()))
        return next((image for image in images if image), None)

    def columns(self, layer: Layer) -> Shape | None:
        """The image that the output features of a layer are reshaped to; None: the same order."""
        return self._columns.get(layer)

    def first(self, layer: Layer) -> bool:
        """Whether the input of a layer has its channels first in the other framework."""
        return any(self._is_image(x) for x in self._inputs.get(layer, ()))

    def _of(self, v: Value) -> Layer | None:
        return self._layers.get(v.layer)

    def _image_behind(self, v: Value) -> Shape | None:
        for u in self._same_features(v):
            layer = self._of(u)
            if u.op.name == "reshape" and isinstance(layer, Flatten | Reshape):
                source = u.args[0]
                if u.rank != 2 or source.rank <= 2:
                    continue
                if isinstance(layer, Flatten) and layer.data_format == "channels_first":
                    channels_first = self._flatten_from != "channels_last"
                else:
                    channels_first = self._is_image(source)
                if channels_first:
                    return source.shape[1:]
        return None

    def _same_features(self, v: Value) -> Iterable[Value]:
        """v, and the values from which it is computed without mixing features."""
        visited, stack = {v}, [v]
        while stack:
            u = stack.pop()
            yield u
            layer = self._of(u)
            scales = isinstance(layer, ScaledNormalization)
            if layer is not None and layer.own_weights and not scales:
                continue  # mixes the features
            for a in u.args:
                if a not in visited and (a.shape == u.shape or _moves_steps(layer, u, a)):
                    visited.add(a)
                    stack.append(a)

    def _is_image(self, v: Value) -> bool:
        """Whether a value has its channels first in the other framework."""
        if self._flatten_from is not None:
            return self._flatten_from == "channels_first"
        visited, stack = {v}, [v]
        while stack:
            u = stack.pop()
            layer = self._of(u)
            if isinstance(layer, SpatialLayer):
                if not layer.channels_first:
                    return True
                continue
            if layer is None or isinstance(layer, Flatten | Reshape) or (
                    layer.own_weights and not (isinstance(layer, ScaledNormalization)
                                               or layer.own_weights[0].name == "alpha")):
                continue
            for a in u.args:
                if a not in visited and (a.rank == u.rank or _moves_steps(layer, u, a)):
                    visited.add(a)
                    stack.append(a)
        return False

    def _mark_columns(self, x: Value) -> None:
        """Records the layers whose output features a Reshape turns into an image."""
        for u in self._same_features(x):
            if u.op.name == "reshape" and isinstance(self._of(u), Reshape) and u.args[0].rank == 2:
                for f in self._same_features(u.args[0]):
                    layer = self._of(f)
                    if layer is not None and layer.own_weights:
                        self._columns[layer] = u.shape[1:]


def _moves_steps(layer: Layer | None, u: Value, a: Value) -> bool:
    """Whether u is a with the steps of sequences merged into the batch, or split off again."""
    return (isinstance(layer, TimeDistributed) and u.op.name == "reshape"
            and a.shape[-1:] == u.shape[-1:])


def _inputs_of(layer: Layer, nodes: Iterable[Value]) -> list[Value]:
    """The inputs of a layer: the operands of its nodes that other layers compute."""
    members = set(nodes)

    def comes_from_outside(v: Value) -> bool:
        return v.attrs["role"] == "input" if v.op.kind == "leaf" else v not in members

    return list(dict.fromkeys(a for v in nodes for a in v.args if comes_from_outside(a)))


def to_first(a: np.ndarray, image: Shape | None, axis: int) -> np.ndarray:
    """Reorders an axis with the elements of an image from channels last to channels first.

    >>> to_first(np.arange(6), (1, 3, 2), 0)
    array([0, 2, 4, 1, 3, 5])
    """
    if image is None:
        return a
    pixels = a.reshape(*a.shape[:axis], *image, *a.shape[axis + 1:])
    moved = np.moveaxis(pixels, axis + len(image) - 1, axis)
    return moved.reshape(a.shape)
