"""LLVM IR text to an object file, by llvmlite. The only llvmlite import."""

from __future__ import annotations

import functools
from typing import Any

from ztorch.codegen.targets import Target
from ztorch.errors import ZtorchError


@functools.lru_cache(maxsize=1)
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # C libraries ask the processor in its own words
    return llvm


@functools.cache
def _machine(target: Target) -> Any:
    llvm = _llvm()
    features = ",".join(f"+{f}" for f in target.features)
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=features, opt=1, reloc="pic", codemodel="small")


def assemble(text: str, target: Target) -> bytes:
    """The object file of a module.

    Of LLVM's optimiser only SROA runs, which turns variables into registers: kernels arrive as
    explicit vectors in their final order, and the larger pipelines gain nothing on them, cost most
    of the compile time and invent calls to memset.
    """
    llvm = _llvm()
    machine = _machine(target)
    try:
        module = llvm.parse_assembly(text)
    except RuntimeError as e:
        raise ZtorchError(f"LLVM refused the rendered text for {target.name}: {e}") from e
    module.data_layout = str(machine.target_data)
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return machine.emit_object(module)


def assembly(text: str, target: Target) -> str:
    """The same as readable machine code, for people."""
    llvm = _llvm()
    machine = _machine(target)
    module = llvm.parse_assembly(text)
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return machine.emit_assembly(module)
