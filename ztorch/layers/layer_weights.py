"""The weights of a layer and its inner layers, as lists and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.errors import WeightsError
from ztorch.layers.weight import Weight


class LayerWeights:
    """The part of a layer that lists, copies and replaces its weights."""

    name: str
    path: Any

    @property
    def weights(self) -> list[Weight]:
        """All weights."""
        raise NotImplementedError

    @property
    def trainable_weights(self) -> list[Weight]:
        """The weights that an optimizer may change."""
        return [w for w in self.weights if w.trains]

    @property
    def non_trainable_weights(self) -> list[Weight]:
        """The other weights: those of frozen layers, and moving statistics."""
        return [w for w in self.weights if not w.trains]

    @property
    def variables(self) -> list[Weight]:
        """All weights. There are no other variables."""
        return self.weights

    @property
    def trainable_variables(self) -> list[Weight]:
        """`trainable_weights`."""
        return self.trainable_weights

    @property
    def non_trainable_variables(self) -> list[Weight]:
        """`non_trainable_weights`."""
        return self.non_trainable_weights

    def get_weights(self) -> list[np.ndarray]:
        """Copies of all weights, in Keras' order; empty before the layer is built."""
        return [w.numpy() for w in self.weights]

    @checked
    def set_weights(self, weights: Sequence[Any]) -> None:
        """Replaces all weights, or none if an array does not fit.

        Args:
            weights: Arrays in the order of `get_weights`, of this layer or of a program.

        Raises:
            WeightsError: The number of arrays or a shape is wrong.
        """
        current, kind = self.weights, "layer" if self.path else "model"
        if not isinstance(weights, Iterable):
            raise WeightsError("set_weights takes a list of arrays, in the order of get_weights, "
                               f"not {weights!r}")
        if len(weights := list(weights)) != len(current):
            raise WeightsError(f"{kind} {self.name!r} has {len(current)} weights, not "
                               f"{len(weights)}; use the weights of a model with the same layers")
        checked_ = [w.checked(array) for w, array in zip(current, weights, strict=True)]
        for w, array in zip(current, checked_, strict=True):  # only after all were checked
            w.value = array

    def count_params(self) -> int:
        """The number of elements of all weights."""
        return sum(w.size for w in self.weights)
