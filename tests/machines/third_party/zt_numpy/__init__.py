"""A backend as third parties write one: a device that NumPy plays.

Its language is the text of the kernel IR, which the templates beside this file spell, and its driver
hands the parsed kernels to the interpreter of the IR.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ztorch.backends.backend import Backend
from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceInfo, DeviceModule, KernelEntry, Launch
from ztorch.codegen.targets import Target
from ztorch.errors import DeviceError, OutOfMemory, VerifyError
from ztorch.ir.interpret import interpret
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ir.parse import parse

NAME = "numpydevice"
MEMORY = 1 << 30  # bytes
THREADS = 64  # of a workgroup


class Numpy(Backend):
    """Always there."""

    name = NAME
    languages = ("ir",)

    def refusal(self) -> str:
        return ""

    def devices(self) -> list[DeviceInfo]:
        return [DeviceInfo(0, f"NumPy {np.__version__}", "virtual", MEMORY, driver="third party")]

    def open(self, ordinal: int = 0) -> Device:
        return NumpyDevice(NAME, self.devices()[ordinal])


class NumpyDevice(Device):
    """A buffer is an array of bytes, a module a list of parsed kernels; work is done at once."""

    def _close(self) -> None: ...

    def _alloc(self, nbytes: int) -> np.ndarray:
        if self.allocated + nbytes > MEMORY:
            raise OutOfMemory(f"{self.id}: {nbytes:,} bytes, and {MEMORY - self.allocated:,} are left")
        words = np.zeros(-(-nbytes // 8), np.uint64)  # so that numbers of any dtype are aligned
        return words.view(np.uint8)[:nbytes]

    def _free(self, handle: Any) -> None: ...

    def _write(self, handle: np.ndarray, at: int, data: np.ndarray) -> None:
        handle[at:at + data.size] = data

    def _read(self, handle: np.ndarray, at: int, out: np.ndarray) -> None:
        out[...] = handle[at:at + out.size]

    def _copy(self, source: np.ndarray, source_at: int, target: np.ndarray, target_at: int, nbytes: int) -> None:
        target[target_at:target_at + nbytes] = source[source_at:source_at + nbytes]

    def _memory(self) -> tuple[int, int]:
        return MEMORY - self.allocated, MEMORY

    def _load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> Any:
        kernels = []
        for e in entries:
            try:
                kernels.append(parse(code[e.at:e.at + e.size].decode(errors="replace")))
            except VerifyError as error:
                raise DeviceError(f"{self.id}: kernel {e.name!r}: {error}") from None
        return kernels

    def _unload(self, handle: Any) -> None:
        handle.clear()

    def _record(self, module: DeviceModule, launches: tuple[Launch, ...]) -> Any:
        ready = []
        for launch in launches:
            kernel = module.handle[launch.entry]
            memories = [m for m in kernel.memories if m.space == "global"]
            buffers = {m.name: b.buffer.handle[b.at:b.at + b.nbytes].view(m.dtype.numpy)
                       for m, b in zip(memories, launch.bindings, strict=True)}
            ready.append((kernel, buffers, launch.grid))
        return ready

    def _drop(self, handle: Any) -> None:
        handle.clear()

    def _run(self, handle: Any) -> None:
        for kernel, buffers, grid in handle:
            interpret(kernel, buffers, grid=grid, races=False)

    def _synchronize(self) -> None: ...


BACKEND = Numpy()
TARGETS = (Target(NAME, ("ir",), "txt", Limits(0, 64, True, grid=GridLimits(threads=THREADS, compute_units=1)),
                  backend=NAME, stored_dtypes=(), one_module_per_kernel=True,
                  template_root=str(Path(__file__).parent / "templates")),)
