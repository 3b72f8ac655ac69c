"""Base class of the layers that take other layers as positional arguments."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ztorch.config import described
from ztorch.errors import ConfigError
from ztorch.layers.core import Input
from ztorch.layers.layer import Layer

if TYPE_CHECKING:
    from typing_extensions import Self


class Container(Layer, abstract=True):
    """Base class of layers that take inner layers one by one, and store them as a list in the
    config."""

    layers_are = "layers"  # the key of the list in the config

    def __init__(self, *layers: Layer, **common: Any):
        super().__init__(**common)
        if not layers and not self.takes_many:
            raise ConfigError(f"{type(self).__name__} needs {self.layers_are}, such as Dense(10)")
        for layer in layers:
            self.adopt(layer)

    def adopt(self, spec: Any, reserved: Collection[str] = (), attribute: str = "") -> Layer:
        layer = super().adopt(spec, reserved, attribute)
        if isinstance(layer, Input):
            raise ConfigError(f"layer {self.name!r} takes no Input: the enclosing model has one")
        return layer

    @property
    def layers(self) -> list[Layer]:
        """The inner layers."""
        return list(self.adopted)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(),
                self.layers_are: [described(layer, layer.name) for layer in self.layers]}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        rest = dict(config)
        layers = rest.pop(cls.layers_are, None)
        try:
            if not isinstance(layers, list):
                raise TypeError(f"it has no list of {cls.layers_are}")
            inspect.signature(cls).bind(*layers, **rest)
        except TypeError as error:
            raise ConfigError(f"this config does not describe a {cls.__name__}: {error}") from None
        return cls(*layers, **rest)
