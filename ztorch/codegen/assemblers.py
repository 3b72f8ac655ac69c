"""Turns rendered text into code: objects for the linker, or the form that a driver loads."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from types import ModuleType

from ztorch.codegen.targets import Target
from ztorch.errors import Unsupported
from ztorch.host.processor import usable_cores

IN_THREADS = ("ptx",)  # assemblers that let other threads work meanwhile


def assembled(text: str, target: Target) -> bytes:
    """The code of a text: the output of the target's assembler; without one, the text itself."""
    if not target.assembler:
        return text.encode()
    code: bytes = _assembler(target).assemble(text, target)
    return code


def all_assembled(texts: Sequence[str], target: Target) -> Iterator[bytes]:
    """The code of several texts, in their order; on all cores where the assembler allows it."""
    if target.assembler not in IN_THREADS or len(texts) == 1:
        yield from (assembled(text, target) for text in texts)
        return
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    with ThreadPoolExecutor(usable_cores(), "ztorch assembler") as threads:
        yield from threads.map(lambda text: assembled(text, target), texts)


def readable(text: str, target: Target) -> str:
    """The assembly text of a module's machine code, for display."""
    assembly = getattr(_assembler(target), "assembly", None) if target.assembler else None
    if assembly is None:
        raise Unsupported(f"the code for {target.name} cannot be shown; its text can")
    listing: str = assembly(text, target)
    return listing


def _assembler(target: Target) -> ModuleType:
    return importlib.import_module(f"ztorch.codegen.{target.assembler}")
