"""The registers and spills of kernels as NVIDIA's assembler reports them, if it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ztorch.codegen import nvrtc, ptx
from ztorch.codegen.nvidia_programs import installed
from ztorch.codegen.targets import Target
from ztorch.compile.kernels import Kernels
from ztorch.errors import Unsupported
from ztorch.ir.kernel import Kernel


class KernelResources(NamedTuple):
    """The registers and memory of an assembled kernel."""

    registers: int  # per thread
    spilled: int  # bytes that a thread stores and loads for lack of registers
    shared_bytes: int  # static shared memory per workgroup


def assembled_modules(kernels: Mapping[int, Kernel],
                      target: Target) -> tuple[list[str], dict[int, str]]:
    """The texts of PTX that an assembler takes for kernels, at most two, and the symbols of the
    kernels, by the keys of `kernels`. Text that only ptxas assembles is missing if it is not
    installed.

    Raises:
        Unsupported: The target is not NVIDIA's.
    """
    if not ptx.assembles(target):
        raise Unsupported(f"{target.name}: only NVIDIA's assembler reports registers; omit "
                          "--assemble to estimate them")
    rendered = Kernels(target)
    numbers = {key: rendered.number(kernel) for key, kernel in kernels.items()}
    # Symbols of rendered kernels are unique: they end in a number.
    texts = []
    for needs_ptxas in (False, True):
        group = [k for k in rendered.rendered
                 if ptx.reallocates_registers(k["body"]) == needs_ptxas]
        if group and (installed("ptxas") or not needs_ptxas):
            text = rendered.module(group)
            texts.append(nvrtc.ptx_text(text, target) if target.assembler == "nvrtc" else text)
    return texts, {key: rendered.rendered[n]["symbol"] for key, n in numbers.items()}


def assembled_resources(kernels: Mapping[int, Kernel],
                        target: Target) -> dict[int, KernelResources]:
    """The resources of kernels, by the keys of `kernels`. Kernels that only ptxas assembles are
    missing if it is not installed.

    Raises:
        Unsupported: The target is not NVIDIA's, or nvJitLink is not installed.
    """
    return resources_of(*assembled_modules(kernels, target), target)


def resources_of(texts: Sequence[str], symbols: Mapping[int, str],
                 target: Target) -> dict[int, KernelResources]:
    """The resources of kernels whose texts and symbols `assembled_modules` made."""
    by_symbol = {}
    for text in texts:
        by_symbol.update(ptx.kernel_resources(ptx.cubin(text, target.chip)[1]))
    return {key: KernelResources(*by_symbol[s]) for key, s in symbols.items() if s in by_symbol}
