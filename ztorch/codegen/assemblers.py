"""From rendered text to code: objects for our linker, or what a driver takes."""

from __future__ import annotations

import importlib
from types import ModuleType

from ztorch.codegen.targets import Target
from ztorch.errors import Unsupported


def assembled(text: str, target: Target) -> bytes:
    """The code of a text: what the target's assembler makes of it, or the text itself."""
    if not target.assembler:
        return text.encode()
    code: bytes = _assembler(target).assemble(text, target)
    return code


def readable(text: str, target: Target) -> str:
    """The machine code of a text, for people."""
    shown = getattr(_assembler(target), "assembly", None) if target.assembler else None
    if shown is None:
        raise Unsupported(f"the code for {target.name} cannot be shown; its text can")
    page: str = shown(text, target)
    return page


def _assembler(target: Target) -> ModuleType:
    return importlib.import_module(f"ztorch.codegen.{target.assembler}")
