"""Compiles LLVM IR text to an object file with llvmlite, which only this file imports."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from ztorch.codegen.object_cache import cached, row
from ztorch.codegen.targets import NATIVE, Target
from ztorch.errors import ZtorchError


@functools.lru_cache(maxsize=1)
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # C libraries have inline assembly (cpuid)
    return llvm


@functools.cache
def _machine(target: Target) -> Any:
    llvm = _llvm()
    features = ",".join(f"+{f}" for f in target.llvm_features)
    return llvm.Target.from_triple(target.llvm_triple).create_target_machine(
        cpu=target.llvm_cpu, features=features, opt=target.llvm_opt_level, reloc="pic",
        codemodel="small")


def assemble(text: str, target: Target) -> bytes:
    """The object file of a module, from the cache if it is there.

    For a foreign architecture, LLVM runs in a child process, because it aborts the process if it
    cannot select an instruction.
    """
    return cached((text, row(target), llvm_identity(), _source()), lambda: _emit(text, target))


def _emit(text: str, target: Target) -> bytes:
    if target.arch != NATIVE:
        return _in_child(text, target)
    machine = _machine(target)
    return machine.emit_object(_prepared(text, target, machine))


@functools.cache
def llvm_identity() -> str:
    """Identifies the LLVM in use without loading it: llvmlite's version and its library files."""
    spec = importlib.util.find_spec("llvmlite")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    libraries = [(p.name, p.stat().st_size, p.stat().st_mtime_ns)
                 for p in sorted(folder.glob("binding/*llvmlite*")) if p.is_file()]
    if not libraries:
        return repr(_llvm().llvm_version_info)
    return f"llvmlite {importlib.metadata.version('llvmlite')} {libraries}"


@functools.cache
def _source() -> bytes:
    """The text of this file: the code depends on the passes and options that it selects."""
    return Path(__file__).read_bytes()


def assembly(text: str, target: Target) -> str:
    """The assembly text of a module, for display."""
    machine = _machine(target)
    return machine.emit_assembly(_prepared(text, target, machine))


def _prepared(text: str, target: Target, machine: Any) -> Any:
    """The parsed module after SROA, which turns variables into registers.

    No other pass of LLVM's optimiser runs. Kernels are already explicit vector code in its final
    order. The larger pipelines do not make it faster, take most of the compile time, and add calls
    to memset.
    """
    llvm = _llvm()
    try:
        module = llvm.parse_assembly(text)
    except RuntimeError as error:
        raise ZtorchError(f"LLVM refused the rendered text for {target.name}: {error}") from error
    module.data_layout = str(machine.target_data)
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return module


def _in_child(text: str, target: Target) -> bytes:
    root = Path(__file__).parents[2]
    process = subprocess.run(
        [sys.executable, "-c", _CHILD, target.name], input=text.encode(), capture_output=True,
        cwd=root, check=False)
    if process.returncode:
        why = process.stderr.decode(errors="replace").strip().splitlines()[-3:]
        raise ZtorchError(f"LLVM could not generate code for {target.name}: {' '.join(why)}")
    return process.stdout


_CHILD = """
import sys
from ztorch.codegen.assemble import _machine, _prepared
from ztorch.codegen.targets import target
t = target(sys.argv[1])
m = _machine(t)
sys.stdout.buffer.write(m.emit_object(_prepared(sys.stdin.read(), t, m)))
"""
