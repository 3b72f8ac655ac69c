"""From the text of a device's kernels to the code its driver takes."""

from __future__ import annotations

import importlib

from ztorch.codegen.targets import Target


def assembled(text: str, target: Target) -> bytes:
    """The code of a text: what the target's assembler makes of it, or the text itself."""
    if not target.assembler:
        return text.encode()
    module = importlib.import_module(f"ztorch.codegen.{target.assembler}")
    code: bytes = module.assemble(text, target)
    return code
