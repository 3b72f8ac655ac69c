"""LLVM, through llvmlite: compiles IR text to object files or to assembly text."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ztorch.errors import ZtorchError
from ztorch.locks import new_rlock

_lock = new_rlock()  # held while LLVM runs, since some of its settings are global
_modules = 0  # how many this process has compiled


class MachineOptions(NamedTuple):
    """The machine for which LLVM generates code."""

    target: str  # name of our target, for errors
    triple: str  # architecture and operating system
    cpu: str  # processor or chip
    features: tuple[str, ...]  # instruction sets that the code may use
    opt_level: int  # optimization level of the code generator, 0 to 3
    # Whether to run loop strength reduction. It takes a third of the compile time and gains nothing
    # on x86.
    strength_reduction: bool = True


def object_file(text: str, options: MachineOptions) -> bytes:
    """The object file of a module.

    LLVM aborts the process if it cannot select an instruction for another machine.
    """
    with _lock, _loop_strength_reduction(options):
        module = _parse_and_optimize(text, options)
        code: bytes = _machine(options).emit_object(module)
    return code


def modules_compiled() -> int:
    """How many modules this process has compiled. llvmlite never frees some memory of each."""
    return _modules


def assembly(text: str, options: MachineOptions) -> str:
    """The assembly text of a module, for display."""
    with _lock, _loop_strength_reduction(options):
        module = _parse_and_optimize(text, options)
        listing: str = _machine(options).emit_assembly(module)
    return listing


@contextmanager
def _loop_strength_reduction(options: MachineOptions) -> Iterator[None]:
    """Within the block, LLVM runs loop strength reduction or not, as the options say.

    LLVM has one such setting for the whole process, shared with other users of llvmlite, so it is
    changed only while a module is compiled.
    """
    if options.strength_reduction:
        yield
        return
    binding().set_option("ztorch", "-disable-lsr=true")
    try:
        yield
    finally:
        binding().set_option("ztorch", "-disable-lsr=false")


@functools.lru_cache(maxsize=1)
def binding() -> Any:
    """The module llvmlite.binding, initialized for all machines."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # C libraries have inline assembly (cpuid)
    return llvm


@functools.cache
def _machine(options: MachineOptions) -> Any:
    features = ",".join(f"+{feature}" for feature in options.features)
    return binding().Target.from_triple(options.triple).create_target_machine(
        cpu=options.cpu, features=features, opt=options.opt_level, reloc="pic", codemodel="small")


@functools.cache
def _data_layout(options: MachineOptions) -> str:
    """Sizes and alignments of the machine's types, in LLVM's notation."""
    return str(_machine(options).target_data)


def _parse_and_optimize(text: str, options: MachineOptions) -> Any:
    """Parses a module and runs two passes: SROA turns variables into registers, SCCP propagates
    constants.

    SCCP matters for the masks of rows that end within a vector. If a machine has no masked access
    to 8 or 16-bit numbers, the code generator emits a branch for each lane of a mask that is not
    constant: rows of 16-bit numbers then take three times as long, with twice the code.

    No other pass of LLVM's optimizer runs, because kernels are already explicit vector code in the
    final order. Its larger pipelines do not make them faster, take most of the compile time, and
    add calls to memset.
    """
    global _modules
    llvm, machine = binding(), _machine(options)
    _modules += 1
    try:
        # In a context of its own, so that types and constants are freed with the module.
        module = llvm.parse_assembly(text, llvm.create_context())
    except RuntimeError as error:
        raise ZtorchError(
            f"LLVM refused the rendered text for {options.target}: {error}") from error
    module.data_layout = _data_layout(options)
    tuning = llvm.create_pipeline_tuning_options(speed_level=0)
    _passes().run(module, llvm.create_pass_builder(machine, tuning))
    return module


@functools.cache
def _passes() -> Any:
    passes = binding().create_new_module_pass_manager()  # only one, as llvmlite never frees it
    passes.add_sroa_pass()
    passes.add_sccp_pass()
    return passes


if hasattr(os, "register_at_fork"):  # a child forked while LLVM runs would inherit a held lock
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release)


@functools.cache
def llvm_identity() -> str:
    """The identity of the installed LLVM, without loading it: llvmlite's version and files."""
    spec = importlib.util.find_spec("llvmlite")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    files = [*sorted(folder.glob("binding/*llvmlite*")), folder / "_version.py"]
    identity = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files if p.is_file()]
    return f"llvmlite {identity}" if len(identity) > 1 else repr(binding().llvm_version_info)
