"""Marks on layers whose program was trained.

A program keeps its own weights. Its model still has the old ones, so reading them there gives a
warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable


class Learned:
    """Whether a program has trained weights that differ from those of a layer.

    Layer and program share this object, so a program keeps no layer alive, and models that share a
    layer share its mark.
    """

    __slots__ = ("elsewhere",)

    def __init__(self) -> None:
        self.elsewhere = False


class Marks:
    """The marks of all layers of a model."""

    def __init__(self, marks: Iterable[Learned]):
        self._all = list(marks)

    def set(self, elsewhere: bool) -> None:
        """Sets or clears all marks."""
        for mark in self._all:
            mark.elsewhere = elsewhere

    def warn(self, action: str, instead: str, stacklevel: int) -> None:
        """Warns if a program has trained weights and those of the layers are used instead."""
        if any(mark.elsewhere for mark in self._all):
            warnings.warn(f"{action} the model's weights as they were before its program was "
                          "trained; to have what was learned, call "
                          f"model.set_weights(program.get_weights()) first{instead}",
                          stacklevel=stacklevel + 1)
