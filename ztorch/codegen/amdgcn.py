"""Turns LLVM IR into a code object, the form that ROCm loads. It needs no part of ROCm."""

from __future__ import annotations

from ztorch.codegen import assemble as objects
from ztorch.codegen.elf_amdgcn import link
from ztorch.codegen.targets import Target


def assemble(text: str, target: Target) -> bytes:
    """The code object of a text. LLVM runs in a child process, because errors abort it."""
    return link(objects.assemble(text, target))
