"""The weights of a model in a program compiled from it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ztorch.dtypes import dtype
from ztorch.layers.weight import Weight
from ztorch.training.checkpoint import fit_state

if TYPE_CHECKING:
    from threading import Lock

    from ztorch.runtime.loaded_program import LoadedProgram


class ModelWeights:
    """Connects a model and its program: the program may be the home of the model's weights.

    It keeps no layer alive. A program that stores matrices in 16 bits is not a home, because values
    would lose precision.

    Args:
        executable: The loaded code with its parameters.
        training: Locked while the program trains.
        weights: The weights of the model by their names in the program.
    """

    def __init__(self, executable: LoadedProgram, training: Lock, weights: Mapping[str, Weight]):
        self._executable, self._training = executable, training
        self._weights = {name: weakref.ref(w) for name, w in weights.items()
                         if name in executable.states}
        self._exact = all(dtype(executable.states[name].dtype).bytes >= 4
                          for name in self._weights)
        self._taken = {name: w.version for name, w in self._alive()}  # the program's versions
        # The last change at which the program had all newest weights, and no other one was a home.
        self._settled: object = None

    def move_in(self) -> None:
        """Makes the program the home of all weights, with its current values. Training calls it as
        well. A program that is training remains their home: a callback may compile a model with the
        same layers."""
        self._executable.steps += 1
        if self._exact:
            for name, w in self._alive():
                if w.lives_in(self) or not w.home_trains:
                    w.move(self, name)

    def move_out(self) -> None:
        """Moves the weights that live here to the host, because the program is about to end."""
        for _, w in self._alive():
            if w.lives_in(self):
                w.move(None)

    def take(self) -> None:
        """Updates weights that changed elsewhere, so that the program has those of the model."""
        change = Weight.last_change
        if change is self._settled:
            return
        elsewhere = False
        for name, w in self._alive():
            if not w.lives_in(self):
                elsewhere |= w.home is not None
                if self._taken[name] != w.version:
                    self._taken[name] = w.version
                    self.write(name, w.value)
        self._settled = None if elsewhere else change

    # -- the program as a home ---------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._training.locked()

    def version(self, name: str | None) -> object:
        if self.busy:  # it may change at any moment
            return object()
        writes = self._executable.writes
        return self._executable.steps, (sum([*writes.values()]) if name is None else
                                        writes.get(name, 0))

    def read(self, name: str) -> np.ndarray:
        return self._executable.state(name)

    def write(self, name: str, array: np.ndarray) -> None:
        state = self._executable.states[name]
        self._executable.set_state(name, fit_state(name, array, dtype(array.dtype), state,
                                                   f"weight {name!r}"))

    def _alive(self) -> Iterator[tuple[str, Weight]]:
        for name, reference in self._weights.items():
            w = reference()
            if w is not None:
                yield name, w
