"""From LLVM IR to a code object, which is what ROCm's driver takes: nothing need be installed."""

from __future__ import annotations

from ztorch.codegen import assemble as objects
from ztorch.codegen.elf_amdgcn import link
from ztorch.codegen.targets import Target


def assemble(text: str, target: Target) -> bytes:
    """The code object of a text. LLVM does it in a child process, which it ends where it cannot."""
    return link(objects.assemble(text, target))
