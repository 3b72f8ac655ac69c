"""Assembles LLVM IR to object files, which are cached."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ztorch.codegen import llvm
from ztorch.codegen.elf import split as splitting
from ztorch.codegen.elf import write as writing
from ztorch.codegen.elf.object import Object, read_object
from ztorch.codegen.elf.split import split
from ztorch.codegen.elf.write import object_bytes
from ztorch.codegen.llvm import llvm_identity
from ztorch.codegen.object_cache import all_cached, cached, canonical_text
from ztorch.codegen.targets import NATIVE, Target
from ztorch.errors import ZtorchError
from ztorch.terminal.work_line import at

# Modules that this process compiles itself, before the child takes over. llvmlite never frees
# 1.5 KB of each, 6 MB of all of them.
MOST_MODULES_HERE = 4_000
# Kernels in a module: of the millisecond or two that LLVM takes for each module, a sixteenth is
# left, and the line of progress moves on.
MOST_KERNELS = 16
KERNEL = "kernel"  # the symbol of each kernel, so that equal kernels have equal text


def assemble(text: str, target: Target) -> bytes:
    """The object file of a module, from the cache if it holds one.

    For another architecture, LLVM runs in a child process, because it aborts the process if it
    cannot select an instruction. It runs there for this architecture, too, if the target asks for
    that, and after thousands of modules.
    """
    return cached(_key(text, target), lambda: _emit(text, target))


def assemble_kernels(texts: Sequence[str], target: Target,
                     together: Callable[[Sequence[int]], str]) -> list[bytes]:
    """The object file of each kernel, whose symbol there is KERNEL. The kernels that the cache
    lacks are assembled in few modules, but an object has the same bytes as one assembled alone.

    Args:
        texts: A module for each kernel, which is also its key in the cache.
        target: The machine.
        together: Renders one module with the kernels of these numbers. They are called `kernel0`,
            `kernel1` and so on, and each has a section of its own.
    """
    return all_cached([_key(text, target) for text in texts],
                      lambda missing: _emit_kernels(texts, target, together, missing))


def _emit_kernels(texts: Sequence[str], target: Target,
                  together: Callable[[Sequence[int]], str],
                  missing: Sequence[int]) -> Iterator[bytes]:
    """The object files of the kernels with these numbers, in groups."""
    for first in range(0, len(missing), MOST_KERNELS):
        at("assemble kernels", first, len(missing))
        numbers = missing[first:first + MOST_KERNELS]
        objects: dict[str, Object] = {}
        if len(numbers) > 1:
            with contextlib.suppress(ZtorchError):  # below, LLVM names the kernel that it refuses
                objects = split(read_object(_emit(together(numbers), target)), KERNEL)
        for place, number in enumerate(numbers):
            obj = objects.get(f"{KERNEL}{place}")
            yield object_bytes(obj) if obj else _emit_kernel(texts[number], target)


def _emit_kernel(text: str, target: Target) -> bytes:
    code = _emit(text, target)
    obj = split(read_object(code), KERNEL).get(KERNEL)
    return object_bytes(obj) if obj else code


def _key(text: str, target: Target) -> tuple[str | bytes, ...]:
    """Everything that the code of a module depends on."""
    return text, _options_text(_options(target)), llvm_identity(), _source()


_options_text = functools.cache(canonical_text)  # asked for each kernel


def assembly(text: str, target: Target) -> str:
    """The assembly text of a module, for display."""
    return llvm.assembly(text, _options(target))


def _emit(text: str, target: Target) -> bytes:
    in_this_process = llvm.modules_compiled() < MOST_MODULES_HERE and not target.llvm_in_child
    if target.arch == NATIVE and (in_this_process or _is_embedded()):
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
def _source() -> bytes:
    """The source of the files on whose passes, options and layout the code depends."""
    files = (llvm.__file__, splitting.__file__, writing.__file__)
    return b"".join(Path(file).read_bytes() for file in files)
