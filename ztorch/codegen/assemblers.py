"""Assembles rendered text with the assembler of its target, to an object or to device code."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from types import ModuleType

from ztorch.codegen.targets import Target
from ztorch.errors import Unsupported
from ztorch.host.processor import usable_cores

IN_THREADS = ("ptx", "nvrtc")  # assemblers that can run in several threads at once


def assemble_text(text: str, target: Target) -> bytes:
    """The output of the target's assembler; the text itself if the target has none."""
    if not target.assembler:
        return text.encode()
    code: bytes = _assembler(target).assemble(text, target)
    return code


def assemble_all(texts: Sequence[str], target: Target) -> Iterator[bytes]:
    """The code of several texts in order, assembled on all cores if the assembler allows it."""
    if target.assembler not in IN_THREADS or len(texts) == 1:
        yield from (assemble_text(text, target) for text in texts)
        return
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    with ThreadPoolExecutor(usable_cores(), "ztorch assembler") as threads:
        yield from threads.map(lambda text: assemble_text(text, target), texts)


def assembly_of(text: str, target: Target) -> str:
    """The assembly text of a module's machine code, for display."""
    assembly = getattr(_assembler(target), "assembly", None) if target.assembler else None
    if assembly is None:
        raise Unsupported(f"the machine code for {target.name} cannot be shown, because its driver "
                          "assembles it; show the text instead")
    listing: str = assembly(text, target)
    return listing


def _assembler(target: Target) -> ModuleType:
    return importlib.import_module(f"ztorch.codegen.{target.assembler}")
