"""Weights of layers: arrays on the host, which programs start from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import need_no_mask
from ztorch.errors import ConfigError, WeightsError
from ztorch.initializers import Initializer, Shape, stream
from ztorch.layers.tree import LayerNode


class Weight:
    """An array of a layer on the host. Its initial values are drawn when it is first read."""

    def __init__(self, layer: LayerNode, name: str, shape: Shape, initializer: Initializer,
                 trainable: bool):
        self.layer = layer
        self.name = name
        self.shape = shape
        self.initializer = initializer
        self.trainable = trainable
        self._value: np.ndarray | None = None

    @property
    def path(self) -> str:
        """The name in weight files and programs: `dense/kernel`."""
        return f"{self.layer.path}/{self.name}"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def trains(self) -> bool:
        """Whether an optimizer may change it."""
        return self.trainable and self.layer.trains

    @property
    def value(self) -> np.ndarray:
        if self._value is None:
            drawn = self.initializer(self.shape, stream(self.layer.model_seed, self.path))
            self._value = drawn.astype(np.float32)
        return self._value

    @value.setter
    def value(self, array: Any) -> None:
        self._value = self.checked(array)

    def checked(self, array: Any) -> np.ndarray:
        """A copy of the array as float32 or float64, or a WeightsError if it does not fit."""
        need_no_mask(f"weight {self.path!r}", array)
        numbers = np.asarray(array)
        if numbers.shape != self.shape:
            raise WeightsError(f"weight {self.path!r} has shape {self.shape}, the given array "
                               f"{numbers.shape}; use weights of a model with the same layers")
        if numbers.dtype.kind not in "fiu":
            raise WeightsError(f"weight {self.path!r} takes numbers, not {numbers.dtype}")
        # float64 stays, so that weights of a float64 program survive a round trip
        return numbers.astype(np.float64 if numbers.dtype == np.float64 else np.float32)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise ConfigError(f"weight {self.path!r} is not an array of numbers; weight.value holds "
                          "its initial values, and the call of a layer gets it as a tensor by "
                          f"context.read(self.{self.name})")

    def __repr__(self) -> str:
        return f"<weight {self.path} {self.shape}>"
