"""A program that calls another library of this machine, compiled once more with our kernels alone:
files hold this one, and depend on no library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from ztorch.host.memory import aligned
from ztorch.runtime.spec import ProgramSpec


class OwnKernels(NamedTuple):
    """The program with our kernels."""

    spec: ProgramSpec
    code: bytes
    constants: Iterable[np.ndarray]  # the values of each constant

    def params(self, states: Mapping[str, np.ndarray]) -> np.ndarray:
        """Its block of states and constants. States that it derives from others are computed when
        it is loaded.

        Args:
            states: The current states of the program that calls a library, by name.
        """
        block = aligned(self.spec.params_bytes)
        for name, state in self.spec.states.items():
            if not state.derived:
                state.write(block, states[name])
        for (offset, size), data in zip(self.spec.constants, self.constants, strict=True):
            block[offset:offset + size] = data.reshape(-1).view(np.uint8)
        return block
