"""ztorch show: one stage of compiling a model, as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ztorch.commands.tracing import device_of, traced_model
from ztorch.terminal.work_line import working

if TYPE_CHECKING:
    from ztorch.compile.traced_model import TracedModel


def show(name: str, stage: str, device: str, batch_size: int | tuple[int, ...] | None,
         function: str, loss: str | None, dtype: str | None,
         sizes: Iterable[tuple[str, tuple[int, ...]]] = ()) -> None:
    """Prints a stage of one function of a model, or of the model that an artifact declares."""
    with working(f"show {name}"):
        traced = traced_model(name, batch_size, function, loss, dtype, dict(sizes))
        text = _text(name, traced, function, stage, device)
    print(text)


def _text(name: str, traced: TracedModel, function: str, stage: str, device: str) -> str:
    """The stage of a function as text."""
    from ztorch.compile.watch import show_plan
    from ztorch.graph import passes
    from ztorch.graph.value import show as show_graph
    from ztorch.ir.text import show as show_kernel

    functions = {function: traced.functions[function]}
    if stage == "graph":
        return show_graph(passes.run(functions[function]))
    from ztorch.compile.pipeline import compile_functions
    from ztorch.compile.targeting import target_for, with_libraries

    place = device_of(name, device)
    target = with_libraries(target_for(place), place.ordinal is not None)
    compiled = compile_functions(functions, target, traced.metadata.name)
    plan = compiled.plans[function]
    if stage == "plan":
        return show_plan(plan)
    if stage == "ir":
        return "\n\n".join(show_kernel(step.kernel) for step in plan.steps)
    if stage == "text":
        return compiled.text
    from ztorch.codegen.assemblers import assembly_of

    return assembly_of(compiled.text, target)
