"""Assembles PTX to code for the CUDA driver: the text itself, followed by its machine code.

Every driver can assemble the text, for this chip or a later one, but that takes half a minute for a
large model. The machine code, a cubin, comes from nvJitLink if that is installed. It is for one
chip and for drivers as new as nvJitLink; others use the text.

nvJitLink ignores the instructions that reallocate registers between warps (setmaxnreg). Text with
them is assembled by ptxas if that is installed, else by the driver.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from ztorch.codegen.nvidia_programs import assemble_with_ptxas, disassemble, ptxas_version
from ztorch.codegen.object_cache import cached
from ztorch.codegen.targets import Target
from ztorch.errors import Unsupported
from ztorch.host import settings
from ztorch.machines.chips import chips_of


def assemble(text: str, target: Target) -> bytes:
    """The text with the final zero byte that the driver requires, then the cubin. There is no cubin
    if no assembler is installed, or if ZTORCH_CUBIN is 0."""
    version = assembler_version(text)
    if not version:
        return text.encode() + b"\0"
    return cached(("text and cubin", version, target.chip, text),
                  lambda: _with_cubin(text, target.chip))


def _with_cubin(text: str, chip: str) -> bytes:
    text, code, _ = without_spills(text, chip)
    return text.encode() + b"\0" + code


def assembles(target: Target) -> bool:
    """Whether NVIDIA's assembler makes the machine code of a target: of PTX, and of CUDA C++ for a
    chip.

    >>> from ztorch.codegen.targets import TARGETS
    >>> [name for name in ("cuda:sm_80", "cuda:c:sm_80", "cuda:c") if assembles(TARGETS[name])]
    ['cuda:sm_80', 'cuda:c:sm_80']
    """
    return target.backend == "cuda" and any(c.name == target.chip for c in chips_of("cuda"))


def reallocates_registers(text: str) -> bool:
    """Whether a text reallocates registers between warps."""
    return "setmaxnreg" in text


def assembly(text: str, target: Target) -> str:
    """The machine code of one or several modules as text, for display."""
    modules = re.split(r"^(?=\.version )", text, flags=re.MULTILINE)
    return "\n".join(disassemble(cubin(module, target.chip)[0]) for module in modules
                     if module.startswith(".version "))


def assembler_version(text: str = "") -> str:
    """The version of the assembler for the cubin of a text; empty if there is none."""
    if not settings.current().cubin:
        return ""
    return ptxas_version() if reallocates_registers(text) else _version()


def assembler_versions() -> str:
    """The versions of nvJitLink and ptxas."""
    return f"{assembler_version()} {assembler_version('setmaxnreg')}"


@functools.cache
def _version() -> str:
    try:
        return ".".join(map(str, _nvjitlink().version()))
    except Unsupported:
        return ""


def cubin(text: str, chip: str) -> tuple[bytes, str]:
    """The machine code of a text for one chip, and the assembler's log, which `kernel_resources`
    reads."""
    return without_spills(text, chip)[1:]


def without_spills(text: str, chip: str) -> tuple[str, bytes, str]:
    """A text, its machine code and the assembler's log. Kernels that spill ask for one workgroup
    less that shares the registers of a unit, until none spills or there is only one: how many
    registers a kernel needs is known only once it is assembled."""
    while True:
        code, log = _assembled(text, chip)
        spilling = [name for name, (_, spilled, _) in kernel_resources(log).items() if spilled]
        before = text
        for name in spilling:
            text = re.sub(rf"(\b{name}\([^{{]*\.minnctapersm )(\d+)",
                          lambda m: m[1] + str(max(1, int(m[2]) - 1)), text)
        if text == before:
            return text, code, log


def _assembled(text: str, chip: str) -> tuple[bytes, str]:
    if reallocates_registers(text):
        return assemble_with_ptxas(text, chip)
    link = _nvjitlink()
    handle = link.create(2, [f"-arch={chip}", "-verbose"])
    try:
        raw = text.encode()
        try:
            link.add_data(handle, link.InputType.PTX, raw, len(raw), "kernels.ptx")
            link.complete(handle)
        except link.nvJitLinkError as error:
            raise Unsupported(f"nvJitLink refuses PTX for {chip}: {error}\n"
                              f"{_log(link.get_error_log_size, link.get_error_log, handle)}"
                              ) from None
        code = bytearray(link.get_linked_cubin_size(handle))
        link.get_linked_cubin(handle, code)
        return bytes(code), _log(link.get_info_log_size, link.get_info_log, handle)
    finally:
        link.destroy(handle)


def kernel_resources(log: str) -> dict[str, tuple[int, int, int]]:
    """The registers, spilled bytes and bytes of shared memory of each kernel, by symbol, from the
    log of `cubin`.

    >>> kernel_resources("Compiling entry function 'k' for 'sm_90' ... 8 bytes spill stores, "
    ...                  "4 bytes spill loads ... Used 24 registers, used 1 barriers, "
    ...                  "1024 bytes smem")
    {'k': (24, 12, 1024)}
    """
    kernels = {}
    for part in log.split("Compiling entry function")[1:]:
        name = re.search(r"'(\w+)'", part)
        numbers = [re.search(p, part) for p in (
            r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes spill loads",
            r"(\d+) bytes smem")]
        used, stores, loads, shared = (int(m[1]) if m else 0 for m in numbers)
        kernels[name[1] if name else ""] = used, stores + loads, shared
    return kernels


def _log(size: Any, read: Any, handle: Any) -> str:
    text = bytearray(size(handle))
    if text:
        read(handle, text)
    return text.rstrip(b"\0").decode(errors="replace")


def _nvjitlink() -> Any:
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except (ImportError, RuntimeError) as error:
        raise Unsupported(f"a cubin needs nvJitLink, which is not installed ({error}); "
                          "pip install 'ztorch[cuda]'") from None
    return nvjitlink
