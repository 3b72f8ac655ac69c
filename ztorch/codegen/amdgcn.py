"""Assembles LLVM IR to a code object, which ROCm loads. No part of ROCm is needed."""

from __future__ import annotations

from ztorch.codegen import assemble as objects
from ztorch.codegen.elf.amdgcn import link
from ztorch.codegen.targets import Target


def assemble(text: str, target: Target) -> bytes:
    """The code object of a module. LLVM runs in a child process, because it aborts on errors."""
    return link(objects.assemble(text, target))
