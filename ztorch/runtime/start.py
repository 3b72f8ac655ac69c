"""Starts a program where it was compiled to run."""

from __future__ import annotations

import numpy as np

from ztorch.runtime.executable import Executable
from ztorch.runtime.running import Running
from ztorch.runtime.spec import ProgramSpec


def start(spec: ProgramSpec, code: bytes, params: np.ndarray, threads: int | None = None,
          ordinal: int | None = None) -> Running:
    """The program on this CPU, or on a device of its backend.

    `params` are the first values of states and constants; the block becomes the program's own.
    `threads` is the most workers that a run on the CPU may use. `ordinal` is the number of the
    device; None means the first one.
    """
    if spec.backend == "cpu":
        return Executable(spec, code, params, threads, adopt=True)
    from ztorch.backends.registry import opened  # a program on the CPU asks no driver
    from ztorch.runtime.remote import Remote

    return Remote(spec, code, params, opened(spec.backend, ordinal))
