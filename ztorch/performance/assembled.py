"""The figures of NVIDIA's assembler for kernels, where it is installed: registers and spills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ztorch.codegen import ptx
from ztorch.codegen.nvidia_programs import installed
from ztorch.codegen.targets import Target
from ztorch.compile.kernels import Kernels
from ztorch.errors import Unsupported
from ztorch.ir.kernel import Kernel


class RegisterFigures(NamedTuple):
    """Of a kernel, as assembled."""

    registers: int  # of a thread
    spilled: int  # bytes that a thread stores and loads for lack of registers
    shared_bytes: int  # of a workgroup, without the dynamic part


def assembled_figures(kernels: Mapping[int, Kernel], target: Target) -> dict[int, RegisterFigures]:
    """The figures of kernels, by the keys of `kernels`. Kernels that only ptxas assembles are left
    out where it is not installed.

    Raises:
        Unsupported: The target is not NVIDIA's, or nvJitLink is not installed.
    """
    if target.assembler != "ptx":
        raise Unsupported(f"{target.name}: only NVIDIA's assembler reports registers; omit "
                          "--assemble to estimate them")
    rendered = Kernels(target)
    numbers = {key: rendered.number(kernel) for key, kernel in kernels.items()}
    # Symbols of rendered kernels are unique: they end in a number.
    figures = {}
    for own in (False, True):
        some = [k for k in rendered.rendered if ptx.reallocates_registers(k["body"]) == own]
        if some and (installed("ptxas") or not own):  # which assembles some, and nothing else does
            figures.update(ptx.kernel_resources(ptx.cubin(rendered.module(some), target.chip)[1]))
    symbols = {key: rendered.rendered[n]["symbol"] for key, n in numbers.items()}
    return {key: RegisterFigures(*figures[s]) for key, s in symbols.items() if s in figures}
