"""Assembles LLVM IR to object files, which are cached."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path

from ztorch.codegen import llvm
from ztorch.codegen.object_cache import cached, canonical_text
from ztorch.codegen.targets import NATIVE, Target

# Modules that this process compiles itself, before the child takes over. llvmlite never frees
# 1.5 KB of each, 6 MB of all of them.
MOST_MODULES_HERE = 4_000


def assemble(text: str, target: Target) -> bytes:
    """The object file of a module, from the cache if it holds one.

    For another architecture, LLVM runs in a child process, because it aborts the process if it
    cannot select an instruction. It runs there for this architecture, too, if the target asks for
    that, and after thousands of modules.
    """
    key = text, canonical_text(_options(target)), llvm_identity(), _source()
    return cached(key, lambda: _emit(text, target))


def assembly(text: str, target: Target) -> str:
    """The assembly text of a module, for display."""
    return llvm.assembly(text, _options(target))


def _emit(text: str, target: Target) -> bytes:
    here = llvm.modules_compiled() < MOST_MODULES_HERE and not target.llvm_in_child
    if target.arch == NATIVE and (here or _is_embedded()):
        return llvm.object_file(text, _options(target))
    from ztorch.codegen.llvm_child import object_file_in_child  # most programs need no child

    return object_file_in_child(text, _options(target))


def _is_embedded() -> bool:
    """Whether this Python is a part of another program, which cannot run as the child."""
    return not Path(sys.executable or "").name.startswith(("python", "pypy"))


def _options(target: Target) -> llvm.MachineOptions:
    return llvm.MachineOptions(target.name, target.llvm_triple, target.llvm_cpu,
                               target.llvm_features, target.llvm_opt_level,
                               target.llvm_strength_reduction)


@functools.cache
def llvm_identity() -> str:
    """The identity of the installed LLVM, without loading it: llvmlite's version and files."""
    spec = importlib.util.find_spec("llvmlite")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    files = [*sorted(folder.glob("binding/*llvmlite*")), folder / "_version.py"]
    identity = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files if p.is_file()]
    return f"llvmlite {identity}" if len(identity) > 1 else repr(llvm.binding().llvm_version_info)


@functools.cache
def _source() -> bytes:
    """The source of `llvm.py`, whose passes and options the code depends on."""
    return Path(llvm.__file__).read_bytes()
