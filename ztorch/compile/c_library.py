"""Compiles a model for C programs: no threads, weights inside, plain functions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ztorch.artifact.c_export import CLibrary, CSource, put_states, write_c
from ztorch.artifact.c_interface import describe
from ztorch.codegen.assemblers import assembled
from ztorch.codegen.targets import Target
from ztorch.compile.functions import Functions
from ztorch.compile.pipeline import (
    initial_params,
    lower_functions,
    render,
    spec_of,
    target_for,
    without_collection,
)
from ztorch.compile.watch import Watch
from ztorch.errors import Unsupported
from ztorch.graph import passes
from ztorch.graph.value import Graph
from ztorch.host.processor import architecture
from ztorch.runtime.devices import resolve


def export_c(traced: Functions, path: str | os.PathLike[str], *, device: str = "cpu",
             name: str | None = None, weights: Mapping[str, Any] | None = None) -> list[Path]:
    """Writes a traced model as a C library to a folder: NAME.h, libNAME.so, libNAME.a and an
    example; for the device "c" as C source: NAME.h, NAME.c with the weights inside and an example.
    It trains if it was traced with an optimizer, and computes what the compiled program does, bit
    for bit. `weights` (by the names of states) replace first values.

        export_c(model.trace(batch_size=1), "out", weights=program.weights)
    """
    called = name or traced.metadata["name"]
    chosen = target_for(resolve(device, here=False))
    return write_c(compile_c(traced.functions, chosen, called, weights), path)


@without_collection()
def compile_c(functions: Mapping[str, Graph], target: Target, name: str,
              weights: Mapping[str, Any] | None = None) -> CLibrary | CSource:
    """All stages for a C library but the writing of files."""
    if target.limits.grid is not None:
        raise Unsupported(f"a C library is for a processor, and {target.name} is none: export it "
                          "for the device cpu, or c")
    if target.arch == "x86_64" != architecture():
        raise Unsupported(f"a C library for cpu:{target.name} can only be made on x86-64: "
                          "elsewhere LLVM cannot read the instructions that ask a processor for "
                          "its features. Run the export there, or compile for this machine")
    watch = Watch()
    _, plans, params = lower_functions(functions, target, passes.DEFAULT, True, False, watch)
    spec = spec_of(name, target, plans, params)
    changing = {n for n, plan in plans.items() for step in plan.steps
                for place, written in zip(step.locations, step.writes, strict=True)
                if written and place.space == "params"}
    interface = describe(spec, name, changing)
    text = render(plans, target, {n: f.symbol for n, f in spec.functions.items()}, interface)
    watch.done("text", text)
    held = put_states(spec, initial_params(params), weights or {})
    if target.emits_source:
        return CSource(interface, held, text)
    obj = assembled(text, target)
    watch.done("object", obj)
    return CLibrary(interface, target.arch, obj, held)
