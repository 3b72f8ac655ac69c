"""The base class of layers around a layer, as in Keras."""

from __future__ import annotations

from typing import Any

from ztorch.layers.layer import Layer


class Wrapper(Layer, abstract=True):
    """A layer around another one. A subclass defines `call(self, x)`, which uses `self.layer`.

    Args:
        layer: The layer inside.
        **common: `name` and `trainable`.

    Examples:
        >>> import ztorch as zt
        >>> class Twice(zt.layers.Wrapper):
        ...     def call(self, x):
        ...         return 2.0 * self.layer(x)
        >>> Twice(zt.layers.Dense(3))(zt.Input((4,))).shape
        (None, 3)
    """

    def __init__(self, layer: Any, **common: Any):
        super().__init__(**common)
        self.layer = layer
