"""Turns rendered text into code: objects for the linker, or the form that a driver loads."""

from __future__ import annotations

import importlib
from types import ModuleType

from ztorch.codegen.targets import Target
from ztorch.errors import Unsupported


def assembled(text: str, target: Target) -> bytes:
    """The code of a text: the output of the target's assembler; without one, the text itself."""
    if not target.assembler:
        return text.encode()
    code: bytes = _assembler(target).assemble(text, target)
    return code


def readable(text: str, target: Target) -> str:
    """The assembly text of a module's machine code, for display."""
    assembly = getattr(_assembler(target), "assembly", None) if target.assembler else None
    if assembly is None:
        raise Unsupported(f"the code for {target.name} cannot be shown; its text can")
    listing: str = assembly(text, target)
    return listing


def _assembler(target: Target) -> ModuleType:
    return importlib.import_module(f"ztorch.codegen.{target.assembler}")
