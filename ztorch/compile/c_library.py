"""Compiles a model for C programs: without threads, with weights included, as plain functions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ztorch.artifact.c_export import CLibrary, CSource, put_states, write_c
from ztorch.artifact.c_interface import describe, literal
from ztorch.artifact.c_sizes import choosers
from ztorch.codegen.assemblers import assemble_text
from ztorch.codegen.targets import Target
from ztorch.compile.cpu_code import RenderedModule
from ztorch.compile.description import describe_program
from ztorch.compile.parameters import initial_parameters
from ztorch.compile.pipeline import (
    declare_states,
    garbage_collection_paused,
    plan_functions,
    simplify,
)
from ztorch.compile.targeting import target_for
from ztorch.compile.traced_model import TracedModel
from ztorch.compile.watch import Watch
from ztorch.errors import Unsupported
from ztorch.graph import passes
from ztorch.graph.value import Graph
from ztorch.host.processor import architecture
from ztorch.lower.plan import Plan
from ztorch.runtime.devices import resolve
from ztorch.tabular.record import PipelineRecord, TargetRecord
from ztorch.terminal.work_line import at


def export_c(traced: TracedModel, path: str | os.PathLike[str], *, device: str = "cpu",
             name: str | None = None, weights: Mapping[str, Any] | None = None) -> list[Path]:
    """Writes a model as a C library to a folder: NAME.h, libNAME.so, libNAME.a and an example.

    The results are bit-identical to those of the compiled program. If the model is traced for
    several sizes, NAME_sizes.c selects the function.

    Args:
        traced: The result of `model.trace`. If it was traced with an optimizer, the library can
            train.
        path: The folder.
        device: "cpu" or an instruction level, such as "cpu:avx2"; "c" writes C source, NAME.c,
            instead of libraries. Default: `"cpu"`.
        name: The name of the library; None: the name of the model. Default: `None`.
        weights: Arrays by name that replace the model's own, such as `program.weights`. Default:
            `None`.

    Returns:
        The paths of the files.

    Raises:
        Unsupported: The device is not a processor, or its code cannot be generated on this machine.

    Examples:
        ```python
        export_c(model.trace(batch_size=1), "out", weights=program.weights)
        ```
    """
    target = target_for(resolve(device, must_be_local=False))
    library_name = name or traced.metadata.name
    library = compile_c(traced.functions, target, library_name, weights, traced.metadata.axes,
                        traced.metadata.open_axes, traced.metadata.pipeline,
                        traced.metadata.whole_axes, traced.metadata.whole_batches,
                        traced.metadata.multiples)
    return write_c(library, path)


@garbage_collection_paused()
def compile_c(functions: Mapping[str, Graph], target: Target, name: str,
              weights: Mapping[str, Any] | None = None,
              axes: Mapping[str, tuple[int, ...]] | None = None,
              open_axes: Mapping[str, str] | None = None,
              pipeline: PipelineRecord | None = None,
              whole_axes: Sequence[str] = (), whole_batches: Sequence[str] = (),
              multiples: Mapping[str, int] | None = None) -> CLibrary | CSource:
    """All stages for a C library except writing its files; arguments as in `export_c`. `axes` are
    the sizes of variable axes, by name; `open_axes` the variable axis, by port; `pipeline` names
    inputs and classes; along `whole_axes` rows are never padded, nor batches of `whole_batches`;
    sizes of axes are multiples of `multiples`."""
    _need_processor(target)
    watch = Watch()
    graphs = simplify(functions, passes.DEFAULT, watch)
    params = declare_states(functions, target)
    plans = plan_functions(graphs, target, params, watch, prepare_once=False)
    spec = describe_program(name, target, plans, params)
    interface = describe(spec, name, _functions_that_write_params(plans))
    if pipeline is not None:
        interface = replace(interface, **_words_of(pipeline))
    any_size = choosers(interface, spec, axes, open_axes or {}, whole_axes, whole_batches,
                        multiples) if axes else ()
    symbols = {function: f.symbol for function, f in spec.functions.items()}
    text = RenderedModule(plans, target, symbols, interface).text()
    watch.done("text", text)
    first = initial_parameters(spec, params.states, [data for _, data in params.constants])
    values = put_states(spec, first, weights or {})
    if target.emits_source:
        return CSource(interface, values, text, any_size)
    at("assemble")
    object_file = assemble_text(text, target)
    watch.done("object", object_file)
    return CLibrary(interface, target.arch, object_file, values, any_size)


def _words_of(pipeline: PipelineRecord) -> dict[str, Any]:
    """The names and units in a header: those of features, classes and the target."""
    target = pipeline.target or TargetRecord("")
    units = pipeline.units if any(pipeline.units) else ()
    lists = (("FEATURE_NAMES", "Names of the numbers in a row of x", pipeline.features),
             ("FEATURE_UNITS", "Units of the numbers in a row of x, \"\" for none", units),
             ("CLASS_NAMES", "Names of the numbers in a prediction", target.classes))
    texts = (("TARGET_NAME", target.name, "the predicted quantity"),
             ("TARGET_UNIT", target.unit, "of a prediction"))
    return {"lists": tuple((macro, meaning, tuple(map(literal, words)))
                           for macro, meaning, words in lists if words),
            "texts": tuple((macro, literal(text), meaning)
                           for macro, text, meaning in texts if text)}


def _need_processor(target: Target) -> None:
    if target.limits.grid is not None:
        raise Unsupported(f"a C library runs on a processor, and {target.name} is not one; export "
                          "it for the device cpu, or c")
    if target.arch == "x86_64" != architecture():
        raise Unsupported(f"a C library for cpu:{target.name} can only be built on x86-64: LLVM "
                          "for another machine cannot compile the instructions that query a "
                          "processor's features; export it there, or compile for this machine")


def _functions_that_write_params(plans: Mapping[str, Plan]) -> set[str]:
    """The functions that change weights or other states, for the header."""
    return {name for name, plan in plans.items() for step in plan.steps
            for place, writes in zip(step.locations, step.writes, strict=True)
            if writes and place.space == "params"}
