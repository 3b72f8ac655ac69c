"""What programs learn is theirs: the layers that they were compiled from are told that they did, so
that nobody takes the weights there for the trained ones unwarned."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ztorch.layers.layer import Layer


class Learned:
    """Whether a program has learned other weights than a layer has. Layers and programs share it:
    so a program keeps no layer alive, and models that share layers know of each other's."""

    __slots__ = ("elsewhere",)

    def __init__(self) -> None:
        self.elsewhere = False


class Marks:
    """Those of all layers of a model."""

    def __init__(self, layers: Iterable[Layer]):
        self._all = [layer.learned for layer in layers]

    def set(self, elsewhere: bool) -> None:
        for mark in self._all:
            mark.elsewhere = elsewhere

    def warn(self, action: str, instead: str, stacklevel: int) -> None:
        """Says that the layers' own weights are used, where a program has trained ones."""
        if any(mark.elsewhere for mark in self._all):
            warnings.warn(f"{action} the model's weights as they were before its program was "
                          "trained; to have what was learned, call "
                          f"model.set_weights(program.get_weights()) first{instead}",
                          stacklevel=stacklevel + 1)
