"""Starts a program where it was compiled to run."""

from __future__ import annotations

import numpy as np

from ztorch.errors import OutOfMemory
from ztorch.host import processor
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
    from ztorch.backends.registry import open_device  # a program on the CPU asks no driver
    from ztorch.runtime.remote import Remote

    return Remote(spec, code, params, open_device(spec.backend, ordinal))


def need_room(spec: ProgramSpec, ordinal: int | None = None) -> None:
    """Raises an error with sizes where a program cannot fit, before its weights are drawn. They
    exist twice on the host for a moment: as drawn, and in the block that the program takes."""
    on_host = spec.host_bytes + spec.params_bytes
    on_device = spec.params_bytes + spec.arena_bytes
    if spec.backend != "cpu":
        from ztorch.backends.registry import open_device

        device = open_device(spec.backend, ordinal)
        free, total = device.memory()
        if on_device > free:
            raise OutOfMemory(
                f"program {spec.name!r} needs {on_device:,} bytes of {device.id}, and {free:,} of "
                f"{total:,} are free: {spec.params_bytes:,} are for its weights (make layers "
                f"smaller), {spec.arena_bytes:,} for what its layers compute (compile with a "
                "smaller batch_size)")
        if device.info.kind in ("cpu", "integrated"):  # its memory is the host's
            on_host += on_device
    processor.need_memory(f"program {spec.name!r}", on_host,
                          "compile with a smaller batch_size, or make layers smaller")
