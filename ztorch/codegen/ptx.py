"""From PTX to what CUDA's driver takes: the text itself, which every driver assembles for the chip
it has, or a cubin, assembled now by nvJitLink for one chip.

Which of the two code is says its beginning: a cubin is an ELF file.
"""

from __future__ import annotations

from typing import Any

from ztorch.codegen.targets import Target
from ztorch.errors import Unsupported
from ztorch.host import settings


def assemble(text: str, target: Target) -> bytes:
    """The code of a text: a cubin where the setting asks for one, else the text, which ends in a
    zero as the driver wants it."""
    if not settings.current().cubin:
        return text.encode() + b"\0"
    return cubin(text, target.chip)[0]


def cubin(text: str, chip: str) -> tuple[bytes, str]:
    """The machine code of a text for one chip, and what the assembler says of its kernels:
    registers, spills and shared bytes of each."""
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
        raise Unsupported("a cubin is made by nvJitLink, which is not installed "
                          f"({error}); pip install 'ztorch[cuda]', or leave ZTORCH_CUBIN away and "
                          "the driver assembles the PTX text") from None
    return nvjitlink
