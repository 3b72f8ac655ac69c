"""Where the order of channels shows in weights.

PyTorch's images have their channels first, ours mostly last. A Flatten between a convolution and a
Dense layer therefore gives features in another order, and with it the rows of that layer's kernel;
a Reshape from features to an image does the same to columns. This file finds those layers.
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
    """For each layer the image that its input features were, or its output features will be, where
    the other framework has that image's channels first; None where the order is the same."""

    def __init__(self, model: Network, flatten_from: str | None = None):
        if flatten_from not in (None, *ORDERS):
            raise ConfigError(f"flatten_from={flatten_from!r} must be one of {', '.join(ORDERS)}, "
                              "or None to find out")
        rows = model.traced_layers()
        self._given = flatten_from
        self._layers = {row.layer.path: row.layer for row in rows}
        self._inputs = {row.layer: _outside(row.layer, row.nodes) for row in rows}
        self._columns: dict[Layer, Shape] = {}
        if flatten_from != "channels_last":
            for row in rows:
                if isinstance(row.layer, SpatialLayer) and not row.layer.channels_first:
                    for x in self._inputs[row.layer]:
                        self._mark_columns(x)

    def rows(self, layer: Layer) -> Shape | None:
        """The image whose elements the layer's input features are."""
        found = (self._image_behind(x) for x in self._inputs.get(layer, ()))
        return next((image for image in found if image), None)

    def columns(self, layer: Layer) -> Shape | None:
        """The image that the layer's output features become."""
        return self._columns.get(layer)

    def first(self, layer: Layer) -> bool:
        """Whether the layer's input has its channels first, over there."""
        return any(self._is_image(x) for x in self._inputs.get(layer, ()))

    def _of(self, v: Value) -> Layer | None:
        return self._layers.get(v.layer)

    def _image_behind(self, v: Value) -> Shape | None:
        for u in self._same_features(v):
            layer = self._of(u)
            if u.op.name == "reshape" and isinstance(layer, Flatten | Reshape):
                source = u.args[0]
                turned = isinstance(layer, Flatten) and layer.data_format == "channels_first"
                if u.rank == 2 and source.rank > 2 and (
                        self._given != "channels_last" if turned else self._is_image(source)):
                    return source.shape[1:]
        return None

    def _same_features(self, v: Value) -> Iterable[Value]:
        """v and what it was made of, feature by feature."""
        seen, stack = {v}, [v]
        while stack:
            u = stack.pop()
            yield u
            layer = self._of(u)
            scales = isinstance(layer, ScaledNormalization)
            if layer is not None and layer.own_weights and not scales:
                continue  # mixes the features
            for a in u.args:
                if a not in seen and (a.shape == u.shape or _other_steps(layer, u, a)):
                    seen.add(a)
                    stack.append(a)

    def _is_image(self, v: Value) -> bool:
        """Whether the other framework has this value with its channels first."""
        if self._given is not None:
            return self._given == "channels_first"
        seen, stack = {v}, [v]
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
                if a not in seen and (a.rank == u.rank or _other_steps(layer, u, a)):
                    seen.add(a)
                    stack.append(a)
        return False

    def _mark_columns(self, x: Value) -> None:
        """Finds the Reshape that made features an image, and who made those features."""
        for u in self._same_features(x):
            if u.op.name == "reshape" and isinstance(self._of(u), Reshape) and u.args[0].rank == 2:
                for f in self._same_features(u.args[0]):
                    layer = self._of(f)
                    if layer is not None and layer.own_weights:
                        self._columns[layer] = u.shape[1:]


def _other_steps(layer: Layer | None, u: Value, a: Value) -> bool:
    """Whether u is a with the steps of sequences in the batch, or apart from it again."""
    return (isinstance(layer, TimeDistributed) and u.op.name == "reshape"
            and a.shape[-1:] == u.shape[-1:])


def _outside(layer: Layer, nodes: Iterable[Value]) -> list[Value]:
    """What the layer's own nodes take from others: its inputs."""
    own = set(nodes)

    def given(v: Value) -> bool:
        return v.attrs["role"] == "input" if v.op.kind == "leaf" else v not in own

    return list(dict.fromkeys(a for v in nodes for a in v.args if given(a)))


def to_first(a: np.ndarray, image: Shape | None, axis: int) -> np.ndarray:
    """The elements of one axis, those of an image with channels last, with channels first.

    >>> to_first(np.arange(6), (1, 3, 2), 0)
    array([0, 2, 4, 1, 3, 5])
    """
    if image is None:
        return a
    apart = a.reshape(*a.shape[:axis], *image, *a.shape[axis + 1:])
    moved = np.moveaxis(apart, axis + len(image) - 1, axis)
    return moved.reshape(a.shape)
