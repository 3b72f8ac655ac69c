"""Loads a program on the CPU or on the device that it was compiled for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ztorch.errors import OutOfMemory
from ztorch.host import processor
from ztorch.runtime.executable import Executable
from ztorch.runtime.loaded_program import LoadedProgram
from ztorch.runtime.spec import ProgramSpec

if TYPE_CHECKING:
    from ztorch.runtime.first_values import FirstValues


def start(spec: ProgramSpec, code: bytes, params: np.ndarray, threads: int | None = None,
          ordinal: int | None = None, first: FirstValues | None = None) -> LoadedProgram:
    """Loads a program on this CPU, or on a device of its backend.

    Args:
        spec: The program.
        code: Its code.
        params: The first values of states and constants. The program takes over the block.
        threads: The largest number of workers of a run on the CPU. Default None: the setting, or
            one for each usable core.
        ordinal: The number of the device. Default None: the first one.
        first: First values that params lack: on a CPU, they are drawn when something needs them.
            Default None: it has all.
    """
    if spec.backend == "cpu":
        return Executable(spec, code, params, threads, adopt=True, first=first)
    if first is not None:
        first.write(params)
    from ztorch.backends.registry import open_device  # not needed on the CPU
    from ztorch.runtime.remote import Remote

    return Remote(spec, code, params, open_device(spec.backend, ordinal))


def need_room(spec: ProgramSpec, ordinal: int | None = None) -> None:
    """Raises an error with sizes if a program does not fit, before its weights are initialized.

    The weights exist twice on the host for a moment: as initialized, and in the block of params.
    """
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
                f"smaller), {spec.arena_bytes:,} for the results of its layers (compile with a "
                "smaller batch_size)")
        if device.info.kind in ("cpu", "integrated"):  # its memory is the host's
            on_host += on_device
    processor.need_memory(f"program {spec.name!r}", on_host,
                          "compile with a smaller batch_size, or make layers smaller")
